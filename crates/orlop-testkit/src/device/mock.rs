//! [`MockDevice`]: a device that checks every call.

use super::failures::{DeviceCall, InjectedFailures};
use super::memory::MockMemory;
use super::timeline::Timeline;
use super::{DeviceFault, WatchedDevice};
use orlop_alloc::Access;
use orlop_core::{Device, StreamId};
use orlop_device::{DeviceBacking, EventId};
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

    /// Panics if it is this call's turn, without a message on standard error.
    fn may_panic(&mut self) {
        if self.failures.panics() {
            resume_unwind(Box::new("a call of the mock device"));
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

    /// Panics in one call in `n` from now on; 0 for none. A call that releases something has released it
    /// before the panic; any other has no effect.
    pub fn panic_one_in(&self, n: usize) {
        self.state().failures.panic_one_in(n);
    }

    /// Begins a call that may panic.
    fn enter(&self) -> MutexGuard<'_, MockState> {
        let mut state = self.state();
        state.may_panic();
        state
    }

    /// Checks that everything was released and every event ended.
    ///
    /// # Errors
    ///
    /// The first fault, or [`DeviceFault::Left`].
    pub fn check_end(&self) -> Result<(), DeviceFault> {
        self.fault()?;
        let state = self.state();
        let (bytes, ranges, events) = (state.memory.used(), state.memory.ranges(), state.timeline.events());
        if (bytes, ranges, events) == (0, 0, 0) {
            Ok(())
        } else {
            Err(DeviceFault::Left { bytes, ranges, events })
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
// a stream, and the clocks of streams are joined when one waits.
unsafe impl DeviceBacking for MockDevice {
    fn allocate(&self, bytes: usize) -> Option<usize> {
        let mut state = self.enter();
        if state.failures.fails(DeviceCall::Allocate) { None } else { state.memory.allocate(bytes) }
    }

    unsafe fn release(&self, address: usize, bytes: usize) {
        let mut state = self.state();
        state.refuse_in_capture("release");
        let MockState { memory, timeline, .. } = &mut *state;
        let released = memory.release(address, bytes, timeline);
        state.note(released);
        state.may_panic();
    }

    fn has_pages(&self) -> bool {
        self.state().has_pages
    }

    fn reserve_addresses(&self, bytes: usize) -> Option<usize> {
        let mut state = self.enter();
        if state.failures.fails(DeviceCall::Reserve) { None } else { state.memory.reserve(bytes) }
    }

    unsafe fn release_addresses(&self, address: usize, bytes: usize) {
        let mut state = self.state();
        state.refuse_in_capture("release_addresses");
        let released = state.memory.release_range(address, bytes);
        state.note(released);
        state.may_panic();
    }

    unsafe fn map(&self, address: usize, bytes: usize, page: usize) -> bool {
        let mut state = self.enter();
        if state.failures.fails(DeviceCall::Map) {
            return false;
        }
        let mapped = state.memory.map(address, bytes, page);
        state.note(mapped)
    }

    unsafe fn unmap(&self, address: usize, bytes: usize, page: usize) {
        let mut state = self.state();
        state.refuse_in_capture("unmap");
        let MockState { memory, timeline, .. } = &mut *state;
        let unmapped = memory.unmap(address, bytes, page, timeline);
        state.note(unmapped);
        state.may_panic();
    }

    unsafe fn remap(&self, from: usize, to: usize, bytes: usize, page: usize) -> bool {
        let mut state = self.enter();
        state.refuse_in_capture("remap");
        let fails = state.failures.fails(DeviceCall::Remap);
        let MockState { memory, timeline, failures, .. } = &mut *state;
        let moved = memory.remap((from, to), (bytes, page), timeline, fails, || failures.toss());
        state.note(moved);
        !fails
    }

    unsafe fn zero(&self, address: usize, bytes: usize, stream: StreamId) -> bool {
        if self.enter().failures.fails(DeviceCall::Zero) {
            return false;
        }
        self.use_bytes(address, bytes, stream, true);
        true
    }

    fn record(&self, stream: StreamId) -> EventId {
        let mut state = self.enter();
        // In a capturing stream it would be a node of the graph.
        state.refuse_in_capture("record");
        state.timeline.record(stream)
    }

    fn is_done(&self, event: EventId) -> bool {
        let mut state = self.enter();
        state.refuse_in_capture("is_done");
        let known = state.timeline.poll(event);
        state.note_event("is_done", event, known.is_some());
        let is_done = known.unwrap_or(true) || !state.failures.fails(DeviceCall::IsDone);
        if is_done {
            state.timeline.complete(event);
        }
        is_done
    }

    fn synchronize(&self, event: EventId) {
        let mut state = self.enter();
        state.refuse_in_capture("synchronize");
        let was_live = state.timeline.complete(event);
        state.note_event("synchronize", event, was_live);
    }

    fn forget(&self, event: EventId) {
        let mut state = self.state();
        let was_live = state.timeline.forget(event);
        state.note_event("forget", event, was_live);
        state.may_panic();
    }

    fn wait(&self, stream: StreamId, event: EventId) {
        let mut state = self.enter();
        // One of the two streams would join the capture, or the capture would end.
        state.refuse_in_capture("wait");
        let was_live = state.timeline.wait(stream, event);
        state.note_event("wait", event, was_live);
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
