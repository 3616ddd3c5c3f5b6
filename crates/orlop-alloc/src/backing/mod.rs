//! Backings: the sources of an engine's memory (TensorFlow: `SubAllocator`).
//!
//! An engine owns metadata only; the bytes come from a backing, in regions. The same engine therefore runs
//! over the system's allocator, over mapped pages, over a device driver, or over no memory at all: replaying
//! an 80 GB trace over [`Null`] exercises the production code on a laptop.
//!
//! The trait and the host's backings are `orlop_host::backing`; backings by name are here.

mod by_name;
mod shielded;

pub use self::by_name::{NAMES, default_backing, named};
pub(crate) use self::shielded::Shielded;
#[cfg(all(unix, not(loom)))]
pub(crate) use self::shielded::is_inside_backing;
pub use orlop_host::backing::*;
