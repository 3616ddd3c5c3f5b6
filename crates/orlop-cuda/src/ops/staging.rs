//! Copies of pageable host memory, through pinned buffers.
//!
//! The driver copies pageable memory too, but it waits for the stream first. Here the host copies a part into
//! one half of a pinned buffer while the device copies the other half. A source has been read when the call
//! returns; the device may still copy from the buffer, which is not written again before that is done.

use super::OnStream;
use super::in_context::{ContextResources, PinnedBuffer};
use crate::device::{self, CudaDevice};
use crate::driver::{abi, call};
use crate::error::CudaError;
use orlop_device::EventId;
use orlop_sync::Mutex;
use std::ptr::NonNull;
use std::sync::Arc;

/// The bytes of one half of a buffer.
const HALF: usize = 1 << 20;

/// The buffers of a device that no call uses now: as many as calls have used at one time are kept.
#[derive(Debug)]
pub(super) struct StagingBuffers {
    device: CudaDevice,
    resources: Arc<ContextResources>,
    unused: Mutex<Vec<StagingBuffer>>,
}

/// A pinned buffer of two halves.
#[derive(Debug)]
struct StagingBuffer {
    device: CudaDevice,
    resources: Arc<ContextResources>,
    memory: PinnedBuffer,
    /// The events of the device's last use of each half.
    busy: [Option<EventId>; 2],
    /// Whether the device may use it without an event: a call has not returned, or has failed.
    is_in_doubt: bool,
}

impl StagingBuffers {
    pub(super) fn new(device: &CudaDevice, resources: &Arc<ContextResources>) -> Self {
        Self { device: device.clone(), resources: Arc::clone(resources), unused: Mutex::default() }
    }

    /// Returns the bytes of the buffers that no call uses now.
    pub(super) fn kept_bytes(&self) -> usize {
        self.unused.lock().iter().map(|buffer| buffer.memory.bytes).sum()
    }

    /// Calls `work` with a buffer.
    fn with<R>(
        &self,
        on: &OnStream<'_>,
        work: impl FnOnce(&mut StagingBuffer) -> Result<R, CudaError>,
    ) -> Result<R, CudaError> {
        on.scope.refuse_pageable(on.handle)?;
        let unused = self.unused.lock().pop();
        let mut buffer = unused.map_or_else(|| StagingBuffer::new(self), Ok)?;
        buffer.is_in_doubt = true;
        // A buffer whose copy failed is freed.
        let result = work(&mut buffer)?;
        buffer.is_in_doubt = false;
        self.unused.lock().push(buffer);
        Ok(result)
    }

    /// # Safety
    ///
    /// `DeviceOps::copy`; the source is valid during the call.
    pub(super) unsafe fn copy_in(
        &self,
        on: &OnStream<'_>,
        to: usize,
        from: NonNull<u8>,
        bytes: usize,
    ) -> Result<(), CudaError> {
        self.with(on, |buffer| {
            for (number, offset) in (0..bytes).step_by(HALF).enumerate() {
                let part = HALF.min(bytes - offset);
                let half = buffer.idle_half(number % 2)?;
                // SAFETY: inside the source (guaranteed by the caller).
                let from = unsafe { from.add(offset) };
                // SAFETY: both are host memory of this many bytes; the device does not read this half now.
                unsafe { half.copy_from_nonoverlapping(from, part) };
                // SAFETY: inside the destination; the half is kept until the event.
                unsafe { on.copy_in(to + offset, half, part) }?;
                // SAFETY: the stream exists during the call.
                unsafe { buffer.mark_busy(number % 2, on) }?;
            }
            Ok(())
        })
    }

    /// # Safety
    ///
    /// `DeviceOps::copy`; the destination is valid during the call.
    pub(super) unsafe fn copy_out(
        &self,
        on: &OnStream<'_>,
        to: NonNull<u8>,
        from: usize,
        bytes: usize,
    ) -> Result<(), CudaError> {
        self.with(on, |buffer| {
            let mut waiting: Option<(usize, usize, usize)> = None;
            for (number, offset) in (0..bytes).step_by(HALF).enumerate() {
                let part = HALF.min(bytes - offset);
                let half = buffer.idle_half(number % 2)?;
                // SAFETY: inside the source; the half is kept until the event.
                unsafe { on.copy_out(half, from + offset, part) }?;
                // SAFETY: the stream exists during the call.
                unsafe { buffer.mark_busy(number % 2, on) }?;
                if let Some(ready) = waiting.replace((number % 2, offset, part)) {
                    // SAFETY: inside the destination.
                    unsafe { buffer.take_out(ready, to) }?;
                }
            }
            match waiting {
                // SAFETY: inside the destination.
                Some(ready) => unsafe { buffer.take_out(ready, to) },
                None => Ok(()),
            }
        })
    }
}

impl StagingBuffer {
    fn new(of: &StagingBuffers) -> Result<Self, CudaError> {
        of.resources.free_refused(&of.device);
        let (mut start, bytes) = (std::ptr::null_mut(), 2 * HALF);
        let scope = of.device.state().enter()?;
        // SAFETY: it writes one pointer.
        unsafe { call!(scope.driver(), cuMemHostAlloc(&raw mut start, bytes, abi::HOST_ALLOC_PORTABLE)) }?;
        drop(scope);
        if start.is_null() {
            return Err(CudaError::OutOfMemory { call: "cuMemHostAlloc" });
        }
        let memory = PinnedBuffer { address: start.expose_provenance(), bytes };
        let (device, resources) = (of.device.clone(), Arc::clone(&of.resources));
        Ok(Self { device, resources, memory, busy: [None; 2], is_in_doubt: false })
    }

    /// Waits until the device does not use a half any more.
    fn idle_half(&mut self, half: usize) -> Result<NonNull<u8>, CudaError> {
        if let Some(event) = self.busy[half] {
            device::synchronize(event)?;
            self.busy[half] = None;
        }
        let start = std::ptr::with_exposed_provenance_mut(self.memory.address + half * HALF);
        NonNull::new(start).ok_or(CudaError::OutOfMemory { call: "cuMemHostAlloc" })
    }

    /// # Safety
    ///
    /// The stream exists during the call.
    unsafe fn mark_busy(&mut self, half: usize, on: &OnStream<'_>) -> Result<(), CudaError> {
        // SAFETY: guaranteed by the caller.
        let event = unsafe { on.record() }?;
        self.busy[half] = Some(event);
        Ok(())
    }

    /// Waits for a copy into a half, and copies it to its destination.
    ///
    /// # Safety
    ///
    /// `to` is valid for the offset and the bytes.
    unsafe fn take_out(
        &mut self,
        (half, offset, bytes): (usize, usize, usize),
        to: NonNull<u8>,
    ) -> Result<(), CudaError> {
        let from = self.idle_half(half)?;
        // SAFETY: guaranteed by the caller.
        let to = unsafe { to.add(offset) };
        // SAFETY: both are host memory of this many bytes, and the device is done with the half.
        unsafe { to.copy_from_nonoverlapping(from, bytes) };
        Ok(())
    }
}

impl Drop for StagingBuffer {
    /// The memory is freed after the device's last use of it: the driver need not wait for that.
    fn drop(&mut self) {
        let mut is_idle = !self.is_in_doubt;
        for event in self.busy.iter_mut().filter_map(Option::take) {
            is_idle &= device::synchronize(event).inspect_err(|_| device::forget(event)).is_ok();
        }
        self.resources.free(&self.device, self.memory, is_idle);
    }
}
