//! A device that is addresses and nothing else.

use super::addresses::Places;
use super::completion_queue::ToldStreams;
use crate::backing::IdleStreams;
use crate::backing::MemoryMeter;
use crate::backing::{DeviceBacking, EventId};
use orlop_alloc::Access;
use orlop_core::{Device, StreamId};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// A device without memory behind its addresses: what is gained takes the next address, rounded up to 2 MiB, and no
/// address comes twice; or it lies where it would on a [GPU](Self::like_cuda). It has a size, and refuses what would pass
/// it. Events are done, or not, as it is told, for all streams or for each.
///
/// Engines run over it at full speed: it is what replays and the golden files stand on.
#[derive(Debug)]
pub struct NullDevice {
    device: Device,
    memory: u64,
    state: Mutex<State>,
    streams: IdleStreams,
}

#[derive(Debug)]
struct State {
    places: Places,
    told: ToldStreams,
    held: MemoryMeter,
    remapped: u64,
    /// Where the next allocations of these sizes are.
    expected: HashMap<usize, VecDeque<usize>>,
    /// Where the next ranges of addresses are.
    ranges: VecDeque<usize>,
}

impl NullDevice {
    /// Its first address.
    pub const FIRST_ADDRESS: usize = 1 << 32;

    /// Of so many bytes.
    #[must_use]
    pub fn new(device: Device, memory: u64) -> Self {
        Self::with(device, memory, Places::upwards(Self::FIRST_ADDRESS))
    }

    /// Of so many bytes, whose memory is where CUDA's driver places what an allocator gains of it: from the top of the
    /// addresses down. Of free blocks that fit equally well an allocator takes the lowest, so that replays over such addresses
    /// come closer to what a GPU's allocator does. Ranges of addresses go up. Giving whole regions back waits for all streams.
    #[must_use]
    pub fn like_cuda(device: Device, memory: u64) -> Self {
        Self::with(device, memory, Places::like_cuda())
    }

    fn with(device: Device, memory: u64, places: Places) -> Self {
        Self {
            device,
            memory,
            state: Mutex::new(State {
                places,
                told: ToldStreams::default(),
                held: MemoryMeter::new(memory),
                remapped: 0,
                expected: HashMap::new(),
                ranges: VecDeque::new(),
            }),
            streams: IdleStreams::default(),
        }
    }

    /// From now on events are done when they are asked about, or not until they are waited for.
    pub fn set_events_done(&self, done: bool) {
        self.streams.set_events_done(done);
    }

    /// From now on a stream is only as far as it is [told](Self::pass), or waited for.
    pub fn tell_of(&self, stream: StreamId) {
        self.state().told.tell_of(stream);
    }

    /// How many events were put into a stream that is [told of](Self::tell_of).
    #[must_use]
    pub fn recorded(&self, stream: StreamId) -> u64 {
        self.state().told.recorded(stream)
    }

    /// How many of these events are done.
    #[must_use]
    pub fn passed(&self, stream: StreamId) -> u64 {
        self.state().told.passed(stream)
    }

    /// The first so many events of a stream that is [told of](Self::tell_of) are done.
    pub fn pass(&self, stream: StreamId, events: u64) {
        self.state().told.pass(stream, events);
    }

    /// How many events were asked about.
    #[must_use]
    pub fn queries(&self) -> u64 {
        self.streams.queries()
    }

    /// How many times a stream was made to wait for another.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.streams.waits()
    }

    /// Bytes that are held of it.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.state().held.used()
    }

    /// The most bytes that were held of it.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.state().held.peak()
    }

    /// Bytes of pages that were moved.
    #[must_use]
    pub fn remapped(&self) -> u64 {
        self.state().remapped
    }

    /// Counts so many bytes as held, in a range that begins here; what is given out later lies behind it. False if there
    /// is no room.
    pub(crate) fn hold(&self, address: usize, range: usize, bytes: usize) -> bool {
        let mut state = self.state();
        if !state.held.take(bytes) {
            return false;
        }
        let has_room = state.places.hold(address, range);
        if !has_room {
            state.held.give(bytes);
        }
        has_room
    }

    /// What is gained next in so many bytes is at this address, as it was when a trace was recorded.
    pub fn expect(&self, address: usize, bytes: usize) {
        self.state().expected.entry(bytes).or_default().push_back(address);
    }

    /// The next range of addresses that is reserved begins here, as it did when a trace was recorded.
    pub fn expect_range(&self, address: usize) {
        self.state().ranges.push_back(address);
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn expected(&mut self, bytes: usize) -> Option<usize> {
        self.expected.get_mut(&bytes)?.pop_front()
    }
}

// SAFETY: 1. addresses are not used twice at a time; nobody may touch what is there. 2. nothing ever runs in a stream.
unsafe impl DeviceBacking for NullDevice {
    fn allocate(&self, bytes: usize) -> Option<usize> {
        let mut state = self.state();
        if !state.held.take(bytes) {
            return None;
        }
        let start = state.expected(bytes).or_else(|| state.places.allocate(bytes));
        if start.is_none() {
            state.held.give(bytes);
        }
        start
    }

    unsafe fn release(&self, address: usize, bytes: usize) {
        let mut state = self.state();
        state.held.give(bytes);
        state.places.release(address, bytes);
        if state.places.are_like_cuda() {
            // `cuMemFree` waits for all that the device does.
            state.told.pass_all();
        }
    }

    fn has_pages(&self) -> bool {
        true
    }

    fn reserve_addresses(&self, bytes: usize) -> Option<usize> {
        let mut state = self.state();
        state.ranges.pop_front().or_else(|| state.places.reserve(bytes))
    }

    unsafe fn map(&self, _: usize, bytes: usize, _: usize) -> bool {
        self.state().held.take(bytes)
    }

    unsafe fn unmap(&self, _: usize, bytes: usize, _: usize) {
        self.state().held.give(bytes);
    }

    unsafe fn remap(&self, _: usize, _: usize, bytes: usize, _: usize) -> bool {
        self.state().remapped += bytes as u64;
        true
    }

    /// There is nothing to fill.
    unsafe fn zero(&self, _: usize, _: usize, _: StreamId) -> bool {
        true
    }

    fn record(&self, stream: StreamId) -> EventId {
        self.state().told.record(stream).unwrap_or_else(|| self.streams.record())
    }

    fn is_done(&self, event: EventId) -> bool {
        // It was asked about in any case.
        let done = self.streams.is_done();
        self.state().told.is_done(event).unwrap_or(done)
    }

    fn synchronize(&self, event: EventId) {
        self.state().told.synchronize(event);
    }

    fn wait(&self, _: StreamId, _: EventId) {
        self.streams.wait();
    }

    fn memory(&self) -> u64 {
        self.memory
    }

    fn free_memory(&self) -> Option<u64> {
        Some(self.memory.saturating_sub(self.used()))
    }

    fn device(&self) -> Device {
        self.device
    }

    fn access(&self) -> Access {
        Access::None
    }

    fn name(&self) -> &str {
        "null"
    }
}
