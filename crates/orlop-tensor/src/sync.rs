//! Re-exports the concurrency primitives: `std`'s, or loom's under `--cfg loom`.

pub(crate) use orlop_sync::{Mutex, MutexGuard, UnsafeCell, atomic, ordering};
