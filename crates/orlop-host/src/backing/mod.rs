//! Backings: the sources of an engine's memory (TensorFlow: `SubAllocator`).
//!
//! A backing hands out memory in regions; the engines of orlop-alloc divide regions into blocks. The same
//! engine runs over the system's allocator ([`System`]), over mapped pages ([`Mmap`]), over the driver of a
//! device, or over no memory at all ([`Null`]).

mod forward;
mod mmap;
mod null;
mod pinned;
mod system;
mod visited;

pub use self::mmap::{HugePages, Mmap, pages};
pub use self::null::Null;
pub use self::pinned::{Pinned, Pinner, set_pinner};
pub use self::system::{FromGlobal, System};
pub use self::visited::{RegionChange, Visited, Visitor, Visitors};

use crate::forward_backing;
use orlop_core::{Alignment, Device};
use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::Arc;

/// A shared backing of any type.
pub type BackingRef = Arc<dyn Backing>;

/// The processors that can access the bytes of a region or block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The host can read and write them, and they are initialised.
    Host,
    /// Only the device can access them.
    Device,
    /// None: it is address space without memory (the null backing).
    None,
}

/// A contiguous range of memory that a backing hands to an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The first byte.
    pub ptr: NonNull<u8>,
    /// Length in bytes: at least as many as were requested.
    pub bytes: usize,
    /// The requested alignment; needed to release the region.
    pub align: Alignment,
    /// True if every byte is zero. Otherwise the bytes are initialised to unspecified values.
    pub zeroed: bool,
}

impl Region {
    /// Returns the address of the first byte.
    #[must_use]
    pub fn address(&self) -> usize {
        self.ptr.as_ptr().addr()
    }
}

// SAFETY: a `Region` is an address and a length; it gives no access to the memory by itself, and memory is
// not tied to a thread.
unsafe impl Send for Region {}
// SAFETY: a shared `Region` gives access to plain values only.
unsafe impl Sync for Region {}

/// A range of address space in which pages are committed as they are needed: see
/// [`Backing::reserve_addresses`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// The first byte.
    pub ptr: NonNull<u8>,
    /// Length in bytes.
    pub capacity: usize,
}

// SAFETY: as for `Region`.
unsafe impl Send for Reservation {}
// SAFETY: as for `Region`.
unsafe impl Sync for Reservation {}

/// Provides regions of memory to an engine and takes them back.
///
/// # Safety
///
/// An implementation guarantees, for each region from `reserve` until it is released:
///
/// 1. `bytes` is at least the number requested and `ptr` is a multiple of `align`; regions do not overlap;
/// 2. with [`Access::Host`], every byte is valid for reads and writes **and initialised**, and zero if
///    `zeroed` is true. This is the only place where orlop ensures that uninitialised memory is never read:
///    layers above do not initialise again;
/// 3. it may be released from any thread.
///
/// The committed part of a [`Reservation`] meets the same guarantees as a region, and is zero when it is
/// committed. Memory given to [`Backing::discard`] stays valid and initialised; its contents may change.
///
/// # Reentrancy
///
/// Engines call a backing while they hold their growth lock. During such a call the backing may use that
/// engine as a [`Visitor`] may: for everything that needs no memory from the backing. (In `discard` the
/// engine's metadata is locked too: calling the engine from there panics.) If a call panics, the engine
/// treats a request as refused and a release as done; it stays consistent, and memory that the backing was
/// handling at that moment may leak.
pub unsafe trait Backing: Debug + Send + Sync + 'static {
    /// Reserves a region of at least `bytes` bytes, which is not zero, aligned to `align`. Returns `None` if
    /// no memory is left.
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region>;

    /// Releases a region.
    ///
    /// # Safety
    ///
    /// `region` came from `reserve` of this backing, was not released before, and is no longer in use.
    unsafe fn release(&self, region: Region);

    /// Reserves `capacity` bytes of address space with no pages committed. Returns `None` if the backing does
    /// not support this, which is the default.
    ///
    /// Engines that coalesce free chunks waste less in one range that grows in place than in many regions.
    fn reserve_addresses(&self, capacity: usize, align: Alignment) -> Option<Reservation> {
        let _ = (capacity, align);
        None
    }

    /// Returns the granularity of [`Backing::commit`] and [`Backing::decommit`]: offsets passed to them are
    /// multiples of it.
    fn commit_granularity(&self) -> Alignment {
        Alignment::PLANNED
    }

    /// Commits the bytes `from..to` of a reservation, zeroed. Returns `false` if no memory is left.
    ///
    /// # Safety
    ///
    /// 1. `reservation` came from `reserve_addresses` of this backing and was not released;
    /// 2. exactly its first `from` bytes are committed;
    /// 3. `from < to`, both are multiples of the commit granularity, and `to` is at most the capacity.
    unsafe fn commit(&self, reservation: &Reservation, from: usize, to: usize) -> bool {
        let _ = (reservation, from, to);
        false
    }

    /// Decommits the bytes `to..from` of a reservation, where `from` is the end of the committed part. They
    /// may be committed again.
    ///
    /// # Safety
    ///
    /// 1. `reservation` came from `reserve_addresses` of this backing and was not released;
    /// 2. exactly its first `from` bytes are committed;
    /// 3. `to < from`, both are multiples of the commit granularity, and the bytes `to..from` are not in use.
    unsafe fn decommit(&self, reservation: &Reservation, from: usize, to: usize) {
        let _ = (reservation, from, to);
    }

    /// Releases a reservation of which the first `committed` bytes are committed.
    ///
    /// # Safety
    ///
    /// As for [`Backing::decommit`], and none of the bytes are in use.
    unsafe fn release_addresses(&self, reservation: Reservation, committed: usize) {
        let _ = (reservation, committed);
    }

    /// Lets the system reclaim the whole pages within `ptr..ptr + bytes` until they are used again. Returns
    /// the number of bytes in those pages: 0 if the backing cannot do this.
    ///
    /// # Safety
    ///
    /// The bytes lie in a region or in the committed part of a reservation, and are not in use.
    unsafe fn discard(&self, ptr: NonNull<u8>, bytes: usize) -> usize {
        let _ = (ptr, bytes);
        0
    }

    /// Returns the length in bytes of the region that begins at `ptr`, if the backing can tell from the
    /// address.
    ///
    /// # Safety
    ///
    /// A region of this backing begins at `ptr` and was not released.
    unsafe fn region_bytes(&self, ptr: NonNull<u8>) -> Option<usize> {
        let _ = ptr;
        None
    }

    /// Returns `true` if the pages of regions are locked for DMA.
    fn is_pinned(&self) -> bool {
        false
    }

    /// Returns the device that the memory is on.
    fn device(&self) -> Device {
        Device::CPU
    }

    /// Returns which processors can access the memory.
    fn access(&self) -> Access {
        Access::Host
    }

    /// Returns the name to show to users.
    fn name(&self) -> &str;

    /// Returns the NUMA node that regions are placed on, if one was chosen.
    fn node(&self) -> Option<u32> {
        None
    }

    /// Fills `ptr..ptr + bytes` with zeros before it returns. Returns `false` if it cannot; the request that
    /// needs zeros then fails. A backing without accessible memory returns `true`.
    ///
    /// Required, because a default that does nothing would hand out used memory as zeroed.
    ///
    /// # Safety
    ///
    /// The bytes lie in a live region of this backing, and nothing else accesses them during the call.
    #[must_use]
    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool;
}

// SAFETY: every call is forwarded to the pointee, which upholds the contract.
unsafe impl<B: ?Sized + Backing> Backing for Box<B> {
    forward_backing!(*);
}

// SAFETY: every call is forwarded to the pointee, which upholds the contract.
unsafe impl<B: ?Sized + Backing> Backing for Arc<B> {
    forward_backing!(*);
}
