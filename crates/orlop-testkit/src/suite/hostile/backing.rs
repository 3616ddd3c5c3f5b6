//! [`HostileBacking`]: a backing that runs hostile user code.

use super::state::HostileState;
use orlop_alloc::backing::{Backing, Region, Reservation};
use orlop_alloc::forward_backing;
use orlop_core::Alignment;
use std::ptr::NonNull;
use std::sync::Arc;

/// Runs hostile code before it allocates memory and after it releases some, so that a panic loses nothing.
#[derive(Debug)]
pub(super) struct HostileBacking<B> {
    inner: B,
    state: Arc<HostileState>,
}

impl<B: Backing> HostileBacking<B> {
    pub(super) fn new(inner: B, state: Arc<HostileState>) -> Self {
        Self { inner, state }
    }
}

// SAFETY: regions are the inner backing's, unchanged.
unsafe impl<B: Backing> Backing for HostileBacking<B> {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        self.state.strike();
        self.inner.reserve(bytes, align)
    }

    unsafe fn release(&self, region: Region) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.release(region) };
        self.state.strike();
    }

    fn reserve_addresses(&self, capacity: usize, align: Alignment) -> Option<Reservation> {
        self.state.strike();
        self.inner.reserve_addresses(capacity, align)
    }

    unsafe fn commit(&self, reservation: &Reservation, from: usize, to: usize) -> bool {
        self.state.strike();
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.commit(reservation, from, to) }
    }

    unsafe fn decommit(&self, reservation: &Reservation, from: usize, to: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.decommit(reservation, from, to) };
        self.state.strike();
    }

    unsafe fn release_addresses(&self, reservation: Reservation, committed: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.release_addresses(reservation, committed) };
        self.state.strike();
    }

    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        self.state.strike();
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.zero(ptr, bytes) }
    }

    unsafe fn region_bytes(&self, ptr: NonNull<u8>) -> Option<usize> {
        self.state.strike();
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.region_bytes(ptr) }
    }

    forward_backing!(
        inner; except reserve, release, reserve_addresses, commit, decommit, release_addresses, zero,
        region_bytes,
    );
}
