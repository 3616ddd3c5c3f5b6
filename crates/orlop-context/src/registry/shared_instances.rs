//! The shared allocators and backings of one factory, by NUMA node.

use super::{AllocatorConfig, Factory};
use orlop_alloc::backing::BackingRef;
use orlop_alloc::{AllocatorRef, Result};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

type ByNode<T> = Mutex<HashMap<Option<u32>, T>>;

/// One allocator and one backing per NUMA node, and one of each without a node.
#[derive(Debug, Default)]
pub(super) struct SharedInstances {
    allocators: ByNode<AllocatorRef>,
    backings: ByNode<BackingRef>,
}

impl SharedInstances {
    pub(super) fn allocator(&self, factory: &Factory, node: Option<u32>) -> Result<AllocatorRef> {
        get_or_make(&self.allocators, node, |options| factory.make(options))
    }

    /// Returns `true` if an allocator was created.
    pub(super) fn is_made(&self) -> bool {
        !self.allocators.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub(super) fn backing(&self, factory: &Factory, node: Option<u32>) -> Result<BackingRef> {
        get_or_make(&self.backings, node, |options| factory.make_backing(options))
    }
}

/// Returns the instance for `node`, creating it if there is none. No lock is held while it is created,
/// because a factory may use the registry.
fn get_or_make<T: Clone>(
    made: &ByNode<T>,
    node: Option<u32>,
    make: impl FnOnce(&AllocatorConfig) -> Result<T>,
) -> Result<T> {
    let lock = || made.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().get(&node) {
        return Ok(known.clone());
    }
    let mut config = AllocatorConfig::new();
    config.node = node;
    let new = make(&config)?;
    let (kept, spare) = {
        let mut made = lock();
        match made.get(&node) {
            Some(first) => (first.clone(), Some(new)),
            None => {
                made.insert(node, new.clone());
                (new, None)
            }
        }
    };
    // Dropped without the lock: dropping an allocator may run user code.
    drop(spare);
    Ok(kept)
}
