//! Host memory that devices can read by DMA, or plain aligned host memory where there is no device (L12).

use super::{Backing, BackingRef, Region};
use crate::Access;
use crate::shield::{report, shielded};
use orlop_core::{Alignment, Device};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

/// Locks pages for DMA: a device backend provides one.
///
/// It is called as a [`Visitor`](super::Visitor) is, and may do the same: return blocks to the allocator that pins, and not
/// make it grow. A panic in `pin` counts as false. After a panic in `unpin` the memory is never given back, because a device
/// may still read it.
pub trait Pinner: Send + Sync {
    /// Locks `bytes` from `ptr` on; false if that cannot be done now.
    ///
    /// # Safety
    ///
    /// The memory is a live allocation and stays one until [`Pinner::unpin`].
    unsafe fn pin(&self, ptr: NonNull<u8>, bytes: usize) -> bool;

    /// Undoes [`Pinner::pin`].
    ///
    /// # Safety
    ///
    /// Exactly this range was pinned by `self` and was not unpinned since.
    unsafe fn unpin(&self, ptr: NonNull<u8>, bytes: usize);
}

static PINNER: OnceLock<Arc<dyn Pinner>> = OnceLock::new();

/// Sets the process's pinner. The first one stays; false if there was one already. A [`Pinned`] that has reserved a region
/// before stays without: set the pinner before memory is allocated.
pub fn set_pinner(pinner: Arc<dyn Pinner>) -> bool {
    PINNER.set(pinner).is_ok()
}

/// Pins the regions of another backing, where there is a [`Pinner`]. Its device is the CPU.
///
/// Without a [`Pinner`] regions are plain host memory: copies from them work, only slower. The first such region is traced
/// as a warning, and [`Backing::is_pinned`] says so at any time; allocators over it pass that on as
/// [`Semantics::pinned`](crate::Semantics::pinned). A region that cannot be pinned although there is a pinner is refused.
#[derive(Debug)]
pub struct Pinned {
    inner: BackingRef,
    /// The pinner is looked for when the first region is reserved, and stays the same from then on, so
    /// that what was pinned is unpinned.
    pinner: OnceLock<Option<PinnerRef>>,
}

#[derive(Clone)]
struct PinnerRef(Arc<dyn Pinner>);

impl std::fmt::Debug for PinnerRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pinner")
    }
}

impl Pinned {
    /// Pins what comes from `inner`.
    #[must_use]
    pub fn new(inner: BackingRef) -> Self {
        Self { inner, pinner: OnceLock::new() }
    }

    fn pinner(&self) -> Option<&dyn Pinner> {
        let mut is_first = false;
        let chosen = self.pinner.get_or_init(|| {
            is_first = true;
            PINNER.get().cloned().map(PinnerRef)
        });
        if is_first && chosen.is_none() {
            report(|| {
                tracing::warn!("nobody pins memory in this process: pinned memory is plain host memory");
            });
        }
        chosen.as_ref().map(|pinner| &*pinner.0)
    }

    /// [`Pinned::pinner`], if the inner backing's regions are host memory: address space cannot be pinned.
    fn pinner_of_memory(&self) -> Option<&dyn Pinner> {
        self.pinner().filter(|_| self.inner.access() == Access::Host)
    }
}

// SAFETY: regions are the inner backing's, unchanged: pinning fixes their pages and no more.
unsafe impl Backing for Pinned {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        let region = self.inner.reserve(bytes, align)?;
        let Some(pinner) = self.pinner_of_memory() else { return Some(region) };
        // SAFETY: the region was just gained and is released in `release` only, after `unpin`.
        if shielded(|| unsafe { pinner.pin(region.ptr, region.bytes) }).unwrap_or(false) {
            return Some(region);
        }
        // SAFETY: gained above, used by nobody.
        unsafe { self.inner.release(region) };
        None
    }

    unsafe fn release(&self, region: Region) {
        if let Some(pinner) = self.pinner_of_memory() {
            // SAFETY: `reserve` pinned it: the pinner never changes once a region was reserved.
            if shielded(|| unsafe { pinner.unpin(region.ptr, region.bytes) }).is_none() {
                let (address, bytes) = (region.address(), region.bytes);
                report(|| tracing::error!(address, bytes, "a pinner panicked: the memory stays pinned"));
                return;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.inner.release(region) };
    }

    unsafe fn region_bytes(&self, ptr: NonNull<u8>) -> Option<usize> {
        // SAFETY: the caller's promise; regions are the inner backing's.
        unsafe { self.inner.region_bytes(ptr) }
    }

    /// Asking does not settle it: a pinner that is set before the first region counts.
    fn is_pinned(&self) -> bool {
        let has_pinner = self.pinner.get().map_or_else(|| PINNER.get().is_some(), Option::is_some);
        has_pinner && self.inner.access() == Access::Host
    }

    // Who can reach the memory, and where it is, is not for the one that pins it to say.

    fn device(&self) -> Device {
        self.inner.device()
    }

    fn access(&self) -> Access {
        self.inner.access()
    }

    fn node(&self) -> Option<u32> {
        self.inner.node()
    }

    fn name(&self) -> &str {
        "pinned"
    }

    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.inner.zero(ptr, bytes) }
    }
}
