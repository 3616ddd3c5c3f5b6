//! [`MockDevice`]: a device that checks every call.

use super::failures::{DeviceCall, INJECTED, InjectedFailures};
use super::memory::{GRANULARITY, MockMemory};
use super::timeline::Timeline;
use super::{DeviceFault, WatchedDevice};
use orlop_alloc::Access;
use orlop_core::{Device, StreamId};
use orlop_device::{BackingError, DeviceBacking, EventId};
use std::collections::HashSet;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A device without memory behind its addresses that checks every precondition of [`DeviceBacking`]: what is
/// released is live, pages are whole, events end once, and no memory is released while a stream may still use
/// it. It fails and panics as configured. Clones are handles to the same device.
#[derive(Clone)]
pub struct MockDevice(Arc<Mutex<MockState>>);

#[derive(Debug)]
struct MockState {
    memory: MockMemory,
    timeline: Timeline,
    failures: InjectedFailures,
    has_pages: bool,
    is_capturing: bool,
    /// Whether calls of several threads overlap.
    calls_overlap: bool,
    /// The streams that were destroyed.
    ended: HashSet<StreamId>,
    /// The first fault; later ones are usually consequences.
    fault: Option<DeviceFault>,
}

impl MockState {
    fn note<T: Default>(&mut self, result: Result<T, DeviceFault>) -> T {
        result.unwrap_or_else(|fault| {
            self.fault.get_or_insert(fault);
            T::default()
        })
    }

    fn note_event(&mut self, call: &'static str, EventId(event): EventId, was_live: bool) {
        if !was_live {
            self.fault.get_or_insert(DeviceFault::EventOver { call, event });
        }
    }

    /// Returns an injected error. Panics, without a message on standard error, if the error is a panic.
    fn fail(&self, error: BackingError) -> BackingError {
        if error == BackingError::Panicked {
            resume_unwind(Box::new("a call of the mock device"));
        }
        error
    }

    fn check_stream(&mut self, call: &'static str, stream: StreamId) {
        if self.ended.contains(&stream) {
            self.fault.get_or_insert(DeviceFault::StreamOver { call, stream: stream.raw() });
        }
    }

    fn refuse_in_capture(&mut self, call: &'static str) {
        if self.is_capturing {
            self.fault.get_or_insert(DeviceFault::InCapture { call });
        }
    }
}

impl MockDevice {
    /// Creates a device of `memory` bytes, with pages that can be mapped and moved if `has_pages`. Random
    /// failures follow from the seed.
    #[must_use]
    pub fn new(memory: u64, has_pages: bool, seed: u64) -> Self {
        Self(Arc::new(Mutex::new(MockState {
            memory: MockMemory::new(memory),
            timeline: Timeline::default(),
            failures: InjectedFailures::new(seed),
            has_pages,
            is_capturing: false,
            calls_overlap: false,
            ended: HashSet::new(),
            fault: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, MockState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails one in `n` of these calls from now on; 0 for none.
    pub fn fail_one_in(&self, call: DeviceCall, n: usize) {
        self.state().failures.one_in(call, n);
    }

    /// Panics in one call in `n` from now on; 0 for none.
    pub fn panic_one_in(&self, n: usize) {
        self.state().failures.panic_one_in(n);
    }

    /// Fails the `n`th call from now on, from 1, with this error. It has no effect, but for a release:
    /// what it was to release may never be used or released again. After [`BackingError::Lost`] only
    /// `forget` may be called.
    pub fn fail_nth(&self, n: u64, error: BackingError) {
        self.state().failures.nth(n, error);
    }

    /// Notes that calls of several threads overlap: one can arrive after another has lost the device, and
    /// before that has returned. It fails with the same error.
    pub fn let_calls_overlap(&self) {
        self.state().calls_overlap = true;
    }

    /// Returns the number of calls that could have failed so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state().failures.calls()
    }

    /// Returns `true` if a call lost the device.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.state().failures.is_lost()
    }

    /// Begins a call, which may fail.
    fn enter(&self, call: &'static str) -> Result<MutexGuard<'_, MockState>, BackingError> {
        let (state, error) = self.begin(call);
        match error {
            None => Ok(state),
            Some(error) => Err(state.fail(error)),
        }
    }

    /// Begins a call. Returns the error with which it is to fail.
    fn begin(&self, call: &'static str) -> (MutexGuard<'_, MockState>, Option<BackingError>) {
        let mut state = self.state();
        if state.failures.is_lost() && !state.calls_overlap {
            state.fault.get_or_insert(DeviceFault::Lost { call });
        }
        let error = state.failures.next();
        (state, error)
    }

    /// Releases something, or leaks it if the call fails.
    fn release_or_leak(
        &self,
        call: &'static str,
        release: impl FnOnce(&mut MockMemory, &Timeline) -> Result<(), DeviceFault>,
        leak: impl FnOnce(&mut MockMemory),
    ) -> Result<(), BackingError> {
        let (mut state, error) = self.begin(call);
        state.refuse_in_capture(call);
        let MockState { memory, timeline, .. } = &mut *state;
        match error {
            None => {
                let released = release(memory, timeline);
                state.note(released);
                Ok(())
            }
            Some(error) => {
                if !matches!(error, BackingError::Capturing | BackingError::Unsupported) {
                    leak(memory);
                }
                Err(state.fail(error))
            }
        }
    }

    /// Checks that everything was released, except what could not be, and every event ended.
    ///
    /// # Errors
    ///
    /// The first fault, or [`DeviceFault::Left`].
    pub fn check_end(&self) -> Result<(), DeviceFault> {
        self.fault()?;
        let state = self.state();
        // Nothing can be released of a device that is lost.
        let (bytes, ranges) = if state.failures.is_lost() { (0, 0) } else { state.memory.left() };
        match (bytes, ranges, state.timeline.events()) {
            (0, 0, 0) => Ok(()),
            (bytes, ranges, events) => Err(DeviceFault::Left { bytes, ranges, events }),
        }
    }

    /// Returns the reserved bytes.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.state().memory.used()
    }

    fn use_bytes(&self, address: usize, bytes: usize, stream: StreamId, is_first: bool) {
        let mut state = self.state();
        let work = state.timeline.submit(stream);
        let MockState { memory, timeline, .. } = &mut *state;
        let used = memory.use_bytes(address..address + bytes, work, timeline, is_first);
        state.note(used);
    }
}

impl WatchedDevice for MockDevice {
    /// The work must not run before earlier work on the same memory is done.
    fn begin_use(&self, address: usize, bytes: usize, stream: StreamId) {
        self.use_bytes(address, bytes, stream, true);
    }

    /// The order of the work is the user's responsibility.
    fn go_on(&self, address: usize, bytes: usize, stream: StreamId) {
        self.use_bytes(address, bytes, stream, false);
    }

    /// During a capture, no event may be recorded, queried or waited for, and no memory may be released or
    /// moved.
    fn set_capturing(&self, is_capturing: bool) {
        self.state().is_capturing = is_capturing;
    }

    fn end_stream(&self, stream: StreamId) {
        self.state().ended.insert(stream);
    }

    fn fault(&self) -> Result<(), DeviceFault> {
        self.state().fault.map_or(Ok(()), Err)
    }

    fn reserved(&self) -> u64 {
        self.used()
    }
}

impl fmt::Debug for MockDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockDevice").field("used", &self.used()).finish_non_exhaustive()
    }
}

// SAFETY: 1. addresses are handed out once, and nothing may access the memory there. 2. nothing ever runs in
// a stream, and the clocks of streams are joined when one waits. 3. calls fail before they change anything.
unsafe impl DeviceBacking for MockDevice {
    fn allocate(&self, bytes: usize) -> Result<usize, BackingError> {
        let mut state = self.enter("allocate")?;
        let address =
            if state.failures.fails(DeviceCall::Allocate) { None } else { state.memory.allocate(bytes) };
        address.ok_or(BackingError::OutOfMemory)
    }

    unsafe fn release(&self, address: usize, bytes: usize) -> Result<(), BackingError> {
        self.release_or_leak(
            "release",
            |memory, timeline| memory.release(address, bytes, timeline),
            |memory| memory.leak(address, bytes),
        )
    }

    fn page_granularity(&self) -> Option<usize> {
        self.state().has_pages.then_some(GRANULARITY)
    }

    fn reserve_addresses(&self, bytes: usize) -> Result<usize, BackingError> {
        let mut state = self.enter("reserve_addresses")?;
        let address =
            if state.failures.fails(DeviceCall::Reserve) { None } else { state.memory.reserve(bytes) };
        address.ok_or(BackingError::OutOfMemory)
    }

    unsafe fn release_addresses(&self, address: usize, bytes: usize) -> Result<(), BackingError> {
        self.release_or_leak(
            "release_addresses",
            |memory, _| memory.release_range(address, bytes),
            |memory| memory.leak_range(address),
        )
    }

    unsafe fn map(&self, address: usize, bytes: usize, page: usize) -> Result<(), BackingError> {
        let mut state = self.enter("map")?;
        if state.failures.fails(DeviceCall::Map) {
            return Err(BackingError::OutOfMemory);
        }
        let mapped = state.memory.map(address, bytes, page);
        if state.note(mapped) { Ok(()) } else { Err(BackingError::OutOfMemory) }
    }

    unsafe fn unmap(&self, address: usize, bytes: usize, page: usize) -> Result<(), BackingError> {
        self.release_or_leak(
            "unmap",
            |memory, timeline| memory.unmap(address, bytes, page, timeline),
            |memory| memory.leak(address, bytes),
        )
    }

    unsafe fn remap(&self, from: usize, to: usize, bytes: usize, page: usize) -> Result<(), BackingError> {
        let (mut state, mut error) = self.begin("remap");
        state.refuse_in_capture("remap");
        if error.is_none() && state.failures.fails(DeviceCall::Remap) {
            error = Some(BackingError::Failed(INJECTED));
        }
        let MockState { memory, timeline, failures, .. } = &mut *state;
        let moved = memory.remap((from, to), (bytes, page), timeline, error.is_some(), || failures.toss());
        state.note(moved);
        error.map_or(Ok(()), |error| Err(state.fail(error)))
    }

    unsafe fn zero(&self, address: usize, bytes: usize, stream: StreamId) -> Result<(), BackingError> {
        if self.enter("zero")?.failures.fails(DeviceCall::Zero) {
            return Err(BackingError::Unsupported);
        }
        self.use_bytes(address, bytes, stream, true);
        Ok(())
    }

    fn record(&self, stream: StreamId) -> Result<EventId, BackingError> {
        let mut state = self.enter("record")?;
        // In a capturing stream it would be a node of the graph.
        state.refuse_in_capture("record");
        state.check_stream("record", stream);
        Ok(state.timeline.record(stream))
    }

    fn query(&self, event: EventId) -> Result<bool, BackingError> {
        let mut state = self.enter("query")?;
        state.refuse_in_capture("query");
        let known = state.timeline.poll(event);
        state.note_event("query", event, known.is_some());
        let is_done = known.unwrap_or(true) || !state.failures.fails(DeviceCall::Query);
        if is_done {
            state.timeline.complete(event);
        }
        Ok(is_done)
    }

    fn synchronize(&self, event: EventId) -> Result<(), BackingError> {
        let mut state = self.enter("synchronize")?;
        state.refuse_in_capture("synchronize");
        let was_live = state.timeline.complete(event);
        state.note_event("synchronize", event, was_live);
        Ok(())
    }

    fn forget(&self, event: EventId) {
        let mut state = self.state();
        let was_live = state.timeline.forget(event);
        state.note_event("forget", event, was_live);
    }

    fn wait(&self, stream: StreamId, event: EventId) -> Result<(), BackingError> {
        let mut state = self.enter("wait")?;
        // One of the two streams would join the capture, or the capture would end.
        state.refuse_in_capture("wait");
        state.check_stream("wait", stream);
        let was_live = state.timeline.wait(stream, event);
        state.note_event("wait", event, was_live);
        Ok(())
    }

    fn memory(&self) -> u64 {
        self.state().memory.capacity()
    }

    fn free_memory(&self) -> Option<u64> {
        let state = self.state();
        Some(state.memory.capacity() - state.memory.used())
    }

    fn device(&self) -> Device {
        Device::cuda(0)
    }

    fn access(&self) -> Access {
        Access::Device
    }

    fn name(&self) -> &str {
        "mock"
    }
}
