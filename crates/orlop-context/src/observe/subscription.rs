//! An observer of a context or of one allocator, until a value is dropped.

use crate::Context;
use orlop_alloc::{Allocator, AllocatorRef, DeviceMemory, Observer};
use orlop_core::{Device, MemoryKind};
use std::sync::Arc;

/// An observer that is removed when this is dropped.
///
/// ```
/// use orlop_alloc::{Event, Observer, Request};
/// use orlop_context::Context;
/// use orlop_context::observe::Subscription;
/// use orlop_core::Device;
/// use std::sync::Arc;
///
/// struct Print;
/// impl Observer for Print {
///     fn observe(&self, event: &Event<'_>) {
///         println!("{event:?}");
///     }
/// }
///
/// let context = Context::new();
/// let subscription = Subscription::on(&context, Arc::new(Print));
/// context.allocate(Device::CPU, &Request::new(100))?;
/// drop(subscription);
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping this removes the observer"]
pub struct Subscription {
    target: Target,
    observer: Arc<dyn Observer>,
}

/// What is observed.
#[derive(Debug)]
enum Target {
    Context(Context),
    Allocator(AllocatorRef),
}

impl Subscription {
    /// Adds `observer` to a context: see [`Context::add_observer`].
    pub fn on(context: &Context, observer: Arc<dyn Observer>) -> Self {
        context.add_observer(Arc::clone(&observer));
        Self { target: Target::Context(context.clone()), observer }
    }

    /// Adds `observer` to an allocator: see [`AllocatorRef::add_observer`].
    pub fn on_allocator(allocator: &AllocatorRef, observer: Arc<dyn Observer>) -> Self {
        let _delivered = allocator.add_observer(Arc::clone(&observer));
        Self { target: Target::Allocator(allocator.clone()), observer }
    }

    /// Returns the granted bytes of live blocks by kind.
    pub(crate) fn live(&self) -> [u64; MemoryKind::COUNT] {
        let all = match &self.target {
            Target::Context(context) => {
                context.devices().into_iter().map(|device| context.stats(device)).collect()
            }
            Target::Allocator(allocator) => vec![allocator.stats()],
        };
        let mut live = [0u64; MemoryKind::COUNT];
        for stats in &all {
            for (sum, account) in live.iter_mut().zip(&stats.totals.kinds) {
                *sum = sum.saturating_add(account.live_bytes);
            }
        }
        live
    }

    /// Returns the memory of the observed devices, as far as it is known.
    pub(crate) fn memory(&self) -> Vec<(Device, DeviceMemory)> {
        match &self.target {
            Target::Context(context) => {
                let memory = |device| Some((device, context.device_memory(device).ok()?));
                context.devices().into_iter().filter_map(memory).collect()
            }
            Target::Allocator(allocator) => {
                let memory = allocator.device_memory();
                memory.map(|memory| (allocator.device(), memory)).into_iter().collect()
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        match &self.target {
            Target::Context(context) => context.remove_observer(&self.observer),
            Target::Allocator(allocator) => drop(allocator.remove_observer(&self.observer)),
        }
    }
}
