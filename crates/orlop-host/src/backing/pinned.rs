//! Pinned memory: host memory locked for DMA, or plain host memory if the process has no device.

use super::{Access, Backing, BackingRef, Region};
use crate::forward_backing;
use crate::shield::{report, shielded};
use orlop_core::Alignment;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

/// Locks pages for DMA. A device backend provides an implementation.
///
/// It is called under the same conditions as a [`Visitor`](super::Visitor): it may return blocks to the
/// allocator that pins and must not make it grow. A panic in `pin` counts as `false`. After a panic in
/// `unpin` the memory is never released, because a device may still read it.
pub trait Pinner: Send + Sync {
    /// Locks `bytes` bytes from `ptr` on. Returns `false` if that is not possible now.
    ///
    /// # Safety
    ///
    /// The memory is a live allocation and stays one until [`Pinner::unpin`].
    unsafe fn pin(&self, ptr: NonNull<u8>, bytes: usize) -> bool;

    /// Unlocks a range locked by [`Pinner::pin`].
    ///
    /// # Safety
    ///
    /// `self` pinned exactly this range and has not unpinned it since.
    unsafe fn unpin(&self, ptr: NonNull<u8>, bytes: usize);
}

static PINNER: OnceLock<Arc<dyn Pinner>> = OnceLock::new();

/// Sets the process's pinner. Returns `false` if one was set before; that one stays. A [`Pinned`] that
/// reserved a region earlier continues without a pinner, so set it before memory is allocated.
pub fn set_pinner(pinner: Arc<dyn Pinner>) -> bool {
    PINNER.set(pinner).is_ok()
}

/// A backing that pins the regions of another backing with the process's [`Pinner`]. Its device is the CPU.
///
/// Without a [`Pinner`] regions are plain host memory: copies from them work but are slower. The first such
/// region is logged as a warning. [`Backing::is_pinned`] returns the current answer, which allocators over
/// this backing report in their `Semantics`. If there is a pinner and it cannot pin a region, the region is
/// refused.
#[derive(Debug)]
pub struct Pinned {
    inner: BackingRef,
    /// Chosen when the first region is reserved and not changed afterwards, so that every pinned region is
    /// unpinned by the same pinner.
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
    /// Creates a backing that pins the regions of `inner`.
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
                tracing::warn!("no pinner is set in this process: pinned memory is plain host memory");
            });
        }
        chosen.as_ref().map(|pinner| &*pinner.0)
    }

    /// Returns the pinner if the inner backing's regions are host memory: address space cannot be pinned.
    fn pinner_of_memory(&self) -> Option<&dyn Pinner> {
        self.pinner().filter(|_| self.inner.access() == Access::Host)
    }
}

// SAFETY: regions come from the inner backing unchanged; pinning only locks their pages.
unsafe impl Backing for Pinned {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        let region = self.inner.reserve(bytes, align)?;
        let Some(pinner) = self.pinner_of_memory() else { return Some(region) };
        // SAFETY: the region was reserved above and is released only in `release`, after `unpin`.
        if shielded(|| unsafe { pinner.pin(region.ptr, region.bytes) }).unwrap_or(false) {
            return Some(region);
        }
        // SAFETY: reserved above and not passed on.
        unsafe { self.inner.release(region) };
        None
    }

    unsafe fn release(&self, region: Region) {
        if let Some(pinner) = self.pinner_of_memory() {
            // SAFETY: `reserve` pinned it with this pinner, which does not change once a region was reserved.
            if shielded(|| unsafe { pinner.unpin(region.ptr, region.bytes) }).is_none() {
                let (address, bytes) = (region.address(), region.bytes);
                report(|| tracing::error!(address, bytes, "a pinner panicked: the memory stays pinned"));
                return;
            }
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.release(region) };
    }

    /// Does not choose the pinner: one that is set before the first region still counts.
    fn is_pinned(&self) -> bool {
        let has_pinner = self.pinner.get().map_or_else(|| PINNER.get().is_some(), Option::is_some);
        has_pinner && self.inner.access() == Access::Host
    }

    fn name(&self) -> &str {
        "pinned"
    }

    // The defaults of the calls of reservations and of `discard` do nothing: pages are pinned by region, and
    // a device would continue to use discarded ones.
    forward_backing!(
        inner; except reserve, release, is_pinned, name, reserve_addresses, commit_granularity, commit,
        decommit, release_addresses, discard,
    );
}
