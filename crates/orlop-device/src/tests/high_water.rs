//! What is held keeps to what was ever in use, whatever becomes of the peaks in the statistics.

use crate::{DeviceBlock, DeviceRequest, Engine, NullDevice, Policy};
use orlop_core::{Device, StreamId};

const MIB: usize = 1 << 20;

fn engine(policy: &Policy) -> Engine<NullDevice> {
    Engine::new(NullDevice::new(Device::cuda(0), 1 << 40), policy.clone())
}

fn on(mib: usize, stream: u64) -> DeviceRequest {
    DeviceRequest::new(mib * MIB, StreamId::new(stream))
}

/// Uses 200 MiB at once, keeps a block of ten, and gives the rest back to the device or not.
fn after_a_large_phase(policy: &Policy, give_back: impl Fn(&mut Engine<NullDevice>)) -> u64 {
    let mut engine = engine(policy);
    let kept = engine.allocate(on(10, 0)).expect("memory");
    let large: Vec<DeviceBlock> = (0..19).map(|_| engine.allocate(on(10, 0)).expect("memory")).collect();
    large.into_iter().for_each(|block| engine.free(block).expect("it is live"));
    give_back(&mut engine);
    // Blocks that grow: each finds nothing that fits in one piece.
    for mib in 11..60 {
        let block = engine.allocate(on(mib, 0)).expect("memory");
        engine.free(block).expect("it is live");
    }
    engine.free(kept).expect("it is live");
    engine.verify().expect("it holds");
    engine.stats().reserved_bytes.all.current >> 20
}

#[test]
fn what_was_in_use_before_the_cache_was_emptied_counts_no_more() {
    let policy = Policy::orlop_without_pages();
    // 59 MiB are the largest of those blocks, in regions of whole steps of 2 MiB, and 10 are kept.
    assert!(after_a_large_phase(&policy, |_| {}) > 100);
    assert!(after_a_large_phase(&policy, Engine::empty_cache) <= 72);
    let trim = |mib: u64| {
        move |engine: &mut Engine<NullDevice>| assert!(engine.trim(mib << 20) > 0, "regions are free")
    };
    assert!(after_a_large_phase(&policy, trim(0)) <= 72);
    assert!(after_a_large_phase(&policy, trim(100)) <= 102);
}

#[test]
fn a_restored_engine_begins_with_its_blocks() {
    let policy = Policy::orlop_without_pages();
    let mut first = engine(&policy);
    let blocks: Vec<DeviceBlock> = (0..10).map(|_| first.allocate(on(10, 0)).expect("memory")).collect();
    first.free(blocks[3]).expect("it is live");
    let mut second = engine(&policy);
    let restored = second.restore(&first.segments()).expect("they are an engine's");
    second.reset_peaks();
    for block in restored.into_values() {
        second.free(block).expect("it is live");
    }
    // 90 MiB were in use when it was restored, and are held; no more, whatever is asked for now.
    second.allocate(on(60, 0)).expect("memory");
    assert!(second.stats().reserved_bytes.all.current <= 100 << 20);
    assert!(second.stats().num_device_free < 9, "what was restored was in use, and counts");
}
