//! [`StorageHook`]: how a backend allocates the memory of storages.

use crate::error::{Error, HookFault, Result};
use orlop_alloc::{Block, Request};
use orlop_context::Context;
use orlop_core::{Device, DeviceType};
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// A backend's allocation function for storages on its devices.
pub trait StorageHook: Debug + Send + Sync {
    /// Allocates a block for `request` on `device`. It must have at least the requested bytes, the kind and
    /// the alignment; a block that does not is freed, and the caller gets
    /// [`Error::StorageHook`](crate::Error::StorageHook). If zeroed memory is requested, it is zeroed
    /// afterwards: by the host, or by the operations of the device.
    ///
    /// # Errors
    ///
    /// The errors of the allocator.
    fn allocate(&self, context: &Context, device: Device, request: &Request) -> orlop_alloc::Result<Block>;
}

type Hooks = HashMap<DeviceType, Arc<dyn StorageHook>>;

/// Whether there are hooks: most programs have none, and check once per storage.
static ANY: AtomicBool = AtomicBool::new(false);
static HOOKS: RwLock<Option<Hooks>> = RwLock::new(None);

/// Installs a hook for the storages of all devices of this type, and returns the previous one.
pub fn set_storage_hook(device_type: DeviceType, hook: Arc<dyn StorageHook>) -> Option<Arc<dyn StorageHook>> {
    let mut hooks = HOOKS.write().unwrap_or_else(PoisonError::into_inner);
    let before = hooks.get_or_insert_default().insert(device_type, hook);
    // Release: a thread that sees the flag reads the map behind its lock; relaxed would do.
    ANY.store(true, Ordering::Release);
    before
}

/// Removes a hook and returns it.
pub fn clear_storage_hook(device_type: DeviceType) -> Option<Arc<dyn StorageHook>> {
    HOOKS.write().unwrap_or_else(PoisonError::into_inner).as_mut()?.remove(&device_type)
}

/// Returns `true` if there may be a hook.
#[inline]
pub(super) fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

pub(super) fn of(device: Device) -> Option<Arc<dyn StorageHook>> {
    if any() { find(device) } else { None }
}

/// Runs the hook for `request` and checks its block: a hook is safe code, but unsafe code relies on its
/// blocks.
#[cold]
pub(super) fn allocate(
    hook: &dyn StorageHook,
    context: &Context,
    device: Device,
    request: &Request,
) -> Result<Block> {
    let mut block = hook.allocate(context, device, request)?;
    let address = block.as_ptr().as_ptr().addr();
    let fault = if block.device() != device {
        HookFault::Device { actual: block.device() }
    } else if block.kind() != request.kind {
        HookFault::Kind { expected: request.kind, actual: block.kind() }
    } else if block.len() < request.bytes {
        HookFault::Bytes { expected: request.bytes, actual: block.len() }
    } else if !request.align.is_aligned(address) {
        HookFault::Misaligned { address, align: request.align.bytes() }
    } else {
        if request.zeroed {
            match block.bytes_mut() {
                Ok(bytes) => bytes.fill(0),
                Err(_) => context.zero(&mut block, request.stream)?,
            }
        }
        // Memory that the backend got elsewhere is counted like foreign memory.
        return Ok(context.adopt(block));
    };
    Err(Error::StorageHook { device, fault })
}

#[cold]
fn find(device: Device) -> Option<Arc<dyn StorageHook>> {
    let hooks = HOOKS.read().unwrap_or_else(PoisonError::into_inner);
    hooks.as_ref()?.get(&device.device_type()).cloned()
}
