//! Where engines get their memory (TensorFlow: SubAllocator).
//!
//! An engine owns metadata only; the bytes come from a backing, in regions. The same engine therefore runs
//! over the system's allocator, over mapped pages, over a device driver, or over nothing at all: replaying an
//! 80 GB trace over [`Null`] exercises the production code on a laptop.

mod global;
mod mmap;
mod null;
mod pinned;
mod shielded;
mod system;
mod visited;

pub use self::global::{Global, NAMED, default_backing, named};
pub use self::mmap::{HugePages, Mmap, pages};
pub use self::null::Null;
pub use self::pinned::{Pinned, Pinner, set_pinner};
pub(crate) use self::shielded::Shielded;
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

/// Address space set aside for memory that grows in place: see [`Backing::line`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Where it begins.
    pub ptr: NonNull<u8>,
    /// How long it can become, in bytes.
    pub capacity: usize,
}

// SAFETY: as for `Region`.
unsafe impl Send for Line {}
// SAFETY: as for `Region`.
unsafe impl Sync for Line {}

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
/// The part of a [`Line`] that was gained by [`Backing::extend`] is as good as a region, and zeroed. What was given
/// back by [`Backing::discard`] stays valid and is initialised anew.
///
/// # From inside
///
/// Engines call a backing while they grow or give memory back, with their growth lock held. From there it may use the
/// engine that it stands under as a [`Visitor`] may: for all that needs no memory from the backing. (In `discard` the
/// engine's metadata is locked too: a call of the engine from there panics.) A call that panics counts as refused, or as
/// done where it gives memory back; the engine goes on, and what the backing had in hand is lost with it.
pub unsafe trait Backing: Debug + Send + Sync + 'static {
    /// Gets at least `bytes` (not zero) at `align`. `None` if there is no more.
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region>;

    /// Gives a region back.
    ///
    /// # Safety
    ///
    /// `region` came from `reserve` of this backing, was not released before, and nobody uses it any more.
    unsafe fn release(&self, region: Region);

    /// Sets address space aside, of which nothing is gained yet: engines that coalesce waste less in memory that
    /// grows in place than in many regions. `None` where there is no such thing, as by default.
    fn line(&self, capacity: usize, align: Alignment) -> Option<Line> {
        let _ = (capacity, align);
        None
    }

    /// What the bytes of a line are gained in multiples of.
    fn grain(&self) -> Alignment {
        Alignment::PLANNED
    }

    /// Gains the bytes of a line from `from` to `to`, multiples of the grain. False if there is no memory.
    ///
    /// # Safety
    ///
    /// `line` came from `line` of this backing and was not released; so far exactly the first `from` bytes are
    /// gained, and `to` is at most the capacity.
    unsafe fn extend(&self, line: &Line, from: usize, to: usize) -> bool {
        let _ = (line, from, to);
        false
    }

    /// Gives the bytes of a line from `to` to `from` back. They may be gained again.
    ///
    /// # Safety
    ///
    /// As for `extend`, with `to < from`; nobody uses those bytes.
    unsafe fn shorten(&self, line: &Line, from: usize, to: usize) {
        let _ = (line, from, to);
    }

    /// Gives a whole line back, of which the first `gained` bytes are gained.
    ///
    /// # Safety
    ///
    /// As for `extend`; nobody uses the line any more.
    unsafe fn release_line(&self, line: Line, gained: usize) {
        let _ = (line, gained);
    }

    /// Lets the system take the pages of some bytes away until they are used again: whole pages only. How many bytes
    /// that is; none where it cannot.
    ///
    /// # Safety
    ///
    /// The bytes lie in a region or the gained part of a line, and nobody uses them.
    unsafe fn discard(&self, ptr: NonNull<u8>, bytes: usize) -> usize {
        let _ = (ptr, bytes);
        0
    }

    /// Bytes of the region that begins at `ptr`, where the backing can tell from the address.
    ///
    /// # Safety
    ///
    /// `ptr` is where a region of this backing begins that was not released.
    unsafe fn region_bytes(&self, ptr: NonNull<u8>) -> Option<usize> {
        let _ = ptr;
        None
    }

    /// Whether the pages of regions are locked for DMA.
    fn is_pinned(&self) -> bool {
        false
    }

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

    /// Fills with zeros, done when this returns. `false` if it cannot, and then the request that wanted zeros fails. Address
    /// space that nobody can touch has nothing to fill.
    ///
    /// Required: memory that was used before would otherwise be handed out as zero by whoever forgets it.
    ///
    /// # Safety
    ///
    /// `ptr .. ptr + bytes` lies in a live region of this backing, and nobody else uses it meanwhile.
    #[must_use]
    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool;
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
            fn line(&self, capacity: usize, align: Alignment) -> Option<Line> {
                (**self).line(capacity, align)
            }
            fn grain(&self) -> Alignment {
                (**self).grain()
            }
            unsafe fn extend(&self, line: &Line, from: usize, to: usize) -> bool {
                // SAFETY: the caller's promise.
                unsafe { (**self).extend(line, from, to) }
            }
            unsafe fn shorten(&self, line: &Line, from: usize, to: usize) {
                // SAFETY: the caller's promise.
                unsafe { (**self).shorten(line, from, to) }
            }
            unsafe fn release_line(&self, line: Line, gained: usize) {
                // SAFETY: the caller's promise.
                unsafe { (**self).release_line(line, gained) }
            }
            unsafe fn discard(&self, ptr: NonNull<u8>, bytes: usize) -> usize {
                // SAFETY: the caller's promise.
                unsafe { (**self).discard(ptr, bytes) }
            }
            unsafe fn region_bytes(&self, ptr: NonNull<u8>) -> Option<usize> {
                // SAFETY: the caller's promise.
                unsafe { (**self).region_bytes(ptr) }
            }
            fn is_pinned(&self) -> bool {
                (**self).is_pinned()
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
            unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
                // SAFETY: the caller's promise.
                unsafe { (**self).zero(ptr, bytes) }
            }
        }
    )+};
}

forward!(Box<B>, Arc<B>);
