//! What the hardened adaptor finds.

use super::*;
use crate::backing::{Null, System};
use crate::caching::Caching;
use crate::engine::Direct;
use crate::{Allocator, AllocatorRef, Block};
use orlop_core::Device;

fn hardened(hardening: Hardening) -> AllocatorRef<Hardened<Direct<System>>> {
    Hardened::new(Direct::new(System::new()), hardening).into_ref()
}

fn write(allocator: &AllocatorRef<impl Allocator>, bytes: usize, offset: usize) -> Block {
    let block = allocator.allocate(&Request::new(bytes)).expect("memory");
    let place = block.as_ptr().as_ptr().wrapping_add(offset);
    // SAFETY: inside what upstream has granted, though not to us.
    let byte = unsafe { place.read() };
    // SAFETY: as above. Another value for sure.
    unsafe { place.write(!byte) };
    block
}

#[test]
fn a_write_behind_the_block_is_found_when_it_comes_back() {
    let allocator = hardened(Hardening::new());
    for bytes in [1, 7, 64, 100, 5000] {
        let block = write(&allocator, bytes, bytes - 1);
        assert_eq!((block.len(), block.capacity()), (bytes, bytes));
        drop(block);
    }
    assert_eq!((allocator.found(), allocator.stats().live()), (0, 0));
    if cfg!(miri) || std::env::var_os("ASAN_OPTIONS").is_some() {
        eprintln!("skipped: a block that was overwritten stays where it is, and leaks are errors here");
        return;
    }
    for (times, offset) in (1..).zip([100, 107, 108, 115]) {
        drop(write(&allocator, 100, offset));
        assert_eq!((allocator.found(), allocator.stats().refused_frees), (times, times), "{offset}");
    }
    // They stay where they are.
    assert_eq!(allocator.stats().live(), 400);
}

#[test]
fn what_was_returned_is_poison_and_writes_to_it_are_found() {
    let allocator = hardened(Hardening::new().quarantine(1 << 16));
    let block = write(&allocator, 1000, 0);
    let ptr = block.as_ptr();
    drop(block);
    // SAFETY: in quarantine, so the memory is there.
    assert_eq!(unsafe { ptr.as_ptr().wrapping_add(999).read() }, POISON);
    allocator.verify().unwrap();
    // SAFETY: as above; this is the mistake.
    unsafe { ptr.as_ptr().wrapping_add(500).write(1) };
    assert!(matches!(allocator.verify(), Err(Error::Overwritten { .. })));
    allocator.trim(0);
    assert_eq!(allocator.found(), 2);
    allocator.verify().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "compares megabytes byte by byte")]
fn the_quarantine_is_bounded_and_makes_room() {
    let engine = Caching::builder(System::new()).limit(1 << 20).build();
    let allocator = Hardened::new(engine, Hardening::new().quarantine(1 << 20)).into_ref();
    for _ in 0..100 {
        drop(allocator.allocate(&Request::new(50_000)).unwrap());
    }
    assert!(allocator.quarantine.lock().bytes <= 1 << 20);
    drop(allocator.allocate(&Request::new(900_000)).unwrap());
    let report = allocator.allocate(&Request::new(2 << 20)).unwrap_err();
    assert!(matches!(report, Error::OutOfMemory(report) if report.requested == 2 << 20));
    allocator.verify().unwrap();
    // Blocks may outlive the handle; the quarantine goes with the last.
    let block = allocator.allocate(&Request::new(10)).unwrap();
    drop(allocator);
    drop(block);
}

#[test]
fn guarded_blocks_end_at_a_page() {
    let allocator = hardened(Hardening::new().guard_pages(2));
    let blocks: Vec<_> =
        (1..40).map(|n| allocator.allocate(&Request::new(100 * n).zeroed()).unwrap()).collect();
    let guarded = allocator.guard_pages.blocks().count();
    assert_eq!(guarded, if cfg!(unix) && !cfg!(miri) { 20 } else { 0 });
    for mut block in blocks {
        assert!(block.bytes().unwrap().iter().all(|&byte| byte == 0));
        block.bytes_mut().unwrap().fill(1);
    }
    assert_eq!((allocator.found(), allocator.stats().live()), (0, 0));
    // Every second: this one not, the next one.
    drop(allocator.allocate(&Request::new(1)).unwrap());
    if cfg!(unix) && !cfg!(miri) {
        drop(write(&allocator, 100, 100));
        assert_eq!((allocator.found(), allocator.stats().refused_frees), (1, 0));
    }
    assert_eq!(allocator.guard_pages.blocks().count(), 0);
}

#[test]
fn memory_that_nobody_reaches_passes() {
    let hardening = Hardening::new().quarantine(1000).guard_pages(1);
    let allocator = Hardened::new(Direct::new(Null::new(Device::cuda(0))), hardening).into_ref();
    let block = allocator.allocate(&Request::new(100)).unwrap();
    assert_eq!(block.len(), 100);
    drop(block);
    assert_eq!((allocator.found(), allocator.stats().live()), (0, 0));
}
