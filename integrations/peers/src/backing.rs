//! A backing over a peer and its pool.

use crate::Placement;
use orlop::memory::backing::{Backing, Region, System};
use orlop::types::Alignment;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::slice;
use std::sync::{Mutex, PoisonError};

/// The alignment of a pool in bytes: the largest that the suite asks for.
const POOL_ALIGN: usize = 2 << 20;

/// A backing whose regions a peer places in a pool of a fixed size.
#[derive(Debug)]
pub struct PeerBacking<P: Placement> {
    peer: ManuallyDrop<Mutex<P>>,
    /// Of the system's allocator.
    pool: Region,
}

impl<P: Placement> PeerBacking<P> {
    /// Creates a pool of `bytes` bytes. Returns `None` if there is no memory for it.
    #[must_use]
    pub fn new(bytes: usize) -> Option<Self> {
        let pool = System::new().reserve(bytes.max(1), Alignment::new(POOL_ALIGN).ok()?)?;
        // SAFETY: a fresh region, initialised. The peer, which has it, is dropped before it is released.
        let memory = unsafe { slice::from_raw_parts_mut(pool.ptr.as_ptr(), pool.bytes) };
        Some(Self { peer: ManuallyDrop::new(Mutex::new(P::new(memory))), pool })
    }
}

impl<P: Placement> Drop for PeerBacking<P> {
    fn drop(&mut self) {
        // SAFETY: the only drop of it.
        unsafe { ManuallyDrop::drop(&mut self.peer) };
        // SAFETY: of this backing, and no longer in use: the peer is gone, and engines hold a backing as long
        // as they have regions of it.
        unsafe { System::new().release(self.pool) };
    }
}

// SAFETY: the pool is initialised; regions are inside and apart (`Placement`).
// Alignment is asserted, and the pool is a multiple of the largest alignment that is served.
unsafe impl<P: Placement> Backing for PeerBacking<P> {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        if align.bytes() > POOL_ALIGN || bytes > self.pool.bytes {
            return None;
        }
        let mut peer = self.peer.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = peer.place(bytes, align.bytes())?;
        drop(peer);
        assert_eq!(offset % align.bytes(), 0, "{}: an offset of {offset} for {align}", P::NAME);
        let end = offset.checked_add(bytes).filter(|&end| end <= self.pool.bytes);
        assert!(end.is_some(), "{}: {bytes} bytes at {offset} are outside of the pool", P::NAME);
        // SAFETY: inside the pool.
        let ptr = unsafe { self.pool.ptr.add(offset) };
        Some(Region { ptr, bytes, align, zeroed: false })
    }

    unsafe fn release(&self, region: Region) {
        let offset = region.address() - self.pool.address();
        let mut peer = self.peer.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: a region of `reserve`, released once (guaranteed by the caller).
        unsafe { peer.free(offset, region.bytes, region.align.bytes()) };
    }

    fn name(&self) -> &str {
        P::NAME
    }

    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: inside a live region that nothing else accesses (guaranteed by the caller).
        unsafe { ptr.write_bytes(0, bytes) };
        true
    }
}
