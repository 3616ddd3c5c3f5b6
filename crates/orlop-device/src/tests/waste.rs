//! The bound of wasted memory: which regions serve a request, and what a program that repeats itself gets.

use super::{engine, on, reserved_mib};
use crate::{DeviceBlock, DeviceRequest, Engine, NullDevice, Policy};
use orlop_core::StreamId;

fn allocate(engine: &mut Engine<NullDevice>, mib: usize) -> DeviceBlock {
    engine.allocate(on(mib, 0)).expect("there is memory")
}

fn free(engine: &mut Engine<NullDevice>, block: DeviceBlock) {
    engine.free(block).expect("it is live");
    engine.verify().expect("the invariants hold");
}

/// Returns an engine over a device of `mib` MiB with wholly free regions of 10, 20, 30 and 40 MiB.
fn with_free_regions(mib: u64) -> Engine<NullDevice> {
    let mut engine = engine(Policy::orlop_bounded_waste(), mib);
    let blocks = [10, 20, 30, 40].map(|mib| allocate(&mut engine, mib));
    assert_eq!(reserved_mib(engine.stats()), 100, "regions are as large as their requests");
    blocks.into_iter().for_each(|block| free(&mut engine, block));
    engine
}

#[test]
fn a_block_of_half_a_region_gets_all_of_it_within_the_bound() {
    let mut engine = with_free_regions(1 << 20);
    // An eighth of 100 MiB may be wasted, but for an eighth of that: 10.9 MiB.
    let large = allocate(&mut engine, 31);
    assert_eq!(engine.size(large), 40 << 20);
    let next = allocate(&mut engine, 28);
    assert_eq!(engine.size(next), 28 << 20, "with 2 MiB more it would be too much");
    // For it the 30 MiB were released, and 112.5 are reserved at most.
    assert_eq!((reserved_mib(engine.stats()), engine.stats().num_device_free), (98, 1));
    free(&mut engine, large);
    let large = allocate(&mut engine, 40);
    assert_eq!(engine.size(large), 40 << 20);
}

#[test]
fn a_region_that_is_cut_serves_more_requests() {
    let mut engine = with_free_regions(1 << 20);
    let blocks = [4, 3, 3].map(|mib| allocate(&mut engine, mib));
    assert_eq!(blocks.map(|block| engine.size(block) >> 20), [4, 3, 3]);
    assert_eq!((reserved_mib(engine.stats()), engine.stats().num_device_alloc), (100, 4));
    blocks.into_iter().for_each(|block| free(&mut engine, block));
    let whole = allocate(&mut engine, 10);
    assert_eq!((engine.size(whole), engine.stats().num_device_alloc), (10 << 20, 4), "they merged");
}

#[test]
fn regions_for_larger_requests_serve_all_if_there_is_no_memory() {
    for capture in [false, true] {
        let mut engine = engine(Policy::orlop_bounded_waste(), 100);
        let [first, large] = [20, 80].map(|mib| allocate(&mut engine, mib));
        free(&mut engine, large);
        if capture {
            engine.mark_capture_begin();
        }
        let blocks = [5, 60].map(|mib| allocate(&mut engine, mib));
        assert_eq!(reserved_mib(engine.stats()), 100);
        for block in blocks.into_iter().chain([first]) {
            free(&mut engine, block);
        }
    }
}

#[test]
fn a_request_that_fails_does_not_raise_the_peak() {
    let mut engine = with_free_regions(200);
    assert!(engine.allocate(on(1000, 0)).is_err());
    engine.verify().expect("the invariants hold");
    let mut blocks: Vec<DeviceBlock> = Vec::new();
    for mib in [40, 30, 20, 10] {
        blocks.push(allocate(&mut engine, mib));
    }
    blocks.drain(..).for_each(|block| free(&mut engine, block));
    for mib in [41, 31, 21] {
        let block = allocate(&mut engine, mib);
        free(&mut engine, block);
        assert!(reserved_mib(engine.stats()) <= 112, "{}", reserved_mib(engine.stats()));
    }
}

#[test]
fn small_requests_do_not_count() {
    let mut engine = with_free_regions(1 << 20);
    let small = |engine: &mut Engine<NullDevice>| {
        engine.allocate(DeviceRequest::new(4096, StreamId::from_raw(0))).expect("memory")
    };
    let blocks: Vec<DeviceBlock> = (0..2000).map(|_| small(&mut engine)).collect();
    assert_eq!(reserved_mib(engine.stats()), 108, "four regions of 2 MiB");
    blocks.into_iter().for_each(|block| engine.free(block).expect("it is live"));
    engine.verify().expect("the invariants hold");
}

/// Each step needs more regions of other sizes than the bound allows to keep.
#[test]
fn sizes_that_recur_may_reserve_more_until_memory_is_released() {
    let mut engine = engine(Policy::orlop_bounded_waste(), 1 << 20);
    let step = |engine: &mut Engine<NullDevice>| {
        let before = engine.stats().num_device_alloc;
        for mib in [40, 17, 33, 5, 21, 60, 3] {
            let block = allocate(engine, mib);
            free(engine, block);
        }
        engine.stats().num_device_alloc - before
    };
    let calls: Vec<u64> = (0..40).map(|_| step(&mut engine)).collect();
    assert!(calls[1] > 0 && calls[30..].iter().sum::<u64>() == 0, "{calls:?}");
    assert!(reserved_mib(engine.stats()) <= 60 * 2 + 8, "{}", reserved_mib(engine.stats()));
    // What may be reserved is the eighth again.
    engine.empty_cache().expect("no call fails");
    let block = allocate(&mut engine, 60);
    free(&mut engine, block);
    let block = allocate(&mut engine, 20);
    assert!(reserved_mib(engine.stats()) <= 68, "{}", reserved_mib(engine.stats()));
    free(&mut engine, block);
    // And sizes that do not recur get no more than that.
    for step in 0..200 {
        let block = engine.allocate(DeviceRequest::new((3 << 20) + step * 200_000, StreamId::from_raw(0)));
        free(&mut engine, block.expect("memory"));
        assert!(reserved_mib(engine.stats()) <= 68, "{}", reserved_mib(engine.stats()));
    }
}
