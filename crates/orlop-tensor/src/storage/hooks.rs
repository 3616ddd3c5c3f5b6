//! What backends put in the place of ordinary storage (P5).

use orlop_alloc::{Block, Context, Request};
use orlop_core::{Device, DeviceType};
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// How a backend makes the memory of its devices' storages.
pub trait StorageHook: Debug + Send + Sync {
    /// A block for `request` on `device`.
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

#[cold]
fn find(device: Device) -> Option<Arc<dyn StorageHook>> {
    let hooks = HOOKS.read().unwrap_or_else(PoisonError::into_inner);
    hooks.as_ref()?.get(&device.device_type()).cloned()
}
