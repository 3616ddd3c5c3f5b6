//! Where engines get their memory (TensorFlow: SubAllocator).
//!
//! An engine owns metadata only; the bytes come from a backing, in regions. The same engine therefore runs
//! over the system's allocator, over mapped pages, over a device driver, or over nothing at all: replaying an
//! 80 GB trace over [`Null`] exercises the production code on a laptop.

mod global;
mod mmap;
mod null;
mod pinned;
mod system;
mod visited;

pub use self::global::{Global, NAMED, default_backing, named};
pub use self::mmap::{HugePages, Mmap};
pub use self::null::Null;
pub use self::pinned::{Pinned, Pinner, set_pinner};
pub use self::system::System;
pub use self::visited::{Change, Visited, Visitor};

use crate::Access;
use orlop_core::{Alignment, Device};
use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::Arc;

/// A stretch of memory from a backing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Where it begins.
    pub ptr: NonNull<u8>,
    /// How long it is: at least what was asked for.
    pub bytes: usize,
    /// The alignment it was asked for with; needed to give it back.
    pub align: Alignment,
    /// Whether every byte is zero. If not, every byte is nevertheless initialised.
    pub zeroed: bool,
}

impl Region {
    /// The address as a number.
    #[must_use]
    pub fn address(&self) -> usize {
        self.ptr.as_ptr().addr()
    }
}

// SAFETY: a region is a claim on memory and belongs to one holder; nothing ties it to a thread.
unsafe impl Send for Region {}
// SAFETY: a shared `Region` gives nothing but numbers.
unsafe impl Sync for Region {}

/// Gives and takes regions.
///
/// # Safety
///
/// An implementation promises, for each region from `reserve` until it is released:
///
/// 1. `bytes` is at least what was asked for and `ptr` is a multiple of `align`; regions do not overlap;
/// 2. with [`Access::Host`], every byte is valid for reads and writes **and initialised**, and zero if
///    `zeroed` says so. This is where orlop makes sure that nobody reads uninitialised memory: once, when a
///    region is gained, and never again on the way;
/// 3. it may be released from any thread.
///
/// Engines call a backing with a lock held (growth): it must not ask the engine it stands under.
pub unsafe trait Backing: Debug + Send + Sync {
    /// Gets at least `bytes` (not zero) at `align`. `None` if there is no more.
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region>;

    /// Gives a region back.
    ///
    /// # Safety
    ///
    /// `region` came from `reserve` of this backing, was not released before, and nobody uses it any more.
    unsafe fn release(&self, region: Region);

    /// Where the memory is.
    fn device(&self) -> Device {
        Device::CPU
    }

    /// Who can reach it.
    fn access(&self) -> Access {
        Access::Host
    }

    /// A name for people.
    fn name(&self) -> &str;

    /// The NUMA node that regions are on, where that was chosen.
    fn node(&self) -> Option<u32> {
        None
    }

    /// Fills with zeros.
    ///
    /// # Safety
    ///
    /// `ptr .. ptr + bytes` lies in a live region of this backing, and nobody else uses it meanwhile.
    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) {
        match self.access() {
            // SAFETY: host-accessible (obligation 2) and ours alone (the caller's promise).
            Access::Host => unsafe { ptr.write_bytes(0, bytes) },
            Access::Device | Access::Nobody => {}
        }
    }
}

macro_rules! forward {
    ($($pointer:ty),+) => {$(
        // SAFETY: every call is the pointee's, whose promises these are.
        unsafe impl<B: ?Sized + Backing> Backing for $pointer {
            fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
                (**self).reserve(bytes, align)
            }
            unsafe fn release(&self, region: Region) {
                // SAFETY: the caller's promise.
                unsafe { (**self).release(region) }
            }
            fn device(&self) -> Device {
                (**self).device()
            }
            fn access(&self) -> Access {
                (**self).access()
            }
            fn name(&self) -> &str {
                (**self).name()
            }
            fn node(&self) -> Option<u32> {
                (**self).node()
            }
            unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) {
                // SAFETY: the caller's promise.
                unsafe { (**self).zero(ptr, bytes) }
            }
        }
    )+};
}

forward!(Box<B>, Arc<B>);
