//! The host as orlop's other layers see it: operations on its memory, and facts about the machine.
//!
//! | contents | items |
//! |---|---|
//! | copy, cast and fill of host memory over any strides | [`kernels`] |
//! | the loops of an operation over strided memory, as kernels and devices take them | [`StridedLoops`] |
//! | sources of regions of memory: the system's allocator, mapped pages, pinned memory | [`backing`] |
//! | the memory that the process may use | [`system_memory`], [`DeviceMemory`] |
//! | the nodes of the machine and their pages | [`numa`] |
//! | threads, as debuggers number them | [`os_thread_id`] |
//! | writing a file completely or not at all | `files`, with the feature `files` |
//! | calls of user code whose panics are contained | [`shield`] |
#![cfg_attr(not(test), deny(clippy::expect_used))]

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod backing;
mod device_memory;
#[cfg(feature = "files")]
pub mod files;
pub mod kernels;
mod loops;
pub mod numa;
pub mod shield;
pub mod system_memory;
mod threads;

pub use self::device_memory::DeviceMemory;
pub use self::kernels::LoopDim;
pub use self::loops::StridedLoops;
pub use self::threads::os_thread_id;

/// For macros of this crate only.
#[doc(hidden)]
pub mod __private {
    pub use orlop_core::{Alignment, Device};
}
