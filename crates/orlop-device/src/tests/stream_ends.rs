//! Streams that end: retired ones, and foreign ones.

use super::{MIB, engine, on, reserved_mib, torch};
use crate::{BackingError, DeviceBacking, DriverFailure};
use crate::{DeviceAllocator, DeviceError, DeviceRequest, Engine, EventId, Policy};
use orlop_alloc::{Allocator, Request};
use orlop_core::{Device, StreamId};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

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
fn a_hundred_thousand_streams_take_the_memory_of_a_few() {
    let pairs = if cfg!(miri) { 300 } else { 50_000 };
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
    // The uses of the held block are cleared in batches.
    assert!(engine.metadata() < after_few + 512, "{} bytes, {after_few} after 200", engine.metadata());
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
        engine.backing().set_capturing(StreamId::from_raw(1), true);
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
    /// The streams in which events were recorded.
    recorded: Vec<u64>,
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
        self.with(|state| state.recorded.push(stream.raw()));
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

    fn has_ended(&self, stream: StreamId) -> bool {
        self.with(|state| state.ended.contains(&stream.raw()))
    }

    fn name(&self) -> &str {
        "ending streams"
    }
}

/// A block can be freed after a stream was retired that used it: what the default stream waited for is over
/// when the default stream's work is.
#[test]
fn a_stream_that_used_live_blocks_can_be_retired() {
    for policy in [Policy::orlop(), Policy::orlop_without_pages(), torch("")] {
        for frees_before in [false, true] {
            let device = EndingStreams::default();
            let allocator = DeviceAllocator::new(device.clone(), policy.clone()).into_ref();
            let (own, used) = (StreamId::from_raw(5), StreamId::from_raw(6));
            let blocks = [1000, 5 << 20].map(|bytes| {
                let block = allocator.allocate(&Request::new(bytes).stream(own)).unwrap();
                block.record_stream(used).unwrap();
                block
            });
            let mut blocks = blocks.into_iter();
            if frees_before {
                drop(blocks.next());
            }
            allocator.retire_stream(used).unwrap();
            assert!(device.with(|state| state.recorded.contains(&6)), "it is waited for");
            device.end(6);
            drop(blocks);
            // Their events are recorded at the latest when other memory is wanted.
            let others = [30, 40].map(|mib| allocator.allocate(&Request::new(mib << 20)).unwrap());
            drop(others);
            allocator.empty_cache().unwrap();
            assert_eq!((device.misused(), allocator.usage().reserved), (vec![], 0));
            allocator.verify().unwrap();
        }
    }
}

/// Its id counts as a new stream's only once it has requests again.
#[test]
fn a_stream_that_was_retired_can_come_back() {
    let mut engine = Engine::new(EndingStreams::default(), Policy::orlop());
    let block = engine.allocate(on(1, 5)).unwrap();
    let default = StreamId::default_of(Device::cuda(0));
    let used = |engine: &Engine<_>| {
        engine.users(block.0).map(|number| engine.streams.id(number)).collect::<Vec<_>>()
    };
    let first = engine.allocate(on(1, 6)).unwrap();
    engine.free(first).unwrap();
    engine.retire_stream(StreamId::from_raw(6)).unwrap();
    engine.record_stream(block, StreamId::from_raw(6)).unwrap();
    assert_eq!(used(&engine), [default]);
    let again = engine.allocate(on(1, 6)).unwrap();
    engine.free(again).unwrap();
    engine.record_stream(block, StreamId::from_raw(6)).unwrap();
    assert_eq!(used(&engine).len(), 2);
    engine.free(block).unwrap();
    engine.verify().unwrap();
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

/// Used or not, a stream that has ended has no class; the default stream keeps its own.
#[test]
fn the_classes_of_ended_streams_are_forgotten() {
    let device = EndingStreams::default();
    let mut engine = Engine::new(device.clone(), Policy::orlop_without_pages());
    let default = StreamId::default_of(Device::cuda(0));
    engine.set_reserve_class(default, "kept");
    engine.retire_stream(default).unwrap();
    let count = if cfg!(miri) { 200 } else { 10_000 };
    for id in (100..).take(count) {
        let stream = StreamId::from_raw(id);
        engine.set_reserve_class(stream, "ended");
        if id % 100 == 0 {
            let block = engine.allocate(on(1, id)).unwrap();
            engine.free(block).unwrap();
        }
        engine.retire_stream(stream).unwrap();
    }
    assert!(engine.reserve_classes.keys().eq([&default]));
    // Their owner retires none of these: the device knows their ends.
    for id in 20_000..20_100 {
        engine.set_reserve_class(StreamId::from_raw(id), "ended");
        if id % 4 == 0 {
            device.end(id);
        } else {
            let block = engine.allocate(on(1, id)).unwrap();
            engine.free(block).unwrap();
            device.end(id);
        }
    }
    let block = engine.allocate(on(1, 1)).unwrap();
    engine.free(block).unwrap();
    assert!(engine.reserve_classes.len() < 50, "{}", engine.reserve_classes.len());
    engine.verify().unwrap();
}
