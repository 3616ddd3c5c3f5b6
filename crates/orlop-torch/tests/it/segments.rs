//! Segments for PyTorch's own allocator.

use crate::machine::{MEMORY, Machine, handle, last_error, pointer};
use orlop_torch::{orlop_torch_segment_free, orlop_torch_segment_malloc};

#[test]
fn a_segment_is_reused_after_all_work_of_the_device() {
    let machine = Machine::new(8);
    let (main, side) = (machine.device.create_stream().unwrap(), machine.device.create_stream().unwrap());
    let allocate = |stream| orlop_torch_segment_malloc(20 << 20, machine.number, handle(stream)).addr();
    let free = |address, stream| {
        orlop_torch_segment_free(pointer(address), 20 << 20, machine.number, handle(stream));
    };
    for _ in 0..20 {
        let segment = allocate(&main);
        assert_ne!(segment, 0);
        machine.write(&main, segment, 10 << 20);
        // PyTorch gives other streams a part.
        machine.write(&side, segment + (10 << 20), 10 << 20);
        free(segment, &main);
        let other = allocate(&side);
        assert_eq!(other, segment);
        machine.write(&side, other, 20 << 20);
        free(other, &side);
    }
    assert_eq!(machine.driver.races(), []);
    assert!(orlop_torch_segment_malloc(isize::MAX, machine.number, handle(&main)).is_null());
    let too_much = isize::try_from(2 * MEMORY).unwrap();
    assert!(orlop_torch_segment_malloc(too_much, machine.number, handle(&main)).is_null());
    assert!(last_error().contains("out of memory"), "{}", last_error());
    free(12345, &main);
    assert!(last_error().contains("0x3039"), "{}", last_error());
}

#[test]
fn a_segment_that_is_freed_in_a_capture_is_kept_until_after_it() {
    let machine = Machine::new(12);
    let stream = machine.device.create_stream().unwrap();
    let segment = orlop_torch_segment_malloc(20 << 20, machine.number, handle(&stream)).addr();
    machine.write(&stream, segment, 20 << 20);
    let mode = cudarc::driver::sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    stream.cudarc().begin_capture(mode).unwrap();
    orlop_torch_segment_free(pointer(segment), 20 << 20, machine.number, handle(&stream));
    let other = orlop_torch_segment_malloc(20 << 20, machine.number, handle(&stream)).addr();
    assert!(other != 0 && other != segment);
    let flags = cudarc::driver::sys::CUgraphInstantiate_flags(0);
    stream.cudarc().end_capture(flags).unwrap();
    for address in [other, segment] {
        orlop_torch_segment_free(pointer(address), 20 << 20, machine.number, handle(&stream));
    }
    assert!(last_error().contains("is not the address of a live block"), "{}", last_error());
    assert_eq!(machine.stat("allocation.all.current"), 0);
}
