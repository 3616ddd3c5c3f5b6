//! [`ContextResources`]: what operations keep in a context of the driver: the kernels, and pinned memory that
//! the driver did not free.
//!
//! The driver keeps a context while anything in the process does, such as CUDA's runtime or another library.
//! A device that is closed and opened again can find the same context, with the module that was loaded in it
//! before. So these resources belong to the context, which the driver names by an id that it never gives
//! again, and not to the device: a module is loaded once, and is unloaded with its context. Unloading it with
//! the last operations would be too early, because graphs may have launches of its kernels.

use super::kernels::KernelModule;
use crate::device::CudaDevice;
use crate::driver::call;
use crate::error::CudaError;
use cudarc::driver::CudaContext;
use orlop_alloc::engine_support::trace_guarded;
use orlop_sync::Mutex;
use std::sync::{Arc, PoisonError, Weak};

/// What operations keep in a context.
#[derive(Debug, Default)]
pub(super) struct ContextResources {
    pub(super) kernels: KernelModule,
    unfreed: Mutex<Vec<PinnedBuffer>>,
}

/// Pinned memory of its owner alone.
#[derive(Debug, Clone, Copy)]
pub(super) struct PinnedBuffer {
    pub(super) address: usize,
    pub(super) bytes: usize,
}

/// The resources of a context.
#[derive(Debug)]
struct KnownContext {
    /// The handle, and the driver's id of the context. A driver before CUDA 12.0 has no ids.
    handle: usize,
    id: Option<u64>,
    context: Weak<CudaContext>,
    resources: Arc<ContextResources>,
}

static CONTEXTS: std::sync::Mutex<Vec<KnownContext>> = std::sync::Mutex::new(Vec::new());

impl KnownContext {
    fn belongs_to(&self, device: &CudaDevice) -> bool {
        match device.state().context_id {
            Some(id) => self.id == Some(id),
            None => std::ptr::eq(self.context.as_ptr(), Arc::as_ptr(device.context())),
        }
    }

    /// Returns `true` if this context has ended, as far as opening a device shows it: another one has its
    /// handle, or without ids nothing here keeps it.
    fn has_ended(&self, device: &CudaDevice) -> bool {
        match device.state().context_id {
            Some(_) => self.handle == device.context().cu_ctx().addr() && !self.belongs_to(device),
            None => self.context.strong_count() == 0,
        }
    }
}

impl ContextResources {
    /// Returns the resources of a device's context.
    pub(super) fn of(device: &CudaDevice) -> Arc<Self> {
        let mut contexts = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        contexts.retain(|known| !known.has_ended(device));
        if let Some(known) = contexts.iter().find(|known| known.belongs_to(device)) {
            return Arc::clone(&known.resources);
        }
        let resources = Arc::new(Self::default());
        contexts.push(KnownContext {
            handle: device.context().cu_ctx().addr(),
            id: device.state().context_id,
            context: Arc::downgrade(device.context()),
            resources: Arc::clone(&resources),
        });
        resources
    }

    /// Frees pinned memory, which the device uses no more if it `is_idle`; otherwise after a wait for the
    /// device, because the driver need not wait. If the driver refuses, the memory is kept for a later
    /// attempt, and counted.
    pub(super) fn free(&self, device: &CudaDevice, buffer: PinnedBuffer, is_idle: bool) {
        self.free_refused(device);
        let waited = if is_idle { Ok(()) } else { device.state().finish_streams() };
        if let Err(error) = waited.and_then(|()| free(device, buffer)) {
            self.unfreed.lock().push(buffer);
            trace_guarded(|| tracing::error!(%error, bytes = buffer.bytes, "pinned memory was not freed"));
        }
    }

    /// Frees memory that the driver refused to free before, as far as it does now.
    pub(super) fn free_refused(&self, device: &CudaDevice) {
        if self.unfreed.lock().is_empty() || device.state().finish_streams().is_err() {
            return;
        }
        loop {
            // Not called with the lock held: the driver may wait.
            let Some(buffer) = self.unfreed.lock().pop() else { return };
            if free(device, buffer).is_err() {
                return self.unfreed.lock().push(buffer);
            }
        }
    }

    /// Returns the bytes that the driver refused to free.
    pub(super) fn unfreed_bytes(&self) -> usize {
        self.unfreed.lock().iter().map(|buffer| buffer.bytes).sum()
    }
}

/// Frees memory that the device uses no more.
fn free(device: &CudaDevice, buffer: PinnedBuffer) -> Result<(), CudaError> {
    let scope = device.state().enter()?;
    let start = std::ptr::with_exposed_provenance_mut(buffer.address);
    // SAFETY: it came from `cuMemHostAlloc`, and its owner gave it up. A call that failed has not freed it,
    // so it is freed once.
    Ok(unsafe { call!(scope.driver(), cuMemFreeHost(start)) }?)
}
