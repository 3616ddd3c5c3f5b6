//! Streams: which uses of a block count.

use super::{engine, on, torch};
use crate::{DeviceAllocator, DeviceRequest, Engine, NullDevice, Policy};
use orlop_alloc::{Allocator, Request};
use orlop_core::{Device, StreamId};

/// Returns an allocator over 64 MiB of a device's addresses.
fn allocator_of(device: Device) -> orlop_alloc::AllocatorRef<DeviceAllocator<NullDevice>> {
    DeviceAllocator::new(NullDevice::new(device, 64 << 20), Policy::orlop()).into_ref()
}

#[test]
fn a_devices_default_stream_is_another_stream_than_the_hosts() {
    // Host memory, for example pinned, that a copy on the default stream of a device reads.
    let allocator = allocator_of(Device::CPU);
    let copying = StreamId::default_of(Device::cuda(0));
    let block = allocator.allocate(&Request::new(1000)).unwrap();
    let address = block.as_ptr();
    assert_eq!(block.stream(), StreamId::HOST);
    block.record_stream(copying).unwrap();
    assert!(block.stream_uses().eq([copying]));

    allocator.with_engine(|engine| engine.backing().set_events_done(false));
    drop(block);
    let during = allocator.allocate(&Request::new(1000)).unwrap();
    assert_ne!(during.as_ptr(), address, "the copy may still read it");
    drop(during);
    allocator.with_engine(|engine| engine.backing().set_events_done(true));
    let both = [1, 2].map(|_| allocator.allocate(&Request::new(1000)).unwrap());
    assert!(both.iter().any(|block| block.as_ptr() == address), "the copy is done");
}

#[test]
fn default_streams_of_two_devices_are_two_streams() {
    let allocator = allocator_of(Device::cuda(0));
    let block = allocator.allocate(&Request::new(1000)).unwrap();
    let (own, peer) = (StreamId::default_of(Device::cuda(0)), StreamId::default_of(Device::cuda(1)));
    assert_eq!(block.stream(), own, "a request that names no stream is for the device's default stream");
    block.record_stream(own).unwrap();
    assert!(block.stream_uses().next().is_none());
    block.record_stream(peer).unwrap();
    assert!(block.stream_uses().eq([peer]));
}

/// Two streams hand blocks to each other; each is also used by the other one. Returns the number of events,
/// queries and device-side waits for `rounds` hand-overs, after the engine has warmed up.
#[expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
fn hand_over(policy: Policy, rounds: u64) -> [u64; 3] {
    let mut engine = engine(policy, 64);
    let counts = |engine: &Engine<NullDevice>| {
        let device = engine.backing();
        [device.events(), device.queries(), device.waits()]
    };
    let mut before = [0; 3];
    for round in 0..rounds + 8 {
        if round == 8 {
            before = counts(&engine);
        }
        let (own, other) = (1 + round % 2, 1 + (round + 1) % 2);
        let block = engine.allocate(on(20, own)).unwrap();
        engine.record_stream(block, StreamId::from_raw(other)).unwrap();
        engine.free(block).unwrap();
    }
    let after = counts(&engine);
    [0, 1, 2].map(|place| after[place] - before[place])
}

#[test]
fn a_hand_over_takes_at_most_two_events() {
    for policy in [Policy::orlop(), Policy::orlop_without_pages()] {
        let [events, queries, _] = hand_over(policy, 100);
        assert!(events <= 200 && queries <= 100, "{events} events, {queries} queries");
    }
    let [events, queries, waits] = hand_over(torch(""), 100);
    assert_eq!((events, waits), (100, 0), "PyTorch records when a block is freed");
    assert!(queries >= 100);
}

#[test]
fn one_stream_needs_no_events() {
    let mut engine = engine(Policy::orlop(), 64);
    let mut step = || {
        for bytes in [1, 9, 3, 30, 2, 17] {
            let block = engine.allocate(on(bytes, 1)).unwrap();
            engine.free(block).unwrap();
        }
        (engine.backing().events(), engine.backing().queries())
    };
    // Growth beyond the peak waits for the stream whose pages it moves.
    let warm = step();
    assert!((0..100).all(|_| step() == warm));
}

/// All of a block that is handed over belongs to the stream that waited: the rest of it, too.
#[test]
fn the_rest_of_a_block_that_is_handed_over_stays_with_the_stream_that_waited() {
    let mut engine = engine(Policy::orlop(), 20);
    engine.backing().set_events_done(false);
    let block = engine.allocate(on(20, 1)).unwrap();
    engine.record_stream(block, StreamId::from_raw(2)).unwrap();
    engine.free(block).unwrap();
    let first = engine.allocate(on(8, 3)).unwrap();
    assert_eq!(engine.backing().waits(), 2, "the third stream waits for both");
    let second = engine.allocate(on(8, 3)).unwrap();
    assert_eq!(engine.backing().waits(), 2);
    engine.free(first).unwrap();
    engine.free(second).unwrap();
    engine.verify().unwrap();
}

/// A stream uses the blocks of another, and the host runs ahead: one block is in use while the next is
/// filled, and no more.
#[test]
fn the_host_runs_ahead_by_two_blocks() {
    for (policy, most) in [(Policy::orlop(), 3), (Policy::orlop_without_pages(), 3), (torch(""), 50)] {
        let mut engine = engine(policy, 1000);
        engine.backing().set_events_done(false);
        for _ in 0..50 {
            let block = engine.allocate(on(20, 1)).unwrap();
            engine.record_stream(block, StreamId::from_raw(2)).unwrap();
            engine.free(block).unwrap();
        }
        let blocks = engine.stats().reserved_bytes.all.current / (20 << 20);
        let waits = engine.backing().waits();
        assert!((2..=most).contains(&blocks), "{} has {blocks}", engine.policy().name);
        assert_eq!(waits, 50 - blocks, "{}", engine.policy().name);
        engine.verify().unwrap();
    }
}

/// Of two blocks the older one is taken, whichever is smaller, and whichever stream uses it.
#[test]
fn the_older_block_is_taken() {
    for (sizes, users) in [([22, 20], [2, 2]), ([20, 20], [3, 2]), ([20, 20], [2, 3])] {
        let mut engine = engine(Policy::orlop(), 1000);
        engine.backing().set_events_done(false);
        let blocks = sizes.map(|size| engine.allocate(on(size, 1)).unwrap());
        let oldest = engine.address(blocks[0]);
        for (block, user) in blocks.into_iter().zip(users) {
            engine.record_stream(block, StreamId::from_raw(user)).unwrap();
            engine.free(block).unwrap();
        }
        let taken = engine.allocate(on(20, 1)).unwrap();
        assert_eq!(engine.address(taken), oldest, "{sizes:?} {users:?}");
        assert_eq!(engine.backing().waits(), 1);
        engine.verify().unwrap();
    }
}

/// Blocks of two streams that are used in turn, many of them, with no event complete.
#[test]
fn many_pending_blocks_are_searched_in_part() {
    let mut engine = engine(Policy::orlop(), 4000);
    engine.backing().set_events_done(false);
    let small = |stream| DeviceRequest { bytes: 512, ..on(1, stream) };
    let count = if cfg!(miri) { 100 } else { 20_000 };
    let blocks: Vec<_> = (0..count).map(|_| engine.allocate(small(1)).unwrap()).collect();
    for (block, user) in blocks.into_iter().zip([2, 3].into_iter().cycle()) {
        engine.record_stream(block, StreamId::from_raw(user)).unwrap();
        engine.free(block).unwrap();
    }
    let reserved = engine.stats().reserved_bytes.all.current;
    for _ in 0..count / 2 {
        engine.allocate(small(1)).unwrap();
    }
    assert_eq!(engine.stats().reserved_bytes.all.current, reserved);
    engine.verify().unwrap();
}

/// Where the device has no more memory, a stream waits for the last block, too. The host does not.
#[test]
fn without_memory_one_pending_block_is_handed_over() {
    let mut engine = engine(Policy::orlop(), 20);
    engine.backing().set_events_done(false);
    for round in 1..=20 {
        let block = engine.allocate(on(20, 1)).unwrap();
        engine.record_stream(block, StreamId::from_raw(2)).unwrap();
        engine.free(block).unwrap();
        assert_eq!(engine.backing().waits(), round - 1);
    }
    assert_eq!(engine.stats().num_sync_all_streams, 0);
    engine.verify().unwrap();
}
