//! A device that has addresses, and no memory.

use super::addresses::AddressSpace;
use super::completion_queue::CompletionQueues;
use crate::backing::{BackingError, DeviceBacking, EventId, IdleStreams, MemoryMeter};
use orlop_alloc::Access;
use orlop_core::{Device, StreamId};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

/// A simulated device: a size and addresses, and no memory behind them.
///
/// A region gets the next address, rounded up to 2 MiB, and no address is used twice; or it gets the address
/// that it would have on a [GPU](Self::like_cuda). Requests beyond the size are refused. Events are complete,
/// or not, as the caller says, for all streams or for each.
///
/// Engines run over it at full speed: replays and the comparison with PyTorch use it.
#[derive(Debug)]
pub struct NullDevice {
    device: Device,
    memory: u64,
    state: Mutex<NullState>,
    streams: IdleStreams,
}

#[derive(Debug)]
struct NullState {
    addresses: AddressSpace,
    completions: CompletionQueues,
    meter: MemoryMeter,
    /// The addresses of the next regions, by size.
    expected: HashMap<usize, VecDeque<usize>>,
    /// The addresses of the next reservations.
    reservations: VecDeque<usize>,
    /// The streams that capture.
    capturing: HashSet<StreamId>,
}

impl NullDevice {
    /// Its first address.
    pub const FIRST_ADDRESS: usize = 1 << 32;

    /// Creates a device of `memory` bytes.
    #[must_use]
    pub fn new(device: Device, memory: u64) -> Self {
        Self::with(device, memory, AddressSpace::ascending(Self::FIRST_ADDRESS))
    }

    /// Creates a device of `memory` bytes whose regions are where CUDA's driver places them: from the top of
    /// the address space down.
    ///
    /// Of free blocks that fit equally well an allocator takes the lowest, so replays over such addresses
    /// come closer to what the allocator of a GPU does. Reservations ascend. The release of a region waits
    /// for all streams.
    #[must_use]
    pub fn like_cuda(device: Device, memory: u64) -> Self {
        Self::with(device, memory, AddressSpace::like_cuda())
    }

    /// Creates a device of `memory` bytes whose regions are below all before, from 2^41 bytes above the
    /// [first address](Self::FIRST_ADDRESS) down. Reservations ascend from there.
    #[must_use]
    pub fn descending(device: Device, memory: u64) -> Self {
        Self::with(
            device,
            memory,
            AddressSpace::descending(Self::FIRST_ADDRESS, Self::FIRST_ADDRESS + (1 << 41)),
        )
    }

    /// Creates a device of `memory` bytes whose regions are in the lowest hole that is large enough:
    /// addresses of released regions are used again.
    #[must_use]
    pub fn lowest_hole(device: Device, memory: u64) -> Self {
        Self::with(device, memory, AddressSpace::lowest_hole(Self::FIRST_ADDRESS))
    }

    fn with(device: Device, memory: u64, addresses: AddressSpace) -> Self {
        Self {
            device,
            memory,
            state: Mutex::new(NullState {
                addresses,
                completions: CompletionQueues::default(),
                meter: MemoryMeter::new(memory),
                expected: HashMap::new(),
                reservations: VecDeque::new(),
                capturing: HashSet::new(),
            }),
            streams: IdleStreams::default(),
        }
    }

    /// Sets whether events of streams without a completion queue are complete when they are queried. If not,
    /// they are once they are waited for.
    pub fn set_events_done(&self, done: bool) {
        self.streams.set_events_done(done);
    }

    /// Sets whether a stream captures. At first none does.
    pub fn set_capturing(&self, stream: StreamId, captures: bool) {
        let capturing = &mut self.state().capturing;
        if captures {
            capturing.insert(stream)
        } else {
            capturing.remove(&stream)
        };
    }

    /// Gives a stream a completion queue: from now on its events complete when
    /// [`complete_events`](Self::complete_events) says so, or when they are waited for.
    pub fn track_completions(&self, stream: StreamId) {
        self.state().completions.add(stream);
    }

    /// Returns the number of events in the completion queue of a stream.
    #[must_use]
    pub fn recorded_events(&self, stream: StreamId) -> u64 {
        self.state().completions.recorded(stream)
    }

    /// Returns the number of completed events of a stream with a completion queue.
    #[must_use]
    pub fn completed_events(&self, stream: StreamId) -> u64 {
        self.state().completions.completed(stream)
    }

    /// Completes the first `events` events of a stream with a completion queue.
    pub fn complete_events(&self, stream: StreamId, events: u64) {
        self.state().completions.complete(stream, events);
    }

    /// Returns the number of recorded events.
    #[cfg(test)]
    pub(crate) fn events(&self) -> u64 {
        self.streams.events()
    }

    /// Returns the number of queries for events.
    #[cfg(test)]
    pub(crate) fn queries(&self) -> u64 {
        self.streams.queries()
    }

    /// Returns the number of times a stream was made to wait for another.
    #[cfg(test)]
    pub(crate) fn waits(&self) -> u64 {
        self.streams.waits()
    }

    /// Returns the bytes in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.state().meter.used()
    }

    /// Counts `bytes` bytes as used in the range of `range` bytes at `address`, and keeps later regions and
    /// reservations out of it. Returns `false` if there is no room.
    pub(crate) fn occupy(&self, address: usize, range: usize, bytes: usize) -> bool {
        let mut state = self.state();
        if !state.meter.try_add(bytes) {
            return false;
        }
        let has_room = state.addresses.occupy(address, range);
        if !has_room {
            state.meter.sub(bytes);
        }
        has_room
    }

    /// Sets the address of the next region of `bytes` bytes: the one that a recording shows.
    pub fn expect(&self, address: usize, bytes: usize) {
        self.state().expected.entry(bytes).or_default().push_back(address);
    }

    /// Sets the address of the next reservation: the one that a recording shows.
    pub fn expect_range(&self, address: usize) {
        self.state().reservations.push_back(address);
    }

    fn state(&self) -> std::sync::MutexGuard<'_, NullState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NullState {
    fn expected(&mut self, bytes: usize) -> Option<usize> {
        self.expected.get_mut(&bytes)?.pop_front()
    }

    /// Counts `bytes` bytes more as used.
    fn take(&mut self, bytes: usize) -> Result<(), BackingError> {
        if self.meter.try_add(bytes) { Ok(()) } else { Err(BackingError::OutOfMemory) }
    }
}

// SAFETY: 1. addresses are not used twice at a time, and no memory is accessed there. 2. no work ever runs in
// a stream. 3. what fails has changed nothing.
unsafe impl DeviceBacking for NullDevice {
    fn allocate(&self, bytes: usize) -> Result<usize, BackingError> {
        let mut state = self.state();
        state.take(bytes)?;
        let start = state.expected(bytes).or_else(|| state.addresses.allocate(bytes));
        if start.is_none() {
            state.meter.sub(bytes);
        }
        start.ok_or(BackingError::OutOfMemory)
    }

    unsafe fn release(&self, address: usize, bytes: usize) -> Result<(), BackingError> {
        let mut state = self.state();
        state.meter.sub(bytes);
        state.addresses.release(address, bytes);
        if state.addresses.is_like_cuda() {
            // `cuMemFree` waits for all work of the device.
            state.completions.complete_all();
        }
        Ok(())
    }

    fn page_granularity(&self) -> Option<usize> {
        Some(1)
    }

    fn reserve_addresses(&self, bytes: usize) -> Result<usize, BackingError> {
        let mut state = self.state();
        let start = state.reservations.pop_front().or_else(|| state.addresses.reserve(bytes));
        start.ok_or(BackingError::OutOfMemory)
    }

    unsafe fn release_addresses(&self, _: usize, _: usize) -> Result<(), BackingError> {
        Ok(())
    }

    unsafe fn map(&self, _: usize, bytes: usize, _: usize) -> Result<(), BackingError> {
        self.state().take(bytes)
    }

    unsafe fn unmap(&self, _: usize, bytes: usize, _: usize) -> Result<(), BackingError> {
        self.state().meter.sub(bytes);
        Ok(())
    }

    unsafe fn remap(&self, _: usize, _: usize, _: usize, _: usize) -> Result<(), BackingError> {
        Ok(())
    }

    /// There is nothing to fill.
    unsafe fn zero(&self, _: usize, _: usize, _: StreamId) -> Result<(), BackingError> {
        Ok(())
    }

    fn record(&self, stream: StreamId) -> Result<EventId, BackingError> {
        Ok(self.state().completions.record(stream).unwrap_or_else(|| self.streams.record()))
    }

    fn query(&self, event: EventId) -> Result<bool, BackingError> {
        // A query is counted in any case.
        let is_done = self.streams.query();
        Ok(self.state().completions.is_done(event).unwrap_or(is_done))
    }

    fn synchronize(&self, event: EventId) -> Result<(), BackingError> {
        self.state().completions.synchronize(event);
        Ok(())
    }

    fn wait(&self, _: StreamId, _: EventId) -> Result<(), BackingError> {
        self.streams.wait();
        Ok(())
    }

    fn is_capturing(&self, stream: StreamId) -> bool {
        self.state().capturing.contains(&stream)
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
