//! The peak that limits reserved bytes: since the cache was emptied, whatever the peaks in the statistics
//! are.

use super::{engine, on};
use crate::{DeviceBlock, Engine, NullDevice, Policy};

/// Allocates 200 MiB, keeps a block of ten, and calls `release`. Returns the MiB that are reserved after more
/// requests.
fn after_a_large_phase(release: impl Fn(&mut Engine<NullDevice>)) -> u64 {
    let mut engine = engine(Policy::orlop_without_pages(), 1 << 20);
    let kept = engine.allocate(on(10, 0)).expect("memory");
    let large: Vec<DeviceBlock> = (0..19).map(|_| engine.allocate(on(10, 0)).expect("memory")).collect();
    large.into_iter().for_each(|block| engine.free(block).expect("it is live"));
    release(&mut engine);
    // Blocks that grow: no free chunk fits.
    for mib in 11..60 {
        let block = engine.allocate(on(mib, 0)).expect("memory");
        engine.free(block).expect("it is live");
    }
    engine.free(kept).expect("it is live");
    engine.verify().expect("the invariants hold");
    engine.stats().reserved_bytes.all.current >> 20
}

#[test]
fn the_peak_before_the_cache_was_emptied_does_not_count() {
    // The largest of those blocks has 59 MiB, in a region of a multiple of 2 MiB; 10 MiB are kept.
    assert!(after_a_large_phase(|_| {}) > 100);
    assert!(after_a_large_phase(|engine| engine.empty_cache().unwrap()) <= 72);
    let trim = |mib: u64| {
        move |engine: &mut Engine<NullDevice>| {
            assert!(engine.trim(mib << 20).unwrap() > 0, "regions are free");
        }
    };
    assert!(after_a_large_phase(trim(0)) <= 72);
    assert!(after_a_large_phase(trim(100)) <= 102);
}

#[test]
fn the_peak_of_a_restored_engine_is_that_of_its_blocks() {
    let policy = Policy::orlop_without_pages();
    let mut first = engine(policy.clone(), 1 << 20);
    let blocks: Vec<DeviceBlock> = (0..10).map(|_| first.allocate(on(10, 0)).expect("memory")).collect();
    first.free(blocks[3]).expect("it is live");
    let mut second = engine(policy, 1 << 20);
    let restored = second.restore(&first.segments()).expect("an engine's segments are consistent");
    second.reset_peaks();
    for block in restored.into_values() {
        second.free(block).expect("it is live");
    }
    // 90 MiB were in use when it was restored: that is the limit now.
    second.allocate(on(60, 0)).expect("memory");
    assert!(second.stats().reserved_bytes.all.current <= 100 << 20);
    assert!(second.stats().num_device_free < 9, "restored blocks count for the peak");
}
