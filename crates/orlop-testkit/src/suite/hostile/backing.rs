//! A backing that is user code: it does harm when it is called.

use super::scene::Scene;
use orlop_alloc::Access;
use orlop_alloc::backing::{Backing, Region, Reservation};
use orlop_core::{Alignment, Device};
use std::ptr::NonNull;
use std::sync::Arc;

/// Strikes before it gains memory and after it gave some back, so that a panic loses nothing that it has in hand.
#[derive(Debug)]
pub(super) struct HostileBacking<B> {
    inner: B,
    scene: Arc<Scene>,
}

impl<B: Backing> HostileBacking<B> {
    pub(super) fn new(inner: B, scene: Arc<Scene>) -> Self {
        Self { inner, scene }
    }
}

// SAFETY: regions are the inner backing's, unchanged.
unsafe impl<B: Backing> Backing for HostileBacking<B> {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        self.scene.strike();
        self.inner.reserve(bytes, align)
    }

    unsafe fn release(&self, region: Region) {
        // SAFETY: the caller's promise.
        unsafe { self.inner.release(region) };
        self.scene.strike();
    }

    fn reserve_addresses(&self, capacity: usize, align: Alignment) -> Option<Reservation> {
        self.scene.strike();
        self.inner.reserve_addresses(capacity, align)
    }

    unsafe fn commit(&self, line: &Reservation, from: usize, to: usize) -> bool {
        self.scene.strike();
        // SAFETY: the caller's promise.
        unsafe { self.inner.commit(line, from, to) }
    }

    unsafe fn decommit(&self, line: &Reservation, from: usize, to: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.inner.decommit(line, from, to) };
        self.scene.strike();
    }

    unsafe fn release_addresses(&self, line: Reservation, gained: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.inner.release_addresses(line, gained) };
        self.scene.strike();
    }

    unsafe fn discard(&self, ptr: NonNull<u8>, bytes: usize) -> usize {
        // SAFETY: the caller's promise.
        unsafe { self.inner.discard(ptr, bytes) }
    }

    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        self.scene.strike();
        // SAFETY: the caller's promise.
        unsafe { self.inner.zero(ptr, bytes) }
    }

    unsafe fn region_bytes(&self, ptr: NonNull<u8>) -> Option<usize> {
        self.scene.strike();
        // SAFETY: the caller's promise.
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

    fn commit_granularity(&self) -> Alignment {
        self.inner.commit_granularity()
    }
}
