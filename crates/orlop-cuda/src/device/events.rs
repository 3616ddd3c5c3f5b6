//! Events: created once, without timing, and reused.
//!
//! An [`EventId`] is the number of a device state, of a slot in its pool, and of a use of the slot, so that a
//! stale id is recognised. A device that is closed waits for its events (`DeviceState::drop`), which are
//! complete afterwards, as those of slots that were reused; if the wait fails they never are.

use super::known::{DeviceUse, by_key};
use super::{DeviceState, DriverScope, StreamTarget, resolve};
use crate::driver::{abi, call};
use crate::error::{CudaError, failure};
use orlop_alloc::StreamEvent;
use orlop_alloc::engine_support::trace_guarded;
use orlop_core::StreamId;
use orlop_device::{DriverFailure, EventId};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The event of work that is complete: the host's own, and that of streams that are gone.
pub(crate) const COMPLETE: EventId = EventId(u64::MAX);

/// The event of a stream whose device is lost, or was closed while it worked, for memory of another device:
/// it is never complete.
pub(super) const NEVER: EventId = EventId(u64::MAX - 1);

/// The events of a device.
#[derive(Debug, Default)]
pub(crate) struct EventPool {
    slots: Mutex<EventSlots>,
}

#[derive(Debug, Default)]
struct EventSlots {
    slots: Vec<EventSlot>,
    unused: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct EventSlot {
    /// The driver's handle, as a number: it is not accessed here.
    handle: usize,
    generation: u16,
    /// The number of ids that are not forgotten. The last event of a stream that is gone has several.
    users: u32,
}

impl EventSlot {
    fn handle(self) -> abi::Handle {
        std::ptr::without_provenance_mut(self.handle)
    }
}

/// The number of a device state, a generation, and a slot.
fn id_of(device: u16, generation: u16, slot: u32) -> EventId {
    EventId(u64::from(device) << 48 | u64::from(generation) << 32 | u64::from(slot))
}

#[expect(clippy::cast_possible_truncation, reason = "each part has its bits")]
fn parts(event: EventId) -> (u16, u16, u32) {
    ((event.0 >> 48) as u16, (event.0 >> 32) as u16, event.0 as u32)
}

impl EventPool {
    fn slots(&self) -> MutexGuard<'_, EventSlots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an unused event.
    fn take(&self, device: u16) -> Option<(EventId, abi::Handle)> {
        let mut slots = self.slots();
        let slot = slots.unused.pop()?;
        let of = &mut slots.slots[slot as usize];
        of.users = 1;
        Some((id_of(device, of.generation, slot), of.handle()))
    }

    /// Creates an event.
    fn create(&self, scope: &DriverScope<'_>, device: u16) -> Result<(EventId, abi::Handle), CudaError> {
        let mut slots = self.slots();
        let slot = u32::try_from(slots.slots.len()).map_err(|_| CudaError::OutOfMemory { call: "events" })?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: it writes one handle.
        unsafe { call!(scope.driver(), cuEventCreate(&raw mut handle, abi::EVENT_DISABLE_TIMING)) }?;
        slots.slots.push(EventSlot { handle: handle.addr(), generation: 0, users: 1 });
        Ok((id_of(device, 0, slot), handle))
    }

    /// Returns the handle of an event. `None` if it is complete and its slot was reused.
    pub(super) fn handle(&self, event: EventId) -> Option<abi::Handle> {
        let (_, generation, slot) = parts(event);
        let slot = *self.slots().slots.get(slot as usize)?;
        (slot.generation == generation && slot.users > 0).then(|| slot.handle())
    }

    fn share(&self, event: EventId) {
        let (_, generation, slot) = parts(event);
        if let Some(slot) = self.slots().slots.get_mut(slot as usize)
            && slot.generation == generation
            && slot.users > 0
        {
            slot.users += 1;
        }
    }

    pub(super) fn forget(&self, event: EventId) {
        let (_, generation, number) = parts(event);
        let mut slots = self.slots();
        let Some(slot) = slots.slots.get_mut(number as usize) else { return };
        if slot.generation != generation || slot.users == 0 {
            return;
        }
        slot.users -= 1;
        if slot.users == 0 {
            slot.generation = slot.generation.wrapping_add(1);
            slots.unused.push(number);
        }
    }

    /// Waits, on the host, for all events in use.
    pub(super) fn synchronize(&self, scope: &DriverScope<'_>) -> Result<(), CudaError> {
        let used: Vec<EventSlot> = self.slots().slots.iter().filter(|slot| slot.users > 0).copied().collect();
        for slot in used {
            // SAFETY: it was created by this pool, which destroys none before the device ends.
            unsafe { call!(scope.driver(), cuEventSynchronize(slot.handle())) }?;
        }
        Ok(())
    }

    /// Destroys all events, with their device.
    pub(crate) fn destroy(&self, scope: &DriverScope<'_>) {
        for slot in std::mem::take(&mut *self.slots()).slots {
            // SAFETY: it was created by this pool, and is destroyed once. An error means that the context is
            // gone, and the event with it.
            let _gone = unsafe { call!(scope.driver(), cuEventDestroy_v2(slot.handle())) };
        }
    }
}

impl DeviceState {
    /// Returns `true` for an event of this device.
    pub(super) fn owns(&self, event: EventId) -> bool {
        event != COMPLETE && event != NEVER && parts(event).0 == self.key
    }

    /// Records an event in a stream of this device.
    ///
    /// # Safety
    ///
    /// The stream exists during the call, and is this device's.
    pub(crate) unsafe fn record(&self, stream: abi::Handle) -> Result<EventId, CudaError> {
        // It would be an event of the graph.
        self.refuse_capturing(stream, "cuEventRecord")?;
        // SAFETY: guaranteed by the caller.
        unsafe { self.record_anyway(stream) }
    }

    /// As [`DeviceState::record`], also in a stream that captures.
    ///
    /// # Safety
    ///
    /// As there.
    pub(super) unsafe fn record_anyway(&self, stream: abi::Handle) -> Result<EventId, CudaError> {
        let (event, handle) = match self.events.take(self.key) {
            Some(unused) => unused,
            None => self.events.create(&self.enter()?, self.key)?,
        };
        // SAFETY: both exist, and are of this device: guaranteed by the caller, and by the pool.
        let recorded =
            self.on_stream(stream, |driver| unsafe { call!(driver, cuEventRecord(handle, stream)) });
        recorded.inspect_err(|_| self.events.forget(event))?;
        Ok(event)
    }
}

/// The state of an event as far as it is known here.
enum EventState {
    Complete,
    Never,
    /// Its device is being closed by another thread, which waits for it.
    Closing,
    /// The driver knows.
    Recorded(Arc<DeviceState>, abi::Handle),
}

fn state_of(event: EventId) -> EventState {
    match event {
        COMPLETE => return EventState::Complete,
        NEVER => return EventState::Never,
        _ => {}
    }
    match by_key(parts(event).0) {
        DeviceUse::Finished => EventState::Complete,
        DeviceUse::Unfinished => EventState::Never,
        DeviceUse::Closing => EventState::Closing,
        DeviceUse::Open(device) => match device.events.handle(event) {
            Some(handle) => EventState::Recorded(device, handle),
            None => EventState::Complete,
        },
    }
}

/// Records an event in a stream of any device.
pub(crate) fn record(stream: StreamId) -> Result<EventId, CudaError> {
    match resolve(stream)? {
        // SAFETY: the target keeps the stream.
        StreamTarget::Stream { device, handle, .. } => unsafe { device.record(handle) },
        StreamTarget::Ended(event) => {
            share(event);
            Ok(event)
        }
        StreamTarget::Host => Ok(COMPLETE),
    }
}

/// Calls for memory of one device (or of the host, locked through it), which streams of others may use. If
/// another device is lost, memory that it used is not reused, and all other memory goes on: the loss is no
/// failure of this device.
impl DeviceState {
    /// Records an event in a stream of any device.
    pub(crate) fn record_use(&self, stream: StreamId) -> Result<EventId, CudaError> {
        let recorded = record(stream);
        match (recorded, resolve(stream)?) {
            (Err(error @ CudaError::Lost(_)), StreamTarget::Stream { device, .. })
                if device.key != self.key =>
            {
                trace_guarded(|| tracing::error!(%error, %stream, "memory that it used is not reused"));
                Ok(NEVER)
            }
            (recorded, _) => recorded,
        }
    }

    /// Returns `true` if an event of any device is complete, and then forgets it.
    pub(crate) fn query_use(&self, event: EventId) -> Result<bool, CudaError> {
        match query(event) {
            Err(CudaError::Lost(_)) if self.is_elsewhere(event) => Ok(false),
            queried => queried,
        }
    }

    /// Waits on the host for an event of any device, and forgets it.
    pub(crate) fn synchronize_use(&self, event: EventId) -> Result<(), CudaError> {
        synchronize(event).map_err(|error| self.own_failure(error, event))
    }

    /// Makes a stream wait for an event of any device, and forgets the event.
    pub(crate) fn wait_for_use(&self, stream: StreamId, event: EventId) -> Result<(), CudaError> {
        let is_elsewhere = matches!(
            resolve(stream)?, StreamTarget::Stream { device, .. } if device.key != self.key
        );
        wait(stream, event).map_err(|error| match error {
            CudaError::Lost(failure) if is_elsewhere => CudaError::Failed(failure),
            error => self.own_failure(error, event),
        })
    }

    fn is_elsewhere(&self, event: EventId) -> bool {
        event == NEVER || parts(event).0 != self.key
    }

    fn own_failure(&self, error: CudaError, event: EventId) -> CudaError {
        match error {
            CudaError::Lost(failure) if self.is_elsewhere(event) => CudaError::Failed(failure),
            error => error,
        }
    }
}

/// The error of a wait for an event that is never complete.
fn never() -> CudaError {
    CudaError::Lost(failure("an event of a lost device", 999, "CUDA_ERROR_UNKNOWN"))
}

/// Returns `true` if an event is complete, and then forgets it.
pub(crate) fn query(event: EventId) -> Result<bool, CudaError> {
    let is_complete = is_complete(event)?;
    if is_complete {
        forget(event);
    }
    Ok(is_complete)
}

/// Returns `true` if an event is complete.
pub(crate) fn is_complete(event: EventId) -> Result<bool, CudaError> {
    let (device, handle) = match state_of(event) {
        EventState::Complete => return Ok(true),
        EventState::Never | EventState::Closing => return Ok(false),
        EventState::Recorded(device, handle) => (device, handle),
    };
    device.beside_captures(|driver| {
        // SAFETY: the pool destroys no event before its device ends.
        match unsafe { call!(driver, cuEventQuery(handle)) } {
            Err(DriverFailure { code: abi::NOT_READY, .. }) => Ok(false),
            queried => queried.map(|()| true),
        }
    })
}

/// Waits on the host for an event, and forgets it.
pub(crate) fn synchronize(event: EventId) -> Result<(), CudaError> {
    wait_on_host(event)?;
    forget(event);
    Ok(())
}

/// Waits on the host for an event.
fn wait_on_host(event: EventId) -> Result<(), CudaError> {
    let (device, handle) = loop {
        match state_of(event) {
            EventState::Complete => return Ok(()),
            EventState::Never => return Err(never()),
            EventState::Closing => std::thread::yield_now(),
            EventState::Recorded(device, handle) => break (device, handle),
        }
    };
    let scope = device.enter()?;
    // SAFETY: as in `query`.
    Ok(unsafe { call!(scope.driver(), cuEventSynchronize(handle)) }?)
}

/// An event that is forgotten when this is dropped.
#[derive(Debug)]
pub(crate) struct RecordedEvent(EventId);

impl RecordedEvent {
    /// Records an event in a stream of any device.
    pub(crate) fn new(stream: StreamId) -> Result<Self, CudaError> {
        record(stream).map(Self)
    }
}

impl StreamEvent for RecordedEvent {
    fn wait(&self) -> orlop_alloc::Result<()> {
        Ok(wait_on_host(self.0)?)
    }
}

impl Drop for RecordedEvent {
    fn drop(&mut self) {
        forget(self.0);
    }
}

/// Makes a stream wait for an event, on its device, and forgets the event. The host's own stream waits here.
pub(crate) fn wait(stream: StreamId, event: EventId) -> Result<(), CudaError> {
    match resolve(stream)? {
        // What follows that stream later has to come after the event: only the host can wait for it.
        StreamTarget::Host | StreamTarget::Ended(_) => synchronize(event),
        StreamTarget::Stream { device, handle: stream, .. } => {
            let (of, handle) = match state_of(event) {
                EventState::Recorded(of, handle) => (of, handle),
                // The thread that closes its device waits for it, and so does this one.
                _ => return synchronize(event),
            };
            // What a capture records cannot wait for work outside of it.
            device.refuse_capturing(stream, "cuStreamWaitEvent")?;
            device.on_stream(stream, |driver| {
                // SAFETY: the target keeps the stream, and the pool the event.
                unsafe { call!(driver, cuStreamWaitEvent(stream, handle, 0)) }
            })?;
            of.events.forget(event);
            Ok(())
        }
    }
}

/// Forgets an event. Its handle can be recorded again at once: what waits for it waits for the earlier
/// record.
pub(crate) fn forget(event: EventId) {
    if let EventState::Recorded(device, _) = state_of(event) {
        device.events.forget(event);
    }
}

/// Adds a user to an event.
fn share(event: EventId) {
    if let EventState::Recorded(device, _) = state_of(event) {
        device.events.share(event);
    }
}
