//! Observers for everyday use: a log, and warnings.
//!
//! | observer | what it does |
//! |---|---|
//! | [`Logging`] | a line for each allocation and free, switched at run time |
//! | [`Warn`] | a bounded number of warnings of large allocations |
//! | [`Subscription`] | any observer, removed when a value is dropped |
//!
//! They change no block, so they are not adaptors: any number can be added to an allocator or a context at
//! any time, and removed again. The profiles ([`profile`](crate::profile)) and the recorder of `orlop-trace`
//! are observers too.
//!
//! An observer of blocks closes the allocator's fast path. The counters of the allocator itself
//! ([`AllocatorRef::stats`](orlop_alloc::AllocatorRef::stats)) do not: two readings of them differ by what
//! the phase between them allocated, freed and kept. What they lack is the peak of that phase alone, which
//! [`MemorySteps`](crate::profile::MemorySteps) has.

mod log_record;
mod log_switch;
mod logging;
mod subscription;
mod warn;

pub use self::log_record::{LogAction, LogRecord};
pub use self::log_switch::LogSwitch;
pub use self::logging::Logging;
pub use self::subscription::Subscription;
pub use self::warn::{Warn, WarnBuilder, Warning};
