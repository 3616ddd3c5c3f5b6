//! The hook for recorders of allocations. It costs one relaxed load while no observer is set.
//!
//! The handle of an allocator holds its observer and reports what passes through the handle. Changes inside
//! an engine are reported by way of [`regions`].

mod clock;
mod regions;
#[cfg(all(test, not(loom)))]
mod tests;

pub use self::clock::EventClock;
pub(crate) use self::regions::deliver_all;
pub use self::regions::{RegionAction, RegionEvent, RegionWatch, RegionWatches};

use crate::context::LadderStep;
use crate::shield::{report, shielded};
use crate::{Error, LookupResult, OutOfMemory, RawBlock};
use orlop_core::MemoryKind;
use std::fmt;
use std::sync::Arc;

/// An event in an allocator.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A block was allocated.
    Allocated {
        /// The block.
        block: &'a RawBlock,
        /// The name of the allocator.
        allocator: &'a str,
    },
    /// A block is being freed.
    Freed {
        /// The block.
        block: &'a RawBlock,
        /// The name of the allocator.
        allocator: &'a str,
    },
    /// A block was freed by its address.
    RawFreed {
        /// The address.
        address: usize,
        /// What the block was.
        found: &'a LookupResult,
        /// The name of the allocator.
        allocator: &'a str,
    },
    /// A free was refused; nothing changed.
    FreeRefused {
        /// Why.
        error: &'a Error,
        /// The name of the allocator.
        allocator: &'a str,
    },
    /// An allocator could not serve a request. The reclaim ladder of a context may still serve it.
    OutOfMemory {
        /// The report.
        report: &'a OutOfMemory,
    },
    /// The memory that an allocator holds from its backing has changed; or it was held when the observer was
    /// set.
    Region {
        /// The change.
        event: &'a RegionEvent,
        /// The name of the allocator.
        allocator: &'a str,
    },
    /// The reclaim ladder took a step for a request that did not fit.
    Reclaimed {
        /// The step.
        step: LadderStep,
        /// The kind of the request.
        kind: MemoryKind,
        /// Bytes that the step freed.
        bytes: u64,
    },
}

/// Receives events on the thread where they happen, with no lock of the allocator held. It must be fast. If
/// it allocates from the allocator it observes, it receives events for that too.
///
/// An observer cannot disturb what it observes: if it panics, here or in its destructor, the panic is traced
/// and ends there. Tests should store what they observe, and assert on it afterwards.
///
/// An observer is not asked for anything: events that happen under a lock have the time of the library's own
/// [`EventClock`].
///
/// ```compile_fail
/// use orlop_alloc::{Event, Observer};
///
/// struct Clock;
/// impl Observer for Clock {
///     fn observe(&self, _: &Event<'_>) {}
///     fn now(&self) -> Option<u64> {
///         None
///     }
/// }
/// ```
pub trait Observer: Send + Sync {
    /// Handles an event. It may allocate, drop handles and blocks, and set another observer.
    fn observe(&self, event: &Event<'_>);
}

impl fmt::Debug for dyn Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// Calls an observer. Its panic ends here.
#[inline(always)]
pub(crate) fn observe(observer: &dyn Observer, event: &Event<'_>) {
    if shielded(|| observer.observe(event)).is_none() {
        report_panic();
    }
}

#[cold]
#[inline(never)]
fn report_panic() {
    report(|| tracing::error!("an observer panicked"));
}

/// Returns `true` if both are the same observer.
pub(crate) fn is_same(one: &Arc<dyn Observer>, other: &Arc<dyn Observer>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

/// The place of a context's observer: one relaxed load while it is empty.
pub(crate) type ObserverSlot = orlop_sync::SwapCell<Arc<dyn Observer>>;
