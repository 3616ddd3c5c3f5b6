//! The primitives of the protocols: `std`'s, or loom's under `--cfg loom`.

mod backoff;
mod cell;
mod cold_mutex;
mod end;
pub mod fence;
mod mutex;
mod ordering;
mod parking;
#[cfg_attr(not(loom), expect(unreachable_pub, reason = "public for loom's models"))]
mod raw_lock;
mod reentry;

pub(crate) use self::backoff::Backoff;
pub use self::cell::{MutPtr, UnsafeCell};
pub use self::cold_mutex::{ColdMutex, ColdMutexGuard};
pub use self::end::End;
pub use self::mutex::{Mutex, MutexGuard};
#[cfg(loom)]
#[doc(hidden)]
pub use self::ordering::mutation::mutated;
#[cfg(loom)]
#[doc(hidden)]
pub use self::raw_lock::RawLock;
pub(crate) use self::reentry::abort_reentered;

#[cfg(loom)]
pub use loom::sync::atomic;
#[cfg(not(loom))]
pub use std::sync::atomic;
