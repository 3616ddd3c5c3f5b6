//! Backings over other backings: `forward_backing!` leaves out no method that it is not told to leave out.
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "one call after the other, of a mock")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use orlop_alloc::backing::{Backing, Region, Reservation, System};
use orlop_alloc::engine::{Arena, ThreadArenas};
use orlop_alloc::{Access, Allocator, Request, forward_backing};
use orlop_core::{Alignment, Device};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// A backing without memory, which records its calls. No answer of it is the trait's default.
#[derive(Debug, Default)]
struct RecordingBacking(Mutex<Vec<&'static str>>);

impl RecordingBacking {
    const DEVICE: Device = Device::custom(7, 3);

    fn note<T>(&self, call: &'static str, answer: T) -> T {
        self.0.lock().unwrap().push(call);
        answer
    }
}

// SAFETY: addresses that no processor accesses.
unsafe impl Backing for RecordingBacking {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        self.note("reserve", Some(Region { ptr: NonNull::dangling(), bytes, align, zeroed: true }))
    }
    unsafe fn release(&self, _: Region) {
        self.note("release", ());
    }
    fn reserve_addresses(&self, capacity: usize, _: Alignment) -> Option<Reservation> {
        self.note("reserve_addresses", Some(Reservation { ptr: NonNull::dangling(), capacity }))
    }
    fn commit_granularity(&self) -> Alignment {
        self.note("commit_granularity", Alignment::ONE)
    }
    unsafe fn commit(&self, _: &Reservation, from: usize, to: usize) -> bool {
        self.note("commit", (from, to) == (1, 2))
    }
    unsafe fn decommit(&self, _: &Reservation, from: usize, to: usize) {
        assert_eq!((from, to), (2, 1));
        self.note("decommit", ());
    }
    unsafe fn release_addresses(&self, _: Reservation, committed: usize) {
        assert_eq!(committed, 5);
        self.note("release_addresses", ());
    }
    unsafe fn discard(&self, _: NonNull<u8>, bytes: usize) -> usize {
        self.note("discard", bytes)
    }
    unsafe fn region_bytes(&self, _: NonNull<u8>) -> Option<usize> {
        self.note("region_bytes", Some(9))
    }
    fn is_pinned(&self) -> bool {
        self.note("is_pinned", true)
    }
    fn device(&self) -> Device {
        self.note("device", Self::DEVICE)
    }
    fn access(&self) -> Access {
        self.note("access", Access::Device)
    }
    fn name(&self) -> &str {
        self.note("name", "recording")
    }
    fn node(&self) -> Option<u32> {
        self.note("node", Some(4))
    }
    unsafe fn zero(&self, _: NonNull<u8>, bytes: usize) -> bool {
        self.note("zero", bytes == 6)
    }
}

/// Calls every method of a wrapper, and checks the answers and that each call arrived.
fn check(wrapper: &impl Backing, inner: &RecordingBacking) {
    let region = wrapper.reserve(8, Alignment::ONE).unwrap();
    let reservation = wrapper.reserve_addresses(16, Alignment::ONE).unwrap();
    assert_eq!((region.bytes, reservation.capacity), (8, 16));
    assert_eq!(wrapper.commit_granularity(), Alignment::ONE);
    // SAFETY: the backing has no memory.
    unsafe {
        assert!(wrapper.commit(&reservation, 1, 2));
        wrapper.decommit(&reservation, 2, 1);
        wrapper.release_addresses(reservation, 5);
        assert_eq!(wrapper.discard(region.ptr, 3), 3);
        assert_eq!(wrapper.region_bytes(region.ptr), Some(9));
        assert!(wrapper.zero(region.ptr, 6));
        wrapper.release(region);
    }
    assert!(wrapper.is_pinned());
    assert_eq!((wrapper.device(), wrapper.access()), (RecordingBacking::DEVICE, Access::Device));
    assert_eq!((wrapper.name(), wrapper.node()), ("recording", Some(4)));
    let mut calls = std::mem::take(&mut *inner.0.lock().unwrap());
    calls.sort_unstable();
    assert_eq!(
        calls,
        [
            "access",
            "commit",
            "commit_granularity",
            "decommit",
            "device",
            "discard",
            "is_pinned",
            "name",
            "node",
            "region_bytes",
            "release",
            "release_addresses",
            "reserve",
            "reserve_addresses",
            "zero",
        ]
    );
}

#[derive(Debug)]
struct Wrapper {
    inner: Arc<RecordingBacking>,
}

// SAFETY: regions are the inner backing's, unchanged.
unsafe impl Backing for Wrapper {
    forward_backing!(inner);
}

#[test]
fn every_method_is_forwarded() {
    let inner = Arc::<RecordingBacking>::default();
    check(&inner, &inner);
    check(&Box::new(Arc::clone(&inner)), &inner);
    check(&Wrapper { inner: Arc::clone(&inner) }, &inner);
}

#[test]
fn arenas_of_threads_are_as_pinned_as_their_memory() {
    #[derive(Debug, Clone)]
    struct AllPinned(System);
    // SAFETY: the system's memory, unchanged; no device accesses it by DMA.
    unsafe impl Backing for AllPinned {
        fn is_pinned(&self) -> bool {
            true
        }
        forward_backing!(0; except is_pinned);
    }
    let backing = AllPinned(System::new());
    let one = Arena::new(backing.clone(), 1 << 16).into_ref();
    let many = ThreadArenas::new(backing, 1 << 16).into_ref();
    assert!(one.semantics().pinned && many.semantics().pinned);
    assert!(many.allocate(&Request::new(100)).unwrap().is_pinned());
}
