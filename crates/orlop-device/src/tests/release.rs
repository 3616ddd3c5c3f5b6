//! Which memory is released to the device, and when.

use super::{MIB, engine, on, reserved_mib, torch};
use crate::engine::{ChunkState, PoolRequest, SlowPath};
use crate::{DeviceAllocator, DeviceRequest, Engine, NullDevice, Policy, StreamFilter};
use orlop_alloc::{Allocator, Request};
use orlop_core::{Alignment, Device, StreamId};

/// A block that is never split is not split for another stream either: the rest would not be a region.
#[test]
fn a_block_that_is_never_split_is_not_stolen_for_a_smaller_one() {
    let mut policy = Policy::orlop_without_pages();
    policy.max_split = 20 * MIB;
    policy.extensions.hold_to_peak = None;
    let mut engine = engine(policy, 64);
    let first = engine.allocate(on(40, 1)).unwrap();
    engine.free(first).unwrap();
    let small = engine.allocate(on(12, 2)).unwrap();
    assert_eq!(engine.stats().num_stream_steals, 0);
    engine.verify().unwrap();
    // A request of the same size takes it from the other stream.
    let large = engine.allocate(on(40, 2)).unwrap();
    assert_eq!(engine.stats().num_stream_steals, 1);
    engine.free(small).unwrap();
    engine.free(large).unwrap();
    engine.empty_cache().unwrap();
    engine.verify().unwrap();
    assert_eq!(engine.backing().used(), 0);
}

/// The slack is as large as the peak, and the request is beyond all memory.
#[test]
fn the_slack_of_a_huge_request_does_not_overflow() {
    let mut policy = Policy::orlop_without_pages();
    policy.extensions.hold_to_peak = Some(0);
    let mut engine = engine(policy, 64);
    engine.allocate(on(5, 0)).unwrap();
    let max = isize::MAX.unsigned_abs() / MIB * MIB;
    assert!(engine.allocate(DeviceRequest::new(max, StreamId::from_raw(0))).is_err());
    engine.verify().unwrap();
}

/// Regions need not be aligned to the granule.
#[test]
fn blocks_are_aligned_with_large_granules_too() {
    for granule in [512, MIB, 8 * MIB] {
        let policy = Policy { granule, large_region: 10 * MIB, ..torch("") };
        let allocator = DeviceAllocator::new(NullDevice::new(Device::cuda(0), 1 << 40), policy).into_ref();
        let align = Alignment::new(8 * MIB).unwrap();
        let blocks: Vec<_> =
            (1..6).map(|mib| allocator.allocate(&Request::new(mib * MIB).align(align)).unwrap()).collect();
        assert!(blocks.iter().all(|block| block.as_ptr().addr().get().is_multiple_of(8 * MIB)));
        allocator.verify().unwrap();
    }
}

/// Parts of a region can be larger than `max_split`. They are not regions, and stay.
#[test]
fn parts_of_regions_are_not_released_for_a_large_request() {
    let mut policy = torch("");
    (policy.max_split, policy.large_region) = (20 * MIB, 60 * MIB);
    let mut engine = engine(policy, 64);
    let small = engine.allocate(on(5, 0)).unwrap();
    assert!(engine.allocate(on(58, 0)).is_err());
    assert_eq!(reserved_mib(engine.stats()), 60);
    engine.verify().unwrap();
    engine.free(small).unwrap();
    assert!(engine.allocate(on(58, 0)).is_ok());
    engine.verify().unwrap();
}

/// For every caller, and without debug assertions.
#[test]
fn a_region_with_a_live_block_stays() {
    let mut engine = engine(torch(""), 64);
    let whole = engine.allocate(on(20, 0)).unwrap();
    let part = engine.allocate(on(5, 0)).unwrap();
    let behind = engine.chunks[part.0].next;
    assert_eq!(engine.chunks[behind].state, ChunkState::Free);
    for chunk in [whole.0, part.0, behind] {
        assert!(!SlowPath::new(&mut engine).release_region(chunk));
        assert!(!SlowPath::new(&mut engine).release_range(chunk));
    }
    assert_eq!((reserved_mib(engine.stats()), engine.stats().num_corrupt_releases), (40, 6));
    assert!(engine.verify().is_err());
    engine.stats.num_corrupt_releases = 0;
    engine.verify().unwrap();
}

/// PyTorch skips pages when it releases blocks that are never split.
#[test]
fn pages_are_not_released_as_blocks_that_are_never_split() {
    let mut engine = engine(torch("expandable_segments:True,max_split_size_mb:32"), 100);
    let first = engine.allocate(on(60, 0)).unwrap();
    engine.free(first).unwrap();
    let request = PoolRequest { size: 40 * MIB, stream: 0, pool: 1 };
    assert!(!SlowPath::new(&mut engine).release_oversize(&request));
    assert_eq!((reserved_mib(engine.stats()), engine.stats().segment.all.current), (60, 0));
    engine.verify().unwrap();
}

#[test]
fn trim_releases_no_more_than_requested() {
    // In whole regions, and in pages of 20 and 2 MiB.
    let policies = [
        (torch(""), 100),
        (Policy::orlop_without_pages(), 100),
        (torch("expandable_segments:True"), 100),
        (Policy::orlop(), 90),
    ];
    for (policy, released) in policies {
        let name = policy.name;
        let mut engine = engine(policy, 1000);
        let blocks: Vec<_> = (0..20).map(|_| engine.allocate(on(20, 0)).unwrap()).collect();
        for (place, &block) in blocks.iter().enumerate() {
            // Every fourth block stays.
            if place % 4 != 0 {
                engine.free(block).unwrap();
            }
        }
        assert_eq!(engine.trim(400 << 20).unwrap(), 0, "{name}");
        assert_eq!(engine.trim(310 << 20).unwrap() >> 20, released, "{name}");
        assert_eq!(reserved_mib(engine.stats()), 400 - released, "{name}");
        engine.verify().unwrap();
        engine.trim(0).unwrap();
        assert_eq!(reserved_mib(engine.stats()), 100, "{name}: as far as live blocks allow");
        engine.verify().unwrap();
    }
}

#[test]
fn nothing_is_released_during_a_capture() {
    let allocator = DeviceAllocator::new(NullDevice::new(Device::cuda(0), 1 << 30), torch("")).into_ref();
    drop(allocator.allocate(&Request::new(30 * MIB)).unwrap());
    allocator.begin_allocate_to_pool((1, 1), StreamFilter::only([StreamId::from_raw(5)])).unwrap();
    allocator.mark_capture_begin();
    let default = StreamId::default_of(Device::cuda(0));
    allocator.with_engine(|engine| engine.backing().set_capturing(default, true));
    assert_eq!(allocator.trim(0), 0);
    allocator.empty_cache().unwrap();
    assert_eq!(allocator.usage().reserved, 30 << 20);
    allocator.mark_capture_end().unwrap();
    assert!(allocator.mark_capture_end().is_err(), "there is none");
    assert_eq!(allocator.trim(20 << 20), 30 << 20);
    assert_eq!(allocator.usage().reserved, 0);
}

/// Neither by garbage collection, nor for a request larger than what is free.
#[test]
fn nothing_is_collected_during_a_capture() {
    let mut engine = engine(torch("garbage_collection_threshold:0.3,max_split_size_mb:32"), 200);
    engine.set_memory_fraction(0.99);
    let blocks = [40, 40, 40].map(|mib| engine.allocate(on(mib, 1)).unwrap());
    blocks.into_iter().for_each(|block| engine.free(block).unwrap());
    engine.mark_capture_begin();
    engine.backing().set_capturing(StreamId::from_raw(1), true);
    engine.allocate(on(100, 1)).unwrap_err();
    engine.allocate(on(100, 2)).unwrap_err();
    assert_eq!((engine.stats().num_device_free, reserved_mib(engine.stats())), (0, 120));
    engine.mark_capture_end().unwrap();
    engine.allocate(on(100, 1)).unwrap();
    assert!(engine.stats().num_device_free > 0);
    engine.verify().unwrap();
}

/// By PyTorch's rules a mark alone changes nothing, and a stream that captures only what is called for it.
#[test]
fn a_capture_is_of_the_streams_that_capture() {
    let mut engine = engine(torch(""), 100);
    let [captured, other] = [1, 2].map(StreamId::from_raw);
    let used_by_other = |engine: &mut Engine<NullDevice>| {
        let block = engine.allocate(on(40, 1)).unwrap();
        engine.record_stream(block, other).unwrap();
        engine.free(block).unwrap();
    };
    engine.mark_capture_begin();
    used_by_other(&mut engine);
    assert_eq!(engine.backing().events(), 1, "no stream captures");
    used_by_other(&mut engine);
    assert_eq!(reserved_mib(engine.stats()), 40, "the event was queried");
    engine.backing().set_capturing(captured, true);
    used_by_other(&mut engine);
    assert_eq!(
        (engine.backing().events(), reserved_mib(engine.stats())),
        (2, 80),
        "neither recorded nor queried"
    );
    engine.allocate(on(80, 2)).unwrap_err();
    assert_eq!(reserved_mib(engine.stats()), 80, "the memory of a stream that captures stays");
    engine.backing().set_capturing(captured, false);
    engine.mark_capture_end().unwrap();
    engine.allocate(on(80, 2)).unwrap();
    engine.verify().unwrap();
}

/// A wait would add one of the two streams to the capture.
#[test]
fn no_stream_waits_for_another_during_a_capture() {
    for policy in [Policy::orlop(), Policy::orlop_without_pages()] {
        let mut engine = engine(policy, 1 << 10);
        let (first, second) = (engine.allocate(on(5, 1)).unwrap(), engine.allocate(on(5, 2)).unwrap());
        engine.free(first).unwrap();
        engine.free(second).unwrap();
        let waits = engine.backing().waits();
        engine.begin_allocate_to_pool((1, 1), StreamFilter::only([StreamId::from_raw(1)])).unwrap();
        engine.mark_capture_begin();
        // In the common pools, and twice in the private one.
        let blocks = [on(5, 3), on(4, 1), on(4, 1)].map(|request| engine.allocate(request).unwrap());
        blocks.into_iter().for_each(|block| engine.free(block).unwrap());
        engine.empty_cache().unwrap();
        assert_eq!(engine.backing().waits(), waits);
        engine.mark_capture_end().unwrap();
        engine.end_allocate_to_pool((1, 1)).unwrap();
        engine.verify().unwrap();
    }
}

/// A region has free chunks of two streams: one takes the other's memory after all streams were waited for,
/// also if the policy does not steal.
#[test]
fn memory_of_several_streams_is_released_together() {
    let mut policy = Policy::orlop_without_pages();
    policy.extensions.steal = false;
    let mut engine = engine(policy, 30);
    let first = engine.allocate(on(5, 1)).unwrap();
    let second = engine.allocate(on(14, 2)).unwrap();
    assert_eq!(reserved_mib(engine.stats()), 20);
    engine.free(first).unwrap();
    engine.free(second).unwrap();
    engine.empty_cache().unwrap();
    engine.verify().unwrap();
    assert_eq!(engine.backing().used(), 0);
}
