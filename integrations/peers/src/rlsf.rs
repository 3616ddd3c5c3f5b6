//! `rlsf`: two-level segregated fit. Its metadata is in the pool, in front of each block.

use crate::Placement;
use rlsf::Tlsf;
use std::alloc::Layout;
use std::ptr::NonNull;

/// A pool of `rlsf`.
#[derive(Debug)]
pub struct Rlsf {
    tlsf: Tlsf<'static, u32, u32, 32, 32>,
    /// The pool's first byte, with the provenance of all of it.
    pool: NonNull<u8>,
}

// SAFETY: the pool and its metadata belong to this alone.
unsafe impl Send for Rlsf {}

// SAFETY: `rlsf` hands out blocks of the memory that it was given, and keeps its headers outside of them.
unsafe impl Placement for Rlsf {
    const NAME: &'static str = "rlsf";

    fn new(pool: &'static mut [u8]) -> Self {
        let all = NonNull::from(&mut *pool);
        let mut tlsf = Tlsf::new();
        // SAFETY: nothing else uses the pool, which outlives this. A pool that is too small is left out.
        let _ = unsafe { tlsf.insert_free_block_ptr(all) };
        Self { tlsf, pool: all.cast() }
    }

    fn place(&mut self, bytes: usize, align: usize) -> Option<usize> {
        let block = self.tlsf.allocate(Layout::from_size_align(bytes, align).ok()?)?;
        Some(block.as_ptr().addr() - self.pool.as_ptr().addr())
    }

    unsafe fn free(&mut self, offset: usize, _: usize, align: usize) {
        // SAFETY: inside the pool (guaranteed by the caller).
        let block = unsafe { self.pool.add(offset) };
        // SAFETY: allocated with this alignment, and freed once (guaranteed by the caller).
        unsafe { self.tlsf.deallocate(block, align) };
    }
}
