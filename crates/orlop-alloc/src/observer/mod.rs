//! Observers: recorders, profiles, logs and statistics. Without one, they cost one relaxed load.
//!
//! The handle of an allocator holds its observers and reports what passes through the handle. Changes inside
//! an engine are reported by way of [`regions`].

mod clock;
mod observers;
mod regions;
mod shared;
#[cfg(all(test, not(loom)))]
mod tests;

pub use self::clock::EventClock;
pub use self::observers::RegionDelivery;
pub(crate) use self::observers::{Watch, WatchList};
pub use self::regions::{RegionAction, RegionEvent, RegionWatch, RegionWatches};
pub use self::shared::SharedObserver;

use crate::{Error, LadderStep, LookupResult, OutOfMemory, RawBlock, Request};
use orlop_core::{Device, MemoryKind};
use orlop_host::shield::{report, shielded};
use std::fmt;

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
    /// A block grew in place.
    Grown {
        /// The block, with its new sizes.
        block: &'a RawBlock,
        /// Its requested bytes before.
        requested: usize,
        /// Its granted bytes before.
        granted: usize,
        /// The name of the allocator.
        allocator: &'a str,
    },
    /// A block is being freed. Its engine may still refuse that: [`Event::FreeRefused`] follows then. The
    /// event comes first, because once the engine has the block, another thread may get its memory.
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
        /// The address.
        address: usize,
        /// The block, if an [`Event::Freed`] announced it: it stays live. `None` for a free by address.
        block: Option<&'a LookupResult>,
        /// The name of the allocator.
        allocator: &'a str,
    },
    /// A request failed, for whatever reason. If memory was short, [`Event::OutOfMemory`] comes first. Each
    /// attempt is reported: the reclaim ladder of a context may still serve the request.
    RequestFailed {
        /// The request.
        request: &'a Request,
        /// Why.
        error: &'a Error,
        /// The name of the allocator.
        allocator: &'a str,
    },
    /// An allocator could not serve a request, or a budget of a context refused it. The observers of an
    /// allocator receive the former, those of the context both. [`OutOfMemory::number`] identifies the
    /// refusal, [`Refusal::cause`](crate::Refusal::cause) says what refused. If the context retries the
    /// request, [`Event::Settled`] follows. Otherwise the request failed.
    OutOfMemory {
        /// The report.
        report: &'a OutOfMemory,
    },
    /// The reclaim ladder of a context ended for a request that was refused at least once. The observers of
    /// the context receive it, and those that were added to the allocator only.
    Settled {
        /// The device.
        device: Device,
        /// The request.
        request: &'a Request,
        /// The numbers of its refusals, first to last: one of each [`Event::OutOfMemory`] before.
        refusals: &'a [u64],
        /// Whether the request was served in the end.
        is_served: bool,
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
/// Events of blocks close the fast path of the allocator: each allocation and free then passes the observer.
/// An observer that needs none of them says so ([`Observer::watches_blocks`]) and costs nothing there.
///
/// An observer receives events and returns nothing: events that happen under a lock have the time of the
/// library's own [`EventClock`].
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
    /// Handles an event. It may allocate, drop handles and blocks, and add and remove observers.
    fn observe(&self, event: &Event<'_>);

    /// Returns `false` if the observer needs no events of single blocks ([`Event::Allocated`],
    /// [`Event::Grown`], [`Event::Freed`], [`Event::RawFreed`]): it then receives only the others, and the
    /// allocator's fast path stays open. It is called once, when the observer is added.
    fn watches_blocks(&self) -> bool {
        true
    }
}

impl fmt::Debug for dyn Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

impl dyn Observer {
    /// Calls [`Observer::observe`]. A panic of the observer is traced and ends here.
    #[inline(always)]
    pub fn notify(&self, event: &Event<'_>) {
        if shielded(|| self.observe(event)).is_none() {
            report_panic();
        }
    }
}

#[cold]
#[inline(never)]
fn report_panic() {
    report(|| tracing::error!("an observer panicked"));
}
