//! Tests of the caching engine alone; the conformance suite and the stress test cover the rest.

mod periods;
mod player;

use super::*;
use crate::backing::{HugePages, Mmap, Null, System};
use crate::{Allocator as _, AllocatorRef, Error, Request};
use orlop_core::{Alignment, Device, MemoryKind};
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

fn small_pages() -> AllocatorRef<Caching<Mmap>> {
    Caching::new(Mmap::new().huge_pages(HugePages::Never)).into_ref()
}

fn reserved<B: Backing>(allocator: &AllocatorRef<Caching<B>>) -> u64 {
    allocator.stats().usage.reserved
}

#[test]
fn the_last_block_of_a_class_comes_first() {
    let allocator = small_pages();
    let blocks: Vec<_> = (0..3).map(|_| allocator.allocate(&Request::new(1000)).unwrap()).collect();
    let last = blocks[2].as_ptr();
    drop(blocks);
    assert_eq!(allocator.allocate(&Request::new(1010)).unwrap().as_ptr(), last);
    allocator.verify().unwrap();
}

#[test]
fn memory_grows_in_place_and_by_little() {
    let allocator = small_pages();
    let blocks: Vec<_> = (1..=100).map(|i| allocator.allocate(&Request::new(i * 10_000)).unwrap()).collect();
    let live: usize = blocks.iter().map(crate::Block::capacity).sum();
    let usage = allocator.stats().usage;
    // Where nothing grows in place, each step is a region.
    if !cfg!(miri) && cfg!(unix) {
        assert_eq!(usage.regions, 1);
        assert!(usage.reserved <= live as u64 + (64 << 10) + usage.reserved / 256, "{usage:?}");
    }
    drop(blocks);
    allocator.verify().unwrap();
}

/// Cached blocks are merged before memory is reserved.
#[test]
fn nothing_is_reserved_while_cached_memory_would_do() {
    let allocator = small_pages();
    drop((0..64).map(|_| allocator.allocate(&Request::new(16 << 10)).unwrap()).collect::<Vec<_>>());
    let before = reserved(&allocator);
    let large = allocator.allocate(&Request::new(1 << 20)).unwrap();
    assert_eq!(reserved(&allocator), before);
    drop(large);
    // So is what other threads have cached.
    thread::scope(|scope| {
        scope.spawn(|| drop(allocator.allocate(&Request::new(1 << 20)).unwrap()));
    });
    drop(allocator.allocate(&Request::new((1 << 20) - 100)).unwrap());
    assert_eq!(reserved(&allocator), before);
}

#[test]
fn trimming_reaches_what_idle_threads_have_cached() {
    let allocator = small_pages();
    let (to_main, from_thread) = mpsc::channel();
    let (to_thread, from_main) = mpsc::channel::<()>();
    let shared = &allocator;
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut block = shared.allocate(&Request::new(8 << 20)).unwrap();
            block.bytes_mut().unwrap().fill(1);
            drop(block);
            to_main.send(()).unwrap();
            // The thread is idle, and the cache is its own.
            let _ = from_main.recv();
        });
        from_thread.recv().unwrap();
        assert!(reserved(&allocator) >= 8 << 20);
        let held = reserved(&allocator);
        assert_eq!(allocator.trim(0), held);
        assert_eq!(reserved(&allocator), 0);
        drop(to_thread);
    });
}

#[test]
fn pages_between_live_blocks_go_back_and_come_again() {
    let allocator = small_pages();
    let mut blocks: Vec<_> = (0..8).map(|_| allocator.allocate(&Request::new(1 << 20)).unwrap()).collect();
    let full = reserved(&allocator);
    for index in [6, 4, 2] {
        drop(blocks.remove(index));
    }
    let freed = allocator.trim(0);
    // If the system can discard pages in the middle of a mapping.
    if cfg!(target_os = "linux") && !cfg!(miri) {
        assert!(freed >= 3 << 20, "{freed}");
    }
    assert_eq!(reserved(&allocator), full - freed);
    allocator.verify().unwrap();
    blocks.extend((0..3).map(|_| allocator.allocate(&Request::new(1 << 20).zeroed()).unwrap()));
    assert!(
        blocks[5..].iter().all(|block| block.bytes().unwrap().iter().step_by(997).all(|&byte| byte == 0))
    );
    assert_eq!(reserved(&allocator), full);
    allocator.verify().unwrap();
}

#[test]
fn blocks_pass_between_threads_and_add_up() {
    let allocator = small_pages();
    let (sender, receiver) = mpsc::sync_channel(64);
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    thread::scope(|scope| {
        let source = allocator.clone();
        scope.spawn(move || {
            for round in 0..rounds {
                let bytes = 1 + (round * 7919) % 20_000;
                sender.send(source.allocate(&Request::new(bytes)).unwrap()).unwrap();
            }
        });
        scope.spawn(move || {
            for block in receiver {
                assert!(block.len() <= block.capacity());
            }
        });
    });
    allocator.verify().unwrap();
    let all = allocator.stats().totals.all;
    assert_eq!((all.allocations, all.frees, all.live_bytes), (rounds as u64, rounds as u64, 0));
    // Bounded by the blocks on their way and the caches, not by what passed through.
    assert!(all.peak_bytes < 64 << 20);
    allocator.trim(0);
    assert_eq!(reserved(&allocator), 0);
}

#[test]
fn a_bare_address_is_freed_once() {
    let allocator = small_pages();
    let pointer = allocator.allocate(&Request::new(5000)).unwrap().into_raw_ptr().unwrap();
    // SAFETY: given up above, and unused.
    unsafe { allocator.free(pointer, None) }.unwrap();
    // SAFETY: it is refused; the address is only looked up.
    let again = unsafe { allocator.free(pointer, None) };
    assert!(matches!(again, Err(Error::DoubleFree { .. })), "{again:?}");
    let mut outside = 0u8;
    // SAFETY: as above.
    let foreign = unsafe { allocator.free(NonNull::from(&mut outside), None) };
    assert!(matches!(foreign, Err(Error::ForeignPointer { .. })), "{foreign:?}");
    allocator.verify().unwrap();
}

#[test]
fn a_limit_holds_and_what_is_cached_makes_room() {
    let allocator = Caching::builder(System::new()).limit(4 << 20).build().into_ref();
    for bytes in [3 << 20, 2 << 20, 1 << 20, 3 << 20] {
        drop(allocator.allocate(&Request::new(bytes)).unwrap());
        assert!(reserved(&allocator) <= 4 << 20);
    }
    let error = allocator.allocate(&Request::new(5 << 20)).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory(report) if report.limit == Some(4 << 20)));
    assert!(allocator.allocate(&Request::new(4 << 20)).is_ok());
}

/// A growth although enough bytes are free, in pieces, shrinks what may be cached unmerged.
#[test]
fn fragmentation_tightens_the_slack() {
    let engine = Caching::builder(Null::new(Device::CPU)).slack(NonZeroUsize::MIN).build();
    let before = engine.slack.load(Ordering::Relaxed);
    let mut blocks: Vec<_> = (0..64).map(|_| engine.allocate(&Request::new(64 << 10)).unwrap()).collect();
    for index in (0..32).rev() {
        // SAFETY: from this engine, freed once.
        unsafe { engine.deallocate(blocks.remove(2 * index)) }.unwrap();
    }
    // Half of the bytes are free, and no two free pieces are neighbours.
    blocks.push(engine.allocate(&Request::new(1 << 20)).unwrap());
    assert_eq!(engine.slack.load(Ordering::Relaxed), 2 * before);
    for block in blocks {
        // SAFETY: as above.
        unsafe { engine.deallocate(block) }.unwrap();
    }
    engine.verify().unwrap();
}

#[test]
fn alignments_and_kinds() {
    let allocator = small_pages();
    // Miri cannot unmap a part of a mapping, which larger alignments need.
    for log2 in 0..=if cfg!(miri) { 12 } else { 21 } {
        let align = Alignment::new(1 << log2).unwrap();
        let block = allocator.allocate(&Request::new(100).align(align).kind(MemoryKind::KvCache)).unwrap();
        assert!(align.is_aligned(block.as_ptr().as_ptr().addr()));
        allocator.verify().unwrap();
    }
    let device = Caching::new(Null::new(Device::cuda(0))).into_ref();
    for _ in 0..3 {
        assert!(device.allocate(&Request::new(100).kind(MemoryKind::HostPinned)).is_err());
    }
}

#[test]
fn the_engine_outlives_its_handles_while_blocks_live() {
    let allocator = small_pages();
    let blocks: Vec<_> = (0..4).map(|i| allocator.allocate(&Request::new(1000 << i)).unwrap()).collect();
    drop(allocator);
    thread::scope(|scope| {
        for mut block in blocks {
            scope.spawn(move || block.bytes_mut().unwrap().fill(7));
        }
    });
}
