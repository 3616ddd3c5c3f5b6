//! Small allocators over an upstream allocator, each of which adds one promise.
//!
//! | adaptor | what it adds | row |
//! |---|---|---|
//! | [`Limit`] | never more than so many granted bytes at a time | L11 |
//! | [`Statistics`] | counters with nested scopes | P17 |
//! | [`Tracking`] | sizes and ids by address, a raw deleter, the list of what is alive | T11, T4, P23 |
//! | [`Logging`] | a line for each allocation and free, switched at run time | T14 |
//! | [`Failing`] | failures where a test wants them | |
//! | [`Hardened`] | canaries, poison, quarantine, guard pages | |
//! | [`Retry`] | asks somebody to make room, then tries again | |
//! | [`Waiting`] | waits for others to return memory | T18 |
//! | [`Warn`] | says when memory gets large, a few times | T13 |
//!
//! Behaviour is added by stacking, so that an engine knows nothing of logs and limits and each adaptor can be
//! read on its own page. Every adaptor is an [`Allocator`] itself and hands upstream's blocks on as they are
//! ([`Tracking`] adds an id where upstream gives none, [`Hardened`] hands them on a little shorter), so that any order of stacking works.
//!
//! A block grows in place ([`Allocator::grow_in_place`]) where upstream's does, and each adaptor counts what is more. Two
//! refuse it, so that a block that becomes larger is a new one: over [`Failing`] it is a request, which the rules can fail;
//! over [`Hardened`] it moves, and what still writes to its old place is found.
//!
//! An adaptor of your own implements `allocate` and what it changes, and leaves the rest to [`forward!`](crate::forward).
//!
//! The upstream may be an engine or an [`AllocatorRef`](crate::AllocatorRef), of a known type or erased.
//!
//! ```
//! use orlop_alloc::adaptor::{Limit, Tracking};
//! use orlop_alloc::backing::System;
//! use orlop_alloc::engine::Direct;
//! use orlop_alloc::{AllocatorRef, Request};
//!
//! let allocator = AllocatorRef::new(Tracking::new(Limit::new(Direct::new(System::new()).erase(), 1 << 20)));
//! let block = allocator.allocate(&Request::new(1000))?;
//! assert_eq!(allocator.live().len(), 1);
//! assert!(allocator.allocate(&Request::new(2 << 20)).is_err());
//! # drop(block);
//! # Ok::<(), orlop_alloc::Error>(())
//! ```

use crate::Allocator;

mod failing;
mod forward;
mod hardened;
mod hardening;
mod limit;
mod log_switch;
mod logging;
mod retry;
mod statistics;
mod tracking;
mod waiting;
mod warn;

pub use self::failing::{Failing, Rule};
pub use self::hardened::{Hardened, POISON};
pub use self::hardening::{HardenedBuilder, Hardening};
pub use self::limit::Limit;
pub use self::log_switch::LogSwitch;
pub use self::logging::{Action, LogRecord, Logging};
pub use self::retry::{Decision, Retry};
pub use self::statistics::{Counter, Counters, Statistics};
pub use self::tracking::{Live, TagTotal, Tracking};
pub use self::waiting::Waiting;
pub use self::warn::{TotalMemory, Warn, WarnBuilder, Warning};

/// The name of `adaptor` over `inner`: "limit(bfc)".
fn name_over(adaptor: &str, inner: &impl Allocator) -> Box<str> {
    format!("{adaptor}({})", inner.name()).into()
}
