//! Visitors: callbacks for every region that is reserved or released, for example to register memory with a
//! network adapter.

use super::{Backing, Region, Reservation};
use crate::forward_backing;
use crate::shield::{report, shielded};
use orlop_core::Alignment;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// What happens to a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionChange {
    /// The region was just reserved and is not in use yet.
    Reserved,
    /// The region is about to be released and is no longer in use.
    Released,
}

/// A callback that receives each region and its NUMA node, if known, on the thread whose request or free
/// caused the change.
///
/// The allocator that owns the region may be in the middle of a change. A visitor may return blocks to it,
/// allocate from its cache, read its statistics, verify it and drop its last handle. It cannot make it grow:
/// a request that needs memory from the backing fails with `Error::Reentrant`, and trimming releases
/// nothing.
///
/// If a visitor panics on [`RegionChange::Reserved`], the region is refused: the visitors called before it
/// are called with [`RegionChange::Released`], and the request is served otherwise or fails as out of memory.
/// A panic on [`RegionChange::Released`] changes nothing. Both are logged.
pub type Visitor = Arc<dyn Fn(RegionChange, &Region, Option<u32>) + Send + Sync>;

/// Visitors in the order in which they are called for a region that is reserved. For one that is released,
/// the order is the reverse.
#[derive(Clone)]
pub struct Visitors(Vec<Visitor>);

impl Visitors {
    /// Creates a list.
    #[must_use]
    pub fn new(visitors: Vec<Visitor>) -> Self {
        Self(visitors)
    }

    /// Calls all visitors for a reserved region of the backing with this name, on this node. Returns `false`
    /// if one panicked; the visitors before it have then been called for the release.
    pub fn notify_reserved(&self, region: &Region, node: Option<u32>, backing: &str) -> bool {
        let call = |visitor: &Visitor| call(visitor, RegionChange::Reserved, region, node, backing);
        let Some(refused) = self.0.iter().position(|visitor| !call(visitor)) else { return true };
        release(&self.0[..refused], region, node, backing);
        false
    }

    /// Calls all visitors for a region that is released.
    pub fn notify_released(&self, region: &Region, node: Option<u32>, backing: &str) {
        release(&self.0, region, node, backing);
    }
}

fn release(visitors: &[Visitor], region: &Region, node: Option<u32>, backing: &str) {
    for visitor in visitors.iter().rev() {
        call(visitor, RegionChange::Released, region, node, backing);
    }
}

/// Returns `true` if the visitor returned without a panic.
fn call(visitor: &Visitor, change: RegionChange, region: &Region, node: Option<u32>, backing: &str) -> bool {
    let returned = shielded(|| visitor(change, region, node)).is_some();
    if !returned {
        let (address, bytes) = (region.address(), region.bytes);
        report(|| tracing::error!(backing, ?change, address, bytes, "a visitor panicked"));
    }
    returned
}

impl fmt::Debug for Visitors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Visitors").field(&self.0.len()).finish()
    }
}

/// A backing that calls visitors.
///
/// The list is fixed at construction, so a visitor that saw a region reserved also sees it released. A region
/// keeps its pages in between.
#[derive(Debug)]
pub struct Visited<B> {
    inner: B,
    visitors: Visitors,
}

impl<B: Backing> Visited<B> {
    /// Creates a backing over `inner` that calls `visitors` in this order when a region is reserved and in
    /// reverse order when it is released.
    #[must_use]
    pub fn new(inner: B, visitors: Vec<Visitor>) -> Self {
        Self { inner, visitors: Visitors::new(visitors) }
    }

    fn notify_reserved(&self, region: &Region) -> bool {
        self.visitors.notify_reserved(region, self.inner.node(), self.inner.name())
    }

    fn notify_released(&self, region: &Region) {
        self.visitors.notify_released(region, self.inner.node(), self.inner.name());
    }
}

// SAFETY: regions come from the inner backing unchanged.
unsafe impl<B: Backing> Backing for Visited<B> {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        let region = self.inner.reserve(bytes, align)?;
        if self.notify_reserved(&region) {
            return Some(region);
        }
        // SAFETY: reserved above and not passed on.
        unsafe { self.inner.release(region) };
        None
    }

    unsafe fn release(&self, region: Region) {
        self.notify_released(&region);
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.release(region) };
    }

    unsafe fn commit(&self, reservation: &Reservation, from: usize, to: usize) -> bool {
        // SAFETY: guaranteed by the caller.
        if !unsafe { self.inner.commit(reservation, from, to) } {
            return false;
        }
        let is_accepted = self.notify_reserved(&part(reservation, from, to));
        if !is_accepted {
            // SAFETY: reserved above and not passed on.
            unsafe { self.inner.decommit(reservation, to, from) };
        }
        is_accepted
    }

    unsafe fn decommit(&self, reservation: &Reservation, from: usize, to: usize) {
        self.notify_released(&part(reservation, to, from));
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.decommit(reservation, from, to) };
    }

    unsafe fn release_addresses(&self, reservation: Reservation, committed: usize) {
        if committed > 0 {
            self.notify_released(&part(&reservation, 0, committed));
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.release_addresses(reservation, committed) };
    }

    /// Discards nothing: a visitor may have registered the pages with a device, which would continue to use
    /// the old ones.
    unsafe fn discard(&self, _: NonNull<u8>, _: usize) -> usize {
        0
    }

    forward_backing!(inner; except reserve, release, commit, decommit, release_addresses, discard);
}

/// Returns the bytes `from..to` of a reservation as a region.
fn part(reservation: &Reservation, from: usize, to: usize) -> Region {
    // SAFETY: `from` is within the reservation.
    let ptr = unsafe { reservation.ptr.add(from) };
    Region { ptr, bytes: to - from, align: Alignment::ONE, zeroed: true }
}
