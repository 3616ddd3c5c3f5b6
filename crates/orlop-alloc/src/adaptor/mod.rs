//! Small allocators over an upstream allocator, each of which adds one promise.
//!
//! | adaptor | what it adds |
//! |---|---|
//! | [`Limit`] | an upper bound on the granted bytes of live blocks |
//! | [`Tracking`] | sizes and ids by address, a raw deleter, the list of live blocks |
//! | [`Failing`] | failures by rule, for tests |
//! | [`Hardened`] | canaries, poison, quarantine, guard pages |
//! | [`Retry`] | a callback that frees memory, then another attempt |
//! | [`Waiting`] | a wait for other threads to return memory |
//!
//! Logs, statistics and warnings change no block: they are observers
//! ([`AllocatorRef::add_observer`](crate::AllocatorRef::add_observer)), of which `orlop-context` has some.
//!
//! Behaviour is added by stacking: an engine knows nothing of limits, and each adaptor can be read on its
//! own. Every adaptor is an [`Allocator`] and hands out the upstream's blocks unchanged ([`Tracking`] adds an
//! id where the upstream gives none, [`Hardened`] shortens them), so adaptors stack in any order.
//!
//! A block grows in place ([`Allocator::grow_in_place`]) where the upstream's does, and each adaptor counts
//! the additional bytes. Two refuse, so that growth gives a new block: for [`Failing`] it is a request, which
//! the rules can fail; for [`Hardened`] the block moves, and writes to its old address are found.
//!
//! An adaptor of your own implements `allocate` and the methods that it changes, and leaves the others to
//! [`forward!`](crate::forward).
//!
//! The upstream may be an engine or an [`AllocatorRef`](crate::AllocatorRef), of a known type or erased.
//!
//! ```
//! use orlop_alloc::adaptor::{Limit, Tracking};
//! use orlop_alloc::backing::System;
//! use orlop_alloc::engine::Direct;
//! use orlop_alloc::{Allocator, Request};
//!
//! let allocator = Tracking::new(Limit::new(Direct::new(System::new()), 1 << 20)).into_ref();
//! let block = allocator.allocate(&Request::new(1000))?;
//! assert_eq!(allocator.live().len(), 1);
//! assert!(allocator.allocate(&Request::new(2 << 20)).is_err());
//! # drop(block);
//! # Ok::<(), orlop_alloc::Error>(())
//! ```

use crate::Allocator;

pub(crate) mod charged;
mod failing;
mod guard_pages;
mod hardened;
mod hardening;
mod limit;
mod retry;
#[cfg(feature = "tracking")]
mod tracking;
mod waiting;

pub use self::failing::{Failing, Rule};
pub use self::hardened::{Hardened, POISON};
pub use self::hardening::Hardening;
pub use self::limit::Limit;
pub use self::retry::{Decision, Retry};
#[cfg(feature = "tracking")]
pub use self::tracking::{Live, Tracking};
pub use self::waiting::Waiting;

/// Returns the name of `adaptor` over `inner`, as in "limit(bfc)".
fn name_over(adaptor: &str, inner: &impl Allocator) -> Box<str> {
    format!("{adaptor}({})", inner.name()).into()
}
