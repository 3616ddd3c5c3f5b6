//! What a user would pick instead: global allocators, TLSF over a ready pool, and the two maps behind a mutex
//! that engines usually begin with. Each is called as its own users would call it, at 64-byte alignment.

use crate::{Operation, Operations};
use std::alloc::{GlobalAlloc, Layout};
use std::collections::HashMap;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// Hands out memory and takes it back, told the size.
pub trait Peer: Sync {
    /// At least `bytes` at 64 bytes.
    fn take(&self, bytes: usize) -> NonNull<u8>;

    /// Back.
    ///
    /// # Safety
    ///
    /// From `take` with the same `bytes`, not freed before, and unused.
    unsafe fn give(&self, ptr: NonNull<u8>, bytes: usize);
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes.max(1), 64).expect("sizes of the traces are moderate")
}

fn checked(ptr: *mut u8) -> NonNull<u8> {
    NonNull::new(ptr).expect("the machine has memory for the traces")
}

/// Any global allocator.
#[derive(Debug)]
pub struct Global<G>(pub G);

impl<G: GlobalAlloc + Sync> Peer for Global<G> {
    fn take(&self, bytes: usize) -> NonNull<u8> {
        // SAFETY: the size is not zero.
        checked(unsafe { self.0.alloc(layout(bytes)) })
    }

    unsafe fn give(&self, ptr: NonNull<u8>, bytes: usize) {
        // SAFETY: from `take` with the same layout.
        unsafe { self.0.dealloc(ptr.as_ptr(), layout(bytes)) };
    }
}

/// The system's allocator, as shipped.
#[must_use]
pub fn system() -> Global<std::alloc::System> {
    Global(std::alloc::System)
}

/// Free lists by rounded size behind one mutex: the first pool that everybody writes.
#[derive(Debug)]
pub struct MutexMap {
    lists: Mutex<HashMap<usize, Vec<usize>>>,
    pow2: bool,
}

impl MutexMap {
    /// By exact size.
    #[must_use]
    pub fn exact() -> Self {
        Self { lists: Mutex::default(), pow2: false }
    }

    /// By powers of two.
    #[must_use]
    pub fn pow2() -> Self {
        Self { lists: Mutex::default(), pow2: true }
    }

    fn round(&self, bytes: usize) -> usize {
        if self.pow2 { bytes.next_power_of_two().max(64) } else { bytes.max(1).next_multiple_of(64) }
    }
}

impl Peer for MutexMap {
    fn take(&self, bytes: usize) -> NonNull<u8> {
        let bytes = self.round(bytes);
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(address) = lists.get_mut(&bytes).and_then(Vec::pop) {
            return checked(std::ptr::with_exposed_provenance_mut(address));
        }
        drop(lists);
        system().take(bytes)
    }

    unsafe fn give(&self, ptr: NonNull<u8>, bytes: usize) {
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.entry(self.round(bytes)).or_default().push(ptr.as_ptr().expose_provenance());
    }
}

impl Drop for MutexMap {
    fn drop(&mut self) {
        let lists = std::mem::take(&mut *self.lists.lock().unwrap_or_else(PoisonError::into_inner));
        for (bytes, list) in lists {
            for address in list {
                // SAFETY: taken from the system with this size; the memory in the lists is unused.
                unsafe { system().give(checked(std::ptr::with_exposed_provenance_mut(address)), bytes) };
            }
        }
    }
}

type Tlsf = rlsf::Tlsf<'static, u64, u64, 40, 32>;

/// TLSF over one ready pool, behind a mutex.
pub struct ReadyTlsf {
    tlsf: Mutex<Tlsf>,
}

impl ReadyTlsf {
    /// Over a pool of `bytes`, which is not given back before the process ends.
    ///
    /// # Panics
    ///
    /// If there is no memory for the pool.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let pool: &'static mut [MaybeUninit<u8>] = Box::leak(Box::new_uninit_slice(bytes));
        let mut tlsf = Tlsf::new();
        tlsf.insert_free_block(pool);
        Self { tlsf: Mutex::new(tlsf) }
    }
}

impl std::fmt::Debug for ReadyTlsf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReadyTlsf")
    }
}

impl Peer for ReadyTlsf {
    fn take(&self, bytes: usize) -> NonNull<u8> {
        let mut tlsf = self.tlsf.lock().unwrap_or_else(PoisonError::into_inner);
        tlsf.allocate(layout(bytes)).expect("the pool is twice the peak")
    }

    unsafe fn give(&self, ptr: NonNull<u8>, _: usize) {
        let mut tlsf = self.tlsf.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: from `take` with this alignment.
        unsafe { tlsf.deallocate(ptr, 64) };
    }
}

/// One pass of a trace through a peer, first byte touched. `slots` has a place for each of the trace's slots,
/// and is empty before and after.
///
/// # Panics
///
/// If `slots` is too short.
pub fn pass(peer: &dyn Peer, operations: &Operations, slots: &mut [Option<(NonNull<u8>, usize)>]) {
    for &Operation { bytes, slot, returned } in operations.iter() {
        let slot = &mut slots[slot as usize];
        if !returned {
            let ptr = peer.take(bytes);
            // SAFETY: at least one byte, and ours.
            unsafe { ptr.write_volatile(1) };
            *slot = Some((ptr, bytes));
        } else if let Some((ptr, bytes)) = slot.take() {
            // SAFETY: taken above with these bytes, and unused.
            unsafe { peer.give(ptr, bytes) };
        }
    }
    clear(peer, slots);
}

/// Returns what is left, as at the end of a pass.
fn clear(peer: &dyn Peer, slots: &mut [Option<(NonNull<u8>, usize)>]) {
    for (ptr, bytes) in slots.iter_mut().filter_map(Option::take) {
        // SAFETY: taken in a pass with these bytes, and unused.
        unsafe { peer.give(ptr, bytes) };
    }
}

/// Candle's uninitialised tensor of `floats` floats.
///
/// # Panics
///
/// Without memory.
#[cfg(feature = "peers")]
#[must_use]
pub fn candle_empty(floats: usize) -> candle_core::Tensor {
    // SAFETY: nothing reads it.
    let tensor =
        unsafe { candle_core::Tensor::empty(floats, candle_core::DType::F32, &candle_core::Device::Cpu) };
    tensor.expect("memory for the benches")
}
