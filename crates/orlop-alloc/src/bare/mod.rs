//! Allocators with Rust's own interfaces, which use bare pointers and layouts, over an
//! [`AllocatorRef`](crate::AllocatorRef).
//!
//! | for | type |
//! |---|---|
//! | `#[global_allocator]` | [`GlobalAllocator`] |
//! | `Vec::new_in`, hashbrown, bumpalo … (feature `allocator-api2`) | `CollectionAllocator` |
//!
//! A free through these interfaces passes a pointer and its layout only. A header of one word before the
//! memory points to the record of its block, so that a free is as fast as that of a [`Block`](crate::Block).

#[cfg(feature = "allocator-api2")]
mod collections;
mod global;

#[cfg(feature = "allocator-api2")]
pub use self::collections::CollectionAllocator;
pub use self::global::GlobalAllocator;
#[cfg(all(unix, not(loom)))]
pub(crate) use self::global::SystemScope;

use crate::{Allocator, RawBlock, Record, Request, Result};
use orlop_core::Alignment;
use std::alloc::Layout;
use std::ptr::NonNull;

/// The header before the memory: the record of the block that contains it, or `None` for memory from the
/// system's allocator.
type Header = Option<NonNull<Record>>;

/// Returns the offset in bytes of the memory for `layout` within its block: room for the header, at the
/// alignment of both.
fn offset(layout: Layout) -> usize {
    layout.align().max(size_of::<Header>())
}

/// Returns the layout of memory with its header before it, or `None` if it is too large.
fn with_header(layout: Layout) -> Option<Layout> {
    let size = layout.size().checked_add(offset(layout))?;
    Layout::from_size_align(size, offset(layout)).ok()
}

/// Writes the header of the memory that begins `offset` bytes after `base`, and returns that memory.
///
/// # Safety
///
/// `offset` is [`offset`] of a layout, and from `base` on there are the size and the alignment of
/// [`with_header`] of that layout.
unsafe fn put_header(base: NonNull<u8>, offset: usize, header: Header) -> NonNull<u8> {
    // SAFETY: guaranteed by the caller.
    let memory = unsafe { base.add(offset) };
    // SAFETY: `memory` is at least the length of a header after `base`.
    let place = unsafe { memory.cast::<Header>().sub(1) };
    // SAFETY: inside the allocation, and aligned for a header.
    unsafe { place.write(header) };
    memory
}

/// Reads the header of memory.
///
/// # Safety
///
/// `memory` came from [`put_header`] and has not been freed.
unsafe fn header(memory: NonNull<u8>) -> Header {
    // SAFETY: guaranteed by the caller: there is a header before the memory.
    let place = unsafe { memory.cast::<Header>().sub(1) };
    // SAFETY: as above, and the header is not written after `put_header`.
    unsafe { place.read() }
}

/// Allocates memory for `layout`, which is not empty, in a block of `allocator`. Returns `None` if it fails.
fn allocate(allocator: &impl Allocator, layout: Layout, zeroed: bool) -> Option<NonNull<u8>> {
    let outer = with_header(layout)?;
    let align = Alignment::new(outer.align()).ok()?.max(Alignment::CPU);
    let request = Request { zeroed, ..Request::new(outer.size()).align(align) };
    let cached = allocator.take_cached(&request);
    let block = cached.or_else(|| allocator.allocate(&request).ok())?;
    if block.check_host().is_err() {
        // SAFETY: allocated above and not passed on. (If the allocator refuses it, it leaks memory that the
        // host cannot access.)
        let _ = unsafe { allocator.deallocate(block) };
        return None;
    }
    // SAFETY: the block has the size and alignment of `outer`.
    Some(unsafe { put_header(block.ptr, offset(layout), Some(block.record())) })
}

/// Frees memory from [`allocate`].
///
/// # Safety
///
/// 1. `record` is the [`header`] of memory from `allocator` that is no longer in use;
/// 2. the allocator outlives its last block: there is a handle, or it is never destroyed.
unsafe fn deallocate<A: Allocator>(allocator: &A, record: NonNull<Record>) -> Result<()> {
    // SAFETY: the header of a block that [`allocate`] converted into a bare pointer.
    let block = unsafe { RawBlock::from_record(record) };
    // SAFETY: guaranteed by the caller.
    match unsafe { A::give_cached(NonNull::from(allocator), block) } {
        None => Ok(()),
        // SAFETY: as above; `give_cached` returned the block unchanged.
        Some(block) => unsafe { allocator.deallocate(block) },
    }
}
