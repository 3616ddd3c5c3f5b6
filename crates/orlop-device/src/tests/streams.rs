//! Streams: which uses of a block count.

use super::{MIB, engine, on, reserved_mib, torch};
use crate::{BackingError, DeviceBacking, DriverFailure};
use crate::{DeviceAllocator, DeviceError, DeviceRequest, Engine, EventId, NullDevice, Policy};
use orlop_alloc::{Allocator, Request};
use orlop_core::{Device, StreamId};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

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
fn a_hand_over_takes_at_most_one_event() {
    for policy in [Policy::orlop(), Policy::orlop_without_pages()] {
        let [events, queries, waits] = hand_over(policy, 100);
        assert!(events <= 100 && waits == events, "{events} events, {waits} waits");
        assert_eq!(queries, 0, "the host needs not know");
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

/// One event in each stream serves all blocks that it may still use, and is recorded before the engine grows.
#[test]
fn growth_records_one_event_for_many_blocks() {
    let mut engine = engine(Policy::orlop(), 1000);
    engine.backing().set_events_done(false);
    let blocks: Vec<_> = (0..40).map(|_| engine.allocate(on(2, 1)).unwrap()).collect();
    for block in blocks {
        engine.record_stream(block, StreamId::from_raw(2)).unwrap();
        engine.free(block).unwrap();
    }
    assert_eq!(engine.backing().events(), 0);
    let large = engine.allocate(on(100, 1)).unwrap();
    assert_eq!((engine.backing().events(), engine.backing().waits()), (1, 0));
    engine.backing().set_events_done(true);
    let small = engine.allocate(on(80, 1)).unwrap();
    assert_eq!(engine.stats().reserved_bytes.all.current, 180 << 20, "they are one chunk");
    assert_eq!(engine.backing().events(), 1);
    engine.free(large).unwrap();
    engine.free(small).unwrap();
    engine.verify().unwrap();
}

/// A stream that is destroyed is waited for first, and its memory is the default stream's.
#[test]
fn the_memory_of_a_retired_stream_is_the_default_streams() {
    for policy in
        [Policy::orlop(), Policy::orlop_without_pages(), torch(""), torch("expandable_segments:True")]
    {
        let mut engine = engine(policy, 40);
        let (retired, default) = (StreamId::from_raw(2), StreamId::default_of(Device::cuda(0)));
        engine.backing().set_events_done(false);
        let [own, shared, kept] = [10, 10, 10].map(|mib| engine.allocate(on(mib, 2)).unwrap());
        engine.record_stream(shared, StreamId::from_raw(3)).unwrap();
        engine.free(own).unwrap();
        engine.free(shared).unwrap();
        engine.retire_stream(StreamId::from_raw(7)).unwrap();
        assert_eq!(engine.backing().waits(), 0, "it never had work here");
        engine.retire_stream(retired).unwrap();
        assert_eq!(engine.backing().waits(), 1);
        engine.verify().unwrap();
        let again = engine.allocate(DeviceRequest::new(10 * MIB, default)).unwrap();
        assert_eq!(engine.backing().waits(), 1);
        engine.free(kept).unwrap();
        engine.free(again).unwrap();
        engine.backing().set_events_done(true);
        engine.empty_cache().unwrap();
        assert_eq!(reserved_mib(engine.stats()), 0);
        engine.verify().unwrap();
    }
}

/// Numbers are reused, so that tables have the size of the streams that exist.
#[test]
fn a_million_streams_take_the_memory_of_a_few() {
    let pairs = if cfg!(miri) { 300 } else { 500_000 };
    let mut engine = engine(Policy::orlop(), 64);
    let held = engine.allocate(on(1, 1)).unwrap();
    let (mut after_few, mut max_streams) = (0, 0);
    for count in 0..pairs {
        let [own, other] = [0, 1].map(|place| StreamId::from_raw(100 + 2 * count + place));
        let block = engine.allocate(DeviceRequest::new(MIB, own)).unwrap();
        engine.record_stream(block, other).unwrap();
        if count % 1000 == 0 {
            engine.record_stream(held, own).unwrap();
        }
        engine.retire_stream(other).unwrap();
        engine.free(block).unwrap();
        engine.retire_stream(own).unwrap();
        max_streams = max_streams.max(engine.streams.bytes());
        if count == 200 {
            after_few = engine.metadata();
            engine.verify().unwrap();
        }
    }
    assert!(engine.metadata() <= after_few, "{} bytes, {after_few} after 200", engine.metadata());
    assert!(max_streams < 8192, "{max_streams} bytes");
    engine.free(held).unwrap();
    engine.verify().unwrap();
}

#[test]
fn the_event_of_a_foreign_stream_is_recorded_when_its_block_is_freed() {
    for policy in [Policy::orlop(), torch("")] {
        let mut engine = engine(policy, 64);
        let foreign = StreamId::from_raw(9);
        engine.adopt_foreign_stream(foreign).unwrap();
        engine.backing().set_events_done(false);
        let block = engine.allocate(on(20, 9)).unwrap();
        assert_eq!(engine.backing().waits(), 1, "its memory is the default stream's");
        let events = engine.backing().events();
        engine.free(block).unwrap();
        assert_eq!(engine.backing().events(), events + 1);
        // From here on the stream may be gone.
        let during = engine.allocate(on(20, 1)).unwrap();
        engine.backing().set_events_done(true);
        engine.free(during).unwrap();
        engine.mark_capture_begin();
        assert_eq!(engine.allocate(on(1, 9)), Err(DeviceError::DuringCapture));
        assert_eq!(engine.retire_stream(StreamId::from_raw(1)), Err(DeviceError::DuringCapture));
        engine.mark_capture_end().unwrap();
        engine.empty_cache().unwrap();
        engine.verify().unwrap();
    }
}

/// What is merged when all memory is released goes to a stream that exists.
#[test]
fn no_memory_goes_to_a_stream_that_was_retired() {
    for policy in [Policy::orlop(), Policy::orlop_without_pages()] {
        let mut engine = engine(policy, 64);
        // The first stream of all is retired, and its number vacant.
        for id in 100..200 {
            let block = engine.allocate(on(1, id)).unwrap();
            engine.free(block).unwrap();
            engine.retire_stream(StreamId::from_raw(id)).unwrap();
        }
        let blocks: Vec<_> = (0..12).map(|place| engine.allocate(on(1, 1 + place % 3)).unwrap()).collect();
        let (kept, freed): (Vec<_>, Vec<_>) = (0..).zip(blocks).partition(|(place, _)| place % 6 == 0);
        for (_, block) in freed {
            engine.free(block).unwrap();
        }
        engine.trim(engine.stats().reserved_bytes.all.current - 1).unwrap();
        engine.verify().unwrap();
        for (_, block) in kept {
            engine.free(block).unwrap();
        }
        engine.verify().unwrap();
    }
}

/// A device whose streams can be destroyed: a call that then names one is noted.
#[derive(Debug, Clone, Default)]
struct EndingStreams(Arc<Mutex<EndedState>>);

#[derive(Debug, Default)]
struct EndedState {
    next: usize,
    ended: BTreeSet<u64>,
    misused: Vec<u64>,
    fails_to_record: bool,
    released: usize,
}

impl EndingStreams {
    fn with<R>(&self, act: impl FnOnce(&mut EndedState) -> R) -> R {
        act(&mut self.0.lock().expect("no panic"))
    }

    fn end(&self, stream: u64) {
        self.with(|state| state.ended.insert(stream));
    }

    fn note(&self, stream: StreamId) {
        self.with(|state| {
            if state.ended.contains(&stream.raw()) {
                state.misused.push(stream.raw());
            }
        });
    }

    fn misused(&self) -> Vec<u64> {
        self.with(|state| state.misused.clone())
    }
}

// SAFETY: 1. addresses are handed out once. 2. nothing ever runs in a stream. 3. what fails has no effect.
unsafe impl DeviceBacking for EndingStreams {
    fn allocate(&self, _: usize) -> Result<usize, BackingError> {
        Ok(self.with(|state| {
            state.next += 1 << 40;
            state.next
        }))
    }

    unsafe fn release(&self, _: usize, bytes: usize) -> Result<(), BackingError> {
        self.with(|state| state.released += bytes);
        Ok(())
    }

    fn record(&self, stream: StreamId) -> Result<EventId, BackingError> {
        self.note(stream);
        let failure = DriverFailure { call: "record", code: 2, name: "FAILED" };
        if self.with(|state| state.fails_to_record && stream.raw() == 9) {
            return Err(BackingError::Failed(failure));
        }
        Ok(EventId(0))
    }

    fn query(&self, _: EventId) -> Result<bool, BackingError> {
        Ok(true)
    }

    fn synchronize(&self, _: EventId) -> Result<(), BackingError> {
        Ok(())
    }

    fn wait(&self, stream: StreamId, _: EventId) -> Result<(), BackingError> {
        self.note(stream);
        Ok(())
    }

    fn memory(&self) -> u64 {
        64 << 20
    }

    fn device(&self) -> Device {
        Device::cuda(0)
    }

    fn name(&self) -> &str {
        "ending streams"
    }
}

/// A stream can be adopted as a foreign one while blocks that it used wait for their events.
#[test]
fn nothing_is_recorded_later_in_a_stream_that_was_adopted_after_a_free() {
    let foreign = StreamId::from_raw(9);
    // The stream used a block of another, or had one that another used; recorded now, or later.
    for (policy, own, other) in
        [(Policy::orlop_without_pages(), 1, 9), (Policy::orlop_without_pages(), 9, 1), (torch(""), 9, 1)]
    {
        let device = EndingStreams::default();
        let mut engine = Engine::new(device.clone(), policy);
        let block = engine.allocate(on(20, own)).unwrap();
        engine.record_stream(block, StreamId::from_raw(other)).unwrap();
        engine.free(block).unwrap();
        engine.adopt_foreign_stream(foreign).unwrap();
        device.end(9);
        let [first, second] = [1, 2].map(|stream| engine.allocate(on(20, stream)).unwrap());
        engine.free(first).unwrap();
        engine.free(second).unwrap();
        engine.empty_cache().unwrap();
        engine.verify().unwrap();
        drop(engine);
        assert_eq!(device.misused(), [0; 0], "own {own}, other {other}");
    }
}

/// Free neighbours of several streams become those of a stream that exists.
#[test]
fn streams_merge_into_one_that_exists() {
    for retires in [true, false] {
        let device = EndingStreams::default();
        let mut engine = Engine::new(device.clone(), Policy::orlop_without_pages());
        // The first stream has the first number.
        let kept = engine.allocate(on(1, 9)).unwrap();
        if retires {
            engine.retire_stream(StreamId::from_raw(9)).unwrap();
            for stream in 100..200 {
                let block = engine.allocate(on(1, stream)).unwrap();
                engine.free(block).unwrap();
                engine.retire_stream(StreamId::from_raw(stream)).unwrap();
            }
        } else {
            engine.adopt_foreign_stream(StreamId::from_raw(9)).unwrap();
        }
        engine.free(kept).unwrap();
        device.end(9);
        engine.empty_cache().unwrap();
        // Two free neighbours, of two streams, between blocks.
        let whole = engine.allocate(on(16, 1)).unwrap();
        engine.free(whole).unwrap();
        let [first, second, third, last] = [1; 4].map(|stream| engine.allocate(on(4, stream)).unwrap());
        engine.free(second).unwrap();
        let second = engine.allocate(on(4, 2)).unwrap();
        engine.free(third).unwrap();
        engine.free(second).unwrap();
        engine.empty_cache().unwrap();
        engine.verify().unwrap();
        engine.free(first).unwrap();
        engine.free(last).unwrap();
        engine.verify().unwrap();
        assert_eq!(device.misused(), [0; 0], "retires {retires}");
    }
}

/// If no event can be recorded in a foreign stream, the stream may still run.
#[test]
fn memory_of_a_foreign_stream_without_an_event_is_not_released() {
    for fails_again in [false, true] {
        let device = EndingStreams::default();
        let mut engine = Engine::new(device.clone(), Policy::orlop_without_pages());
        engine.adopt_foreign_stream(StreamId::from_raw(9)).unwrap();
        let block = engine.allocate(on(20, 9)).unwrap();
        device.with(|state| state.fails_to_record = true);
        engine.free(block).unwrap();
        device.with(|state| state.fails_to_record = fails_again);
        assert!(engine.last_failure().is_some());
        drop(engine);
        let released = if fails_again { 0 } else { 20 * MIB };
        assert_eq!(device.with(|state| state.released), released, "it may still run");
    }
}
