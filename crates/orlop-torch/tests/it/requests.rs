//! Single requests, their failures, and what is said of them.

use crate::machine::{MEMORY, Machine, handle, last_error, pointer, text};
use orlop_torch::{
    orlop_torch_base_alloc, orlop_torch_configure, orlop_torch_empty_cache, orlop_torch_free,
    orlop_torch_malloc, orlop_torch_memory_fraction, orlop_torch_report, orlop_torch_reset_peaks,
    orlop_torch_trim,
};
use std::ffi::CStr;

#[test]
fn blocks_are_allocated_counted_and_freed() {
    let machine = Machine::new(0);
    let stream = machine.device.create_stream().unwrap();
    let block = machine.malloc(1000, &stream);
    assert!(block != 0 && block.is_multiple_of(512));
    machine.write(&stream, block, 1000);
    assert_eq!(machine.stat("allocation.all.current"), 1);
    assert_eq!(machine.stat("requested_bytes.small_pool.current"), 1000);
    let mut bytes = 0;
    // SAFETY: the size is writable.
    assert_eq!(unsafe { orlop_torch_base_alloc(pointer(block), &raw mut bytes) }.addr(), block);
    assert_eq!(bytes, 1024);
    machine.free(block, &stream);
    assert_eq!(machine.stat("allocation.all.current"), 0);
    assert_eq!(machine.malloc(1000, &stream), block, "the stream has it again at once");
    machine.free(block, &stream);
    orlop_torch_reset_peaks(machine.number);
    assert_eq!(machine.stat("allocated_bytes.all.peak"), 0);
    let reserved = machine.stat("reserved_bytes.all.current");
    assert!(reserved > 0);
    assert_eq!(orlop_torch_trim(machine.number), reserved);
    assert_eq!(machine.stat("reserved_bytes.all.current"), 0);
    assert_eq!(machine.driver.counts().races, 0);
}

#[test]
fn zero_bytes_and_what_is_no_size_are_null() {
    let machine = Machine::new(1);
    for size in [0, -1, isize::MIN] {
        // SAFETY: the default stream always exists.
        let block = unsafe { orlop_torch_malloc(size, machine.number, std::ptr::null_mut()) };
        assert!(block.is_null(), "{size}");
    }
    // SAFETY: a null pointer is no block.
    unsafe { orlop_torch_free(std::ptr::null_mut(), 0, machine.number, std::ptr::null_mut()) };
}

#[test]
fn a_request_without_memory_has_a_report_and_harms_nothing() {
    let machine = Machine::new(2);
    let stream = machine.device.create_stream().unwrap();
    let blocks: Vec<usize> = (0..3).map(|_| machine.malloc(100 << 20, &stream)).collect();
    machine.free(blocks[1], &stream);
    assert_eq!(machine.malloc(2 * MEMORY, &stream), 0);
    let error = last_error();
    assert!(
        error.starts_with("CUDA out of memory. Tried to allocate 1.00 GiB on GPU 2 by orlop."),
        "{error}"
    );
    assert!(error.contains("200 MiB in live blocks"), "{error}");
    // The device is full; no limit was set.
    assert!(!error.contains("exceed the limit"), "{error}");
    assert_eq!(machine.stat("num_ooms"), 1);
    let again = machine.malloc(100 << 20, &stream);
    assert_ne!(again, 0);
    for block in [blocks[0], blocks[2], again] {
        machine.free(block, &stream);
    }
    // SAFETY: the text has this capacity.
    let report = text(|text, capacity| unsafe { orlop_torch_report(machine.number, text, capacity) });
    assert!(report.starts_with("cuda:2: ") && report.contains("out of memory 1"), "{report}");
    orlop_torch_empty_cache();
    assert_eq!(machine.stat("reserved_bytes.all.current"), 0);
}

#[test]
fn a_share_of_the_device_limits_it() {
    let machine = Machine::new(3);
    let stream = machine.device.create_stream().unwrap();
    orlop_torch_memory_fraction(0.25, machine.number);
    assert_eq!(machine.malloc(MEMORY / 2, &stream), 0);
    assert!(last_error().contains("limit"), "{}", last_error());
    orlop_torch_memory_fraction(1.0, machine.number);
    let block = machine.malloc(MEMORY / 2, &stream);
    assert_ne!(block, 0);
    machine.free(block, &stream);
}

#[test]
fn what_is_no_block_device_or_stream_is_an_error() {
    let machine = Machine::new(4);
    let stream = machine.device.create_stream().unwrap();
    let block = machine.malloc(1 << 20, &stream);
    machine.free(block, &stream);
    machine.free(block, &stream);
    assert_eq!(last_error(), format!("{block:#x} is not the address of a live block"));
    machine.record(block, &stream);
    assert!(last_error().contains("is not the address of a live block"));
    for device in [-1, 18, 64] {
        // SAFETY: no stream is used.
        let block = unsafe { orlop_torch_malloc(512, device, handle(&stream)) };
        assert!(block.is_null() && last_error().starts_with("orlop: "), "{device}: {}", last_error());
    }
    // SAFETY: the per-thread default stream, which is refused.
    assert!(unsafe { orlop_torch_malloc(512, machine.number, pointer(2)) }.is_null());
    assert!(last_error().contains("per-thread"), "{}", last_error());
}

#[test]
fn settings_are_fixed_by_the_first_request() {
    let machine = Machine::new(0);
    let stream = machine.device.create_stream().unwrap();
    machine.free(machine.malloc(512, &stream), &stream);
    // SAFETY: they end with a zero.
    let configure = |policy: &CStr, limit| unsafe { orlop_torch_configure(policy.as_ptr(), limit) };
    assert_eq!(configure(c"orlop", 0), 0, "they are those in use");
    for (policy, limit) in [(c"orlop", 1 << 30), (c"orlop:hold_to_peak=off", 0)] {
        assert_eq!(configure(policy, limit), -1);
        assert!(last_error().starts_with("the allocator is in use with other"), "{}", last_error());
    }
    assert_eq!(configure(c"bfc", 0), -1);
    assert!(last_error().starts_with("no policy is named \"bfc\""), "{}", last_error());
}
