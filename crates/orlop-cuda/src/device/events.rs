//! Events: created once, without timing, and reused.
//!
//! An [`EventId`] is the number of a device state, of a slot in its pool, and of a use of the slot, so that a
//! stale id is recognised. A device that is gone waited for all its work before it went
//! (`DeviceState::drop`), so its events, and those of slots that were reused, are complete.

use super::{DeviceState, DriverScope, StreamTarget, device_by_key, resolve};
use crate::driver::{abi, call};
use crate::error::{CudaError, failure};
use orlop_alloc::engine_support::trace_guarded;
use orlop_core::StreamId;
use orlop_device::EventId;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The event of work that is complete: the host's own, and that of streams that are gone.
pub(crate) const COMPLETE: EventId = EventId(u64::MAX);

/// The event of a stream whose device is lost, for memory of another device: it is never complete.
const NEVER: EventId = EventId(u64::MAX - 1);

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

    /// Takes an unused event, or creates one.
    fn take(&self, scope: &DriverScope<'_>, device: u16) -> Result<(EventId, abi::Handle), CudaError> {
        let mut slots = self.slots();
        if let Some(slot) = slots.unused.pop() {
            let of = &mut slots.slots[slot as usize];
            of.users = 1;
            return Ok((id_of(device, of.generation, slot), of.handle()));
        }
        let slot = u32::try_from(slots.slots.len()).map_err(|_| CudaError::OutOfMemory { call: "events" })?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: it writes one handle.
        unsafe { call!(scope.driver(), cuEventCreate(&raw mut handle, abi::EVENT_DISABLE_TIMING)) }?;
        slots.slots.push(EventSlot { handle: handle.addr(), generation: 0, users: 1 });
        Ok((id_of(device, 0, slot), handle))
    }

    /// Returns the handle of an event. `None` if it is complete and its slot was reused.
    fn handle(&self, event: EventId) -> Option<abi::Handle> {
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

    fn forget(&self, event: EventId) {
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
    /// Records an event in a stream of this device.
    ///
    /// # Safety
    ///
    /// The stream exists during the call, and is this device's.
    pub(crate) unsafe fn record(&self, stream: abi::Handle) -> Result<EventId, CudaError> {
        let scope = self.enter()?;
        let (event, handle) = self.events.take(&scope, self.key)?;
        // SAFETY: both exist, and are of the current context: guaranteed by the caller, and by the pool.
        let result = unsafe { call!(scope.driver(), cuEventRecord(handle, stream)) };
        if let Err(failure) = result {
            self.events.forget(event);
            return Err(failure.into());
        }
        Ok(event)
    }
}

/// Returns the device of an event, and its handle. `None` if it is complete.
fn find(event: EventId) -> Option<(Arc<DeviceState>, abi::Handle)> {
    if event == COMPLETE {
        return None;
    }
    let device = device_by_key(parts(event).0)?;
    let handle = device.events.handle(event)?;
    Some((device, handle))
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

/// Returns `true` if a stream captures, or if the driver does not say.
pub(crate) fn is_capturing(stream: StreamId) -> bool {
    match resolve(stream) {
        Ok(StreamTarget::Stream { device, handle, .. }) => {
            device.enter().and_then(|scope| scope.is_capturing(handle)).unwrap_or(true)
        }
        Ok(StreamTarget::Ended(_) | StreamTarget::Host) => false,
        Err(_) => true,
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
    if event == NEVER {
        return Ok(false);
    }
    let Some((device, handle)) = find(event) else { return Ok(true) };
    let scope = device.enter()?;
    // SAFETY: the pool destroys no event before its device ends.
    let code = unsafe { (scope.driver().symbols.cuEventQuery)(handle) };
    if code == abi::NOT_READY {
        return Ok(false);
    }
    scope.driver().check("cuEventQuery", code)?;
    Ok(true)
}

/// Waits on the host for an event, and forgets it.
pub(crate) fn synchronize(event: EventId) -> Result<(), CudaError> {
    if event == NEVER {
        return Err(never());
    }
    let Some((device, handle)) = find(event) else { return Ok(()) };
    let scope = device.enter()?;
    // SAFETY: as in `query`.
    unsafe { call!(scope.driver(), cuEventSynchronize(handle)) }?;
    device.events.forget(event);
    Ok(())
}

/// Makes a stream wait for an event, on its device, and forgets the event. The host's own stream waits here.
pub(crate) fn wait(stream: StreamId, event: EventId) -> Result<(), CudaError> {
    if event == NEVER {
        return Err(never());
    }
    match resolve(stream)? {
        // What follows that stream later has to come after the event: only the host can wait for it.
        StreamTarget::Host | StreamTarget::Ended(_) => synchronize(event),
        StreamTarget::Stream { device, handle: stream, .. } => {
            let Some((of, handle)) = find(event) else { return Ok(()) };
            let scope = device.enter()?;
            // SAFETY: the target keeps the stream, and the pool the event.
            unsafe { call!(scope.driver(), cuStreamWaitEvent(stream, handle, 0)) }?;
            of.events.forget(event);
            Ok(())
        }
    }
}

/// Forgets an event. Its handle can be recorded again at once: what waits for it waits for the earlier
/// record.
pub(crate) fn forget(event: EventId) {
    if event != COMPLETE
        && event != NEVER
        && let Some(device) = device_by_key(parts(event).0)
    {
        device.events.forget(event);
    }
}

/// Adds a user to an event.
fn share(event: EventId) {
    if event != COMPLETE
        && let Some(device) = device_by_key(parts(event).0)
    {
        device.events.share(event);
    }
}
