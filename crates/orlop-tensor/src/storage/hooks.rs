//! What backends put in the place of ordinary storage (P5).

use crate::error::{Error, HookFault, Result};
use orlop_alloc::{Block, Context, Request};
use orlop_core::{Device, DeviceType};
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// How a backend makes the memory of its devices' storages.
pub trait StorageHook: Debug + Send + Sync {
    /// A block for `request` on `device`: of at least so many bytes, of the kind, and aligned as asked. That is looked at:
    /// a block that is not so is given back, and whoever wanted the storage gets
    /// [`Error::StorageHook`](crate::Error::StorageHook). That the bytes are zero, where the request says so, is for the
    /// hook to see to.
    ///
    /// # Errors
    ///
    /// What the allocator says.
    fn allocate(&self, context: &Context, device: Device, request: &Request) -> orlop_alloc::Result<Block>;
}

type Hooks = HashMap<DeviceType, Arc<dyn StorageHook>>;

/// Whether there are any: most programs have none, and ask once per storage.
static ANY: AtomicBool = AtomicBool::new(false);
static HOOKS: RwLock<Option<Hooks>> = RwLock::new(None);

/// Lets `hook` make the storages of all devices of this type from now on. The hook from before, if there was one.
pub fn set_storage_hook(device_type: DeviceType, hook: Arc<dyn StorageHook>) -> Option<Arc<dyn StorageHook>> {
    let mut hooks = HOOKS.write().unwrap_or_else(PoisonError::into_inner);
    let before = hooks.get_or_insert_default().insert(device_type, hook);
    // Release: whoever sees this looks at the map, behind its lock; relaxed would do.
    ANY.store(true, Ordering::Release);
    before
}

/// Takes a hook away.
pub fn clear_storage_hook(device_type: DeviceType) -> Option<Arc<dyn StorageHook>> {
    HOOKS.write().unwrap_or_else(PoisonError::into_inner).as_mut()?.remove(&device_type)
}

/// Whether there may be a hook.
#[inline]
pub(super) fn any() -> bool {
    ANY.load(Ordering::Relaxed)
}

pub(super) fn of(device: Device) -> Option<Arc<dyn StorageHook>> {
    if any() { find(device) } else { None }
}

/// What the hook gives for `request`, if it is that: a hook is safe code, and all that relies on blocks relies on this.
#[cold]
pub(super) fn allocate(
    hook: &dyn StorageHook,
    context: &Context,
    device: Device,
    request: &Request,
) -> Result<Block> {
    let block = hook.allocate(context, device, request)?;
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
        // Memory that the backend has from elsewhere is counted like all that is from outside.
        return Ok(context.adopt(block));
    };
    Err(Error::StorageHook { device, fault })
}

#[cold]
fn find(device: Device) -> Option<Arc<dyn StorageHook>> {
    let hooks = HOOKS.read().unwrap_or_else(PoisonError::into_inner);
    hooks.as_ref()?.get(&device.device_type()).cloned()
}
