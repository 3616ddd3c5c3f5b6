//! Visitors: called on every region gained or given back (T5), to register memory with a NIC, say.

use super::{Backing, Region, Reservation};
use crate::Access;
use crate::shield::{report, shielded};
use orlop_core::{Alignment, Device};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// Whether a region came or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionChange {
    /// The region was just gained; nobody uses it yet.
    Reserved,
    /// The region is about to be given back; nobody uses it any more.
    Released,
}

/// Called with each region and its NUMA node, if known, on the thread whose request or return brought it about.
///
/// The allocator whose region it is may be about to change what it holds. A visitor may return blocks to it, take what it
/// has cached, ask for its figures and verify it, and drop its last handle. It cannot make it grow: a request that needs
/// memory from the backing is refused with [`Error::Reentrant`](crate::Error::Reentrant), and trimming gives nothing back.
///
/// A visitor that panics on a gain refuses the region: those before it are told of the loss, and the request is served
/// otherwise or fails as out of memory. One that panics on a loss changes nothing. Both are traced.
pub type Visitor = Arc<dyn Fn(RegionChange, &Region, Option<u32>) + Send + Sync>;

/// A backing that calls visitors. What they saw gained keeps its pages until they see it lost. They are fixed when it is made: a region that was gained in front of a
/// visitor is lost in front of it too.
pub struct Visited<B> {
    inner: B,
    visitors: Vec<Visitor>,
}

impl<B: Backing> Visited<B> {
    /// Tells `visitors`, in this order at gain and in the reverse order at loss.
    #[must_use]
    pub fn new(inner: B, visitors: Vec<Visitor>) -> Self {
        Self { inner, visitors }
    }
}

impl<B: Backing> Visited<B> {
    /// Tells all visitors of a gain. False if one panicked; then those before it were told of the loss.
    fn is_welcome(&self, region: &Region) -> bool {
        let refuses = |visitor: &Visitor| !self.call(visitor, RegionChange::Reserved, region);
        let Some(refused) = self.visitors.iter().position(refuses) else { return true };
        self.lose(&self.visitors[..refused], region);
        false
    }

    /// Tells visitors of a loss, the last one first.
    fn lose(&self, visitors: &[Visitor], region: &Region) {
        for visitor in visitors.iter().rev() {
            self.call(visitor, RegionChange::Released, region);
        }
    }

    /// Whether the visitor returned.
    fn call(&self, visitor: &Visitor, change: RegionChange, region: &Region) -> bool {
        let returned = shielded(|| visitor(change, region, self.inner.node())).is_some();
        if !returned {
            let (address, bytes) = (region.address(), region.bytes);
            report(|| {
                tracing::error!(backing = self.inner.name(), ?change, address, bytes, "a visitor panicked");
            });
        }
        returned
    }
}

// SAFETY: regions are the inner backing's, unchanged.
unsafe impl<B: Backing> Backing for Visited<B> {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        let region = self.inner.reserve(bytes, align)?;
        if self.is_welcome(&region) {
            return Some(region);
        }
        // SAFETY: just gained, and nobody else knows it.
        unsafe { self.inner.release(region) };
        None
    }

    unsafe fn release(&self, region: Region) {
        self.lose(&self.visitors, &region);
        // SAFETY: the caller's promise.
        unsafe { self.inner.release(region) };
    }

    fn reserve_addresses(&self, capacity: usize, align: Alignment) -> Option<Reservation> {
        self.inner.reserve_addresses(capacity, align)
    }

    fn commit_granularity(&self) -> Alignment {
        self.inner.commit_granularity()
    }

    unsafe fn commit(&self, line: &Reservation, from: usize, to: usize) -> bool {
        // SAFETY: the caller's promise.
        if !unsafe { self.inner.commit(line, from, to) } {
            return false;
        }
        let is_welcome = self.is_welcome(&piece(line, from, to));
        if !is_welcome {
            // SAFETY: just gained, and nobody else knows it.
            unsafe { self.inner.decommit(line, to, from) };
        }
        is_welcome
    }

    unsafe fn decommit(&self, line: &Reservation, from: usize, to: usize) {
        self.lose(&self.visitors, &piece(line, to, from));
        // SAFETY: the caller's promise.
        unsafe { self.inner.decommit(line, from, to) };
    }

    unsafe fn release_addresses(&self, line: Reservation, gained: usize) {
        if gained > 0 {
            self.lose(&self.visitors, &piece(&line, 0, gained));
        }
        // SAFETY: the caller's promise.
        unsafe { self.inner.release_addresses(line, gained) };
    }

    /// Nothing: a visitor may have registered the pages with a device, which goes on using the ones that were there.
    unsafe fn discard(&self, _: NonNull<u8>, _: usize) -> usize {
        0
    }

    unsafe fn region_bytes(&self, ptr: NonNull<u8>) -> Option<usize> {
        // SAFETY: the caller's promise; regions are the inner backing's.
        unsafe { self.inner.region_bytes(ptr) }
    }

    fn is_pinned(&self) -> bool {
        self.inner.is_pinned()
    }

    fn device(&self) -> Device {
        self.inner.device()
    }

    fn access(&self) -> Access {
        self.inner.access()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn node(&self) -> Option<u32> {
        self.inner.node()
    }

    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.inner.zero(ptr, bytes) }
    }
}

/// The bytes of a line from `from` to `to`.
fn piece(line: &Reservation, from: usize, to: usize) -> Region {
    // SAFETY: inside the line.
    let ptr = unsafe { line.ptr.add(from) };
    Region { ptr, bytes: to - from, align: Alignment::ONE, zeroed: true }
}

impl<B: fmt::Debug> fmt::Debug for Visited<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visited")
            .field("inner", &self.inner)
            .field("visitors", &self.visitors.len())
            .finish_non_exhaustive()
    }
}
