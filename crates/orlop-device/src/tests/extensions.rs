//! The extensions beyond PyTorch's rules.

use super::{MIB, engine, on, torch};
use crate::{DeviceAllocator, DeviceBlock, DeviceRequest, Growth, NullDevice, Policy, StreamFilter};
use orlop_alloc::{Allocator, AllocatorRef, Block, Request};
use orlop_core::{Device, StreamId};
use std::sync::{Arc, Mutex};

/// A block that another stream uses is freed, and its memory is requested at once: PyTorch's allocator waits,
/// releases whole regions, does not search again and fails.
#[test]
fn a_pending_block_is_found_after_a_wait() {
    let pending = |policy: Policy| {
        let mut engine = engine(policy, 20);
        let kept = engine.allocate(on(5, 0)).unwrap();
        let used = engine.allocate(on(12, 0)).or_else(|_| engine.allocate(on(9, 0))).unwrap();
        engine.record_stream(used, StreamId::from_raw(1)).unwrap();
        engine.backing().set_events_done(false);
        engine.free(used).unwrap();
        let again = engine.allocate(on(9, 0));
        engine.verify().unwrap();
        let _ = kept;
        again.is_ok()
    };
    assert!(!pending(torch("")), "PyTorch");
    assert!(pending(Policy::orlop()));
    assert!(pending(Policy::orlop_without_pages()));
}

#[test]
fn a_stream_waits_before_it_takes_memory_of_another() {
    for (policy, waits) in
        [(torch(""), false), (Policy::orlop(), true), (Policy::orlop_without_pages(), true)]
    {
        let mut engine = engine(policy, 40);
        let first = engine.allocate(on(30, 1)).unwrap();
        let kept = engine.allocate(on(2, 1)).ok();
        engine.free(first).unwrap();
        let second = engine.allocate(on(30, 2)).is_ok();
        let waited = engine.backing().waits() > 0;
        // PyTorch releases the region and reserves it again.
        assert!(second);
        assert_eq!(waited, waits);
        let _ = kept;
        engine.verify().unwrap();
    }
}

#[test]
fn free_pages_are_moved_together() {
    let mut engine = engine(Policy::orlop(), 400);
    let blocks: Vec<DeviceBlock> = (0..40).map(|_| engine.allocate(on(10, 0)).unwrap()).collect();
    for block in blocks.iter().skip(1).step_by(2) {
        engine.free(*block).unwrap();
    }
    // 200 MiB are free, in twenty chunks.
    let whole = engine.allocate(on(198, 0)).unwrap();
    engine.verify().unwrap();
    assert_eq!(engine.size(whole), 198 * MIB);
    assert_eq!(engine.backing().used(), 400 << 20);
    assert!(engine.stats().remapped_bytes >= 190 << 20);

    let mut torch = self::engine(torch(""), 400);
    let blocks: Vec<DeviceBlock> = (0..40).map(|_| torch.allocate(on(9, 0)).unwrap()).collect();
    for block in blocks.iter().skip(1).step_by(2) {
        torch.free(*block).unwrap();
    }
    assert!(torch.allocate(on(100, 0)).is_err());
}

#[test]
fn a_request_queries_at_most_one_event() {
    let mut engine = engine(Policy::orlop(), 4000);
    for stream in 1..=32 {
        let block = engine.allocate(on(2, 0)).unwrap();
        engine.record_stream(block, StreamId::from_raw(stream)).unwrap();
        engine.backing().set_events_done(false);
        engine.free(block).unwrap();
    }
    for done in [false, true] {
        engine.backing().set_events_done(done);
        for _ in 0..100 {
            let before = engine.backing().queries();
            let block = engine.allocate(on(1, 0)).unwrap();
            assert!(engine.backing().queries() - before <= 1);
            engine.free(block).unwrap();
        }
    }
    let stats = engine.stats();
    assert_eq!(stats.active.all.current, stats.allocation.all.current, "all frees are complete");
}

#[test]
fn many_events_of_one_stream_take_few_queries() {
    let mut engine = engine(Policy::orlop(), 40_000);
    engine.backing().set_events_done(false);
    for _ in 0..1000 {
        let block = engine.allocate(on(2, 0)).unwrap();
        engine.record_stream(block, StreamId::from_raw(1)).unwrap();
        engine.free(block).unwrap();
    }
    engine.backing().set_events_done(true);
    for _ in 0..12 {
        let block = engine.allocate(DeviceRequest::new(512, StreamId::default_of(Device::cuda(0)))).unwrap();
        engine.free(block).unwrap();
    }
    assert_eq!(engine.stats().active.all.current, 0);
}

#[test]
fn long_lived_blocks_are_separated() {
    let mut engine = engine(Policy::orlop(), 1000);
    let long = |mib| DeviceRequest { long_lived: true, ..on(mib, 0) };
    let weight = engine.allocate(long(4)).unwrap();
    let short = engine.allocate(on(4, 0)).unwrap();
    let other = engine.allocate(long(4)).unwrap();
    assert_eq!(engine.address(other) - engine.address(weight), 4 * MIB);
    engine.free(short).unwrap();
    engine.verify().unwrap();
}

#[test]
fn memory_for_long_lived_blocks_serves_others_before_they_fail() {
    let mut engine = engine(Policy::orlop_without_pages(), 20);
    let long = DeviceRequest { long_lived: true, ..on(9, 0) };
    let blocks = [engine.allocate(long).unwrap(), engine.allocate(long).unwrap()];
    engine.free(blocks[0]).unwrap();
    let short = engine.allocate(on(8, 0)).unwrap();
    engine.free(short).unwrap();
    engine.free(blocks[1]).unwrap();
    engine.verify().unwrap();
}

/// The second engine is restored from the segments of the first. The same requests then get the same
/// addresses.
#[test]
fn a_restored_engine_continues_like_the_original() {
    // A range continues to grow at its end. The addresses of new regions differ, so these requests need none.
    let later: [(Policy, &[usize]); 2] =
        [(torch(""), &[1, 25, 2, 9]), (torch("expandable_segments:True"), &[1, 25, 2, 9, 50, 1, 33])];
    for (policy, sizes_after) in later {
        let mut first = engine(policy.clone(), 1000);
        let sizes = [3, 1, 7, 30, 2, 25, 1, 40];
        let blocks: Vec<DeviceBlock> = sizes.map(|mib| first.allocate(on(mib, 0)).unwrap()).into();
        let private = (7, 1);
        first.begin_allocate_to_pool(private, StreamFilter::All).unwrap();
        let captured = first.allocate(on(5, 0)).unwrap();
        first.end_allocate_to_pool(private).unwrap();
        for freed in [1, 3, 5] {
            first.free(blocks[freed]).unwrap();
        }
        let mut second = engine(policy, 1000);
        let restored = second.restore(&first.segments()).unwrap();
        assert_eq!(restored.len(), 6);
        second.verify().unwrap();
        assert_eq!(second.segments(), first.segments());
        assert!(restored.contains_key(&first.address(captured)));
        for &mib in sizes_after {
            let (a, b) = (first.allocate(on(mib, 0)).unwrap(), second.allocate(on(mib, 0)).unwrap());
            assert_eq!(first.address(a), second.address(b), "{mib}");
            second.verify().unwrap();
        }
    }
}

/// Memory that one stream took from another is its own afterwards: the other waits before it gets it back.
#[test]
fn memory_belongs_to_the_stream_that_took_it() {
    let mut engine = engine(Policy::orlop(), 40);
    let first = engine.allocate(on(30, 1)).unwrap();
    engine.free(first).unwrap();
    let taken = engine.allocate(on(30, 2)).unwrap();
    assert_eq!(engine.backing().waits(), 1);
    engine.free(taken).unwrap();
    let again = engine.allocate(on(30, 1)).unwrap();
    assert_eq!(engine.backing().waits(), 2, "stream 1 waits for stream 2");
    engine.free(again).unwrap();
    engine.verify().unwrap();
}

#[test]
fn all_of_the_memory_is_no_limit() {
    let mut engine = engine(torch(""), 100);
    engine.set_memory_fraction(0.5);
    assert!(engine.allocate(on(60, 0)).is_err());
    engine.set_memory_fraction(1.0);
    let block = engine.allocate(on(60, 0)).unwrap();
    engine.set_memory_fraction(0.0);
    assert!(engine.allocate(on(20, 0)).is_err());
    engine.free(block).unwrap();
}

#[test]
fn a_request_beyond_the_memory_changes_nothing() {
    let mut engine = engine(Policy::orlop(), 100);
    let blocks: Vec<_> = (0..9).map(|_| engine.allocate(on(10, 0)).unwrap()).collect();
    for block in blocks {
        engine.free(block).unwrap();
    }
    let (regions, moved) = (engine.region_count(), engine.stats().remapped_bytes);
    for mib in [101, 1000, 60 << 20] {
        assert!(engine.allocate(on(mib, 0)).is_err());
        engine.verify().unwrap();
    }
    assert!(engine.region_count() <= regions);
    assert_eq!(engine.stats().remapped_bytes, moved);
}

/// A callback may free blocks of the allocator that calls it.
#[test]
fn a_callback_frees_blocks_of_the_same_allocator() {
    let device = NullDevice::new(Device::cuda(0), 64 << 20);
    let allocator = DeviceAllocator::new(device, Policy::orlop()).into_ref();
    let cache: Arc<Mutex<Vec<Block>>> = Arc::default();
    for _ in 0..6 {
        cache.lock().unwrap().push(allocator.allocate(&Request::new(10 * MIB)).unwrap());
    }
    let weak = Arc::downgrade(&cache);
    allocator.on_pressure(move || weak.upgrade().is_some_and(|cache| cache.lock().unwrap().pop().is_some()));
    // One block is not enough for the second request: the callback runs once, and the request fails.
    let first = allocator.allocate(&Request::new(14 * MIB)).unwrap();
    assert_eq!(cache.lock().unwrap().len(), 5);
    assert!(allocator.allocate(&Request::new(30 * MIB)).is_err());
    assert_eq!(cache.lock().unwrap().len(), 4);
    drop(first);
    allocator.verify().unwrap();
}

/// A request from inside `with_engine` would wait for itself.
#[test]
fn requests_during_an_inspection_are_refused() {
    let new = || DeviceAllocator::new(NullDevice::new(Device::cuda(0), 1 << 30), torch("")).into_ref();
    let (first, second) = (new(), new());
    let allocate = |allocator: &AllocatorRef<DeviceAllocator<NullDevice>>| {
        allocator.allocate(&Request::new(1000)).map(drop).is_ok()
    };
    // Other allocators may be used.
    assert!(first.with_engine(|_| allocate(&second)));
    assert!(!first.with_engine(|_| second.with_engine(|_| allocate(&first))));
    assert!(allocate(&first) && allocate(&second));
}

/// What is free in the pools of the other size serves a request before it fails.
#[test]
fn a_request_is_served_by_the_pool_of_the_other_size() {
    let request = |bytes| DeviceRequest::new(bytes, StreamId::from_raw(1));
    for policy in [Policy::orlop(), Policy::orlop_without_pages(), torch("")] {
        let serves = policy.extensions.search_after_wait;
        let has_pages = matches!(policy.growth, Growth::Pages { .. });
        let mut engine = engine(policy, 2);
        let small = engine.allocate(request(1000)).unwrap();
        let large = engine.allocate(request(1_200_000));
        assert_eq!(large.is_ok(), serves, "a large one in a small one's region");
        engine.verify().unwrap();
        large.into_iter().chain([small]).for_each(|block| engine.free(block).unwrap());
        if has_pages {
            let large = engine.allocate(request(2 * MIB - 4096)).unwrap();
            let small: Vec<_> = (0..4).map(|_| engine.allocate(request(1000)).unwrap()).collect();
            assert!(engine.allocate(request(1)).is_err(), "there is nothing left");
            engine.verify().unwrap();
            small.into_iter().chain([large]).for_each(|block| engine.free(block).unwrap());
        }
        engine.empty_cache().unwrap();
        assert_eq!(engine.stats().reserved_bytes.all.current, 0);
    }
}
