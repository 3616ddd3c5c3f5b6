//! The hook through which recording sees every allocation; one relaxed load when nobody looks.
//!
//! An allocator's handle holds its observer and tells it of what goes through the handle. Of what happens inside an engine,
//! where only the engine knows, it is told by way of [`regions`].

mod clock;
mod regions;
#[cfg(all(test, not(loom)))]
mod tests;

pub use self::clock::EventClock;
pub(crate) use self::regions::tell;
pub use self::regions::{RegionAction, RegionEvent, RegionWatch, RegionWatches};

use crate::context::LadderStep;
use crate::shield::{report, shielded};
use crate::{Error, LookupResult, OutOfMemory, RawBlock};
use orlop_core::MemoryKind;
use std::fmt;
use std::sync::Arc;

/// Something that happened in an allocator.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A block was handed out.
    Allocated {
        /// The block.
        block: &'a RawBlock,
        /// By whom.
        allocator: &'a str,
    },
    /// A block is coming back.
    Freed {
        /// The block.
        block: &'a RawBlock,
        /// To whom.
        allocator: &'a str,
    },
    /// A block came back by its bare address.
    RawFreed {
        /// Where it began.
        address: usize,
        /// What it was.
        found: &'a LookupResult,
        /// To whom.
        allocator: &'a str,
    },
    /// A free was refused; the memory stays as it was.
    FreeRefused {
        /// Why.
        error: &'a Error,
        /// By whom.
        allocator: &'a str,
    },
    /// An allocator could not serve a request. A context's ladder may still rescue it.
    OutOfMemory {
        /// The story.
        report: &'a OutOfMemory,
    },
    /// An allocator holds more memory from its backing, or less; or did before the observer came.
    Region {
        /// What and where.
        event: &'a RegionEvent,
        /// Who holds it.
        allocator: &'a str,
    },
    /// The reclaim ladder took a step for a request that did not fit.
    Reclaimed {
        /// Which.
        step: LadderStep,
        /// The kind that needed memory.
        kind: MemoryKind,
        /// Bytes that came back.
        bytes: u64,
    },
}

/// Is told what happens, on the thread where it happens, with no lock of the allocator held. It must be
/// quick, and must not allocate from the allocator it watches without expecting its own events.
///
/// An observer changes nothing that it observes: where it panics, here or in its destructor, the panic is traced and goes no
/// further. Tests that observe keep what they saw, and look at it afterwards.
///
/// It is asked nothing: the time of what happens under a lock is by the library's own [`EventClock`].
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
    /// Takes note. It may do what any program may: allocate, drop handles and blocks, set another observer.
    fn observe(&self, event: &Event<'_>);
}

impl fmt::Debug for dyn Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// Tells an observer, whose panic ends here.
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

/// Whether both are the same observer.
pub(crate) fn is_same(one: &Arc<dyn Observer>, other: &Arc<dyn Observer>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other))
}

/// Where a context's observer is put: one relaxed load while it is empty.
pub(crate) type ObserverSlot = orlop_sync::SwapCell<Arc<dyn Observer>>;
