//! Other allocators in orlop's conformance suite.
//!
//! A peer decides where blocks are in a pool ([`Placement`]); [`PeerBacking`] makes a backing of it. Under
//! the engine [`Direct`](orlop::memory::engine::Direct), which has a region for each block, the suite
//! tests the peer: overlaps, alignments, contents, memory that is lost, what a full pool does.

mod backing;
mod offset_allocator;
mod range_alloc;
mod rlsf;

pub use self::backing::PeerBacking;
pub use self::offset_allocator::OffsetAllocator;
pub use self::range_alloc::RangeAlloc;
pub use self::rlsf::Rlsf;

use std::fmt::Debug;

/// A peer: it decides where blocks are in a pool.
///
/// # Safety
///
/// Between [`Placement::place`] and [`Placement::free`], the `bytes` bytes from the offset on are inside the
/// pool, are in no other block, and are not accessed by the peer.
pub unsafe trait Placement: Debug + Send + Sized + 'static {
    /// The name of the peer's crate.
    const NAME: &'static str;

    /// Creates the peer for a pool. It may write its metadata there, outside of blocks.
    fn new(pool: &'static mut [u8]) -> Self;

    /// Returns the offset in the pool of `bytes` free bytes, a multiple of `align`; `None` if there are none.
    /// The pool begins at a multiple of every alignment that is asked for.
    fn place(&mut self, bytes: usize, align: usize) -> Option<usize>;

    /// Takes a block back.
    ///
    /// # Safety
    ///
    /// [`Placement::place`] returned `offset` for `bytes` and `align`, and the block was not freed since.
    unsafe fn free(&mut self, offset: usize, bytes: usize, align: usize);
}
