//! Allocators of Rust's own kind: bare pointers and layouts, over an [`AllocatorRef`](crate::AllocatorRef).
//!
//! | for | what |
//! |---|---|
//! | `#[global_allocator]` | [`GlobalAllocator`] |
//! | `Vec::new_in`, hashbrown, bumpalo … (feature `allocator-api2`) | [`CollectionAllocator`] |
//!
//! Rust's allocators are told the layout again when memory comes back, and no more. A word before the memory says which
//! block it is in; so the way back is as short as any block's.

#[cfg(feature = "allocator-api2")]
mod collections;
mod global;

#[cfg(feature = "allocator-api2")]
pub use self::collections::CollectionAllocator;
#[cfg(all(unix, not(loom)))]
pub(crate) use self::global::FromSystem;
pub use self::global::GlobalAllocator;
pub(crate) use self::global::may_trace;

use crate::{Allocator, RawBlock, Record, Request, Result};
use orlop_core::Alignment;
use std::alloc::Layout;
use std::ptr::NonNull;

/// What is before the memory: which block it is in. `None`: none of ours.
type Header = Option<NonNull<Record>>;

/// How far behind the beginning of its block the memory for `layout` begins: room for the header, aligned as both are.
fn offset(layout: Layout) -> usize {
    layout.align().max(size_of::<Header>())
}

/// The layout of memory with its header before it. `None` if it would be too large.
fn with_header(layout: Layout) -> Option<Layout> {
    let size = layout.size().checked_add(offset(layout))?;
    Layout::from_size_align(size, offset(layout)).ok()
}

/// Writes the header of memory that is `offset` bytes behind `base`, and gives the memory.
///
/// # Safety
///
/// `offset` is [`offset`] of a layout, and from `base` on there is room for [`with_header`] of it, aligned so.
unsafe fn put_header(base: NonNull<u8>, offset: usize, header: Header) -> NonNull<u8> {
    // SAFETY: guaranteed by the caller.
    let memory = unsafe { base.add(offset) };
    // SAFETY: at least a header's length behind the base.
    let place = unsafe { memory.cast::<Header>().sub(1) };
    // SAFETY: inside the memory, and aligned for a header.
    unsafe { place.write(header) };
    memory
}

/// # Safety
///
/// `memory` is from [`put_header`] and has not been given back.
unsafe fn header(memory: NonNull<u8>) -> Header {
    // SAFETY: the caller's promise: there is one before it.
    let place = unsafe { memory.cast::<Header>().sub(1) };
    // SAFETY: as above, and nobody writes it any more.
    unsafe { place.read() }
}

/// Memory for `layout`, which is not empty, in a block of `allocator`'s.
fn allocate(allocator: &impl Allocator, layout: Layout, zeroed: bool) -> Option<NonNull<u8>> {
    let outer = with_header(layout)?;
    let align = Alignment::new(outer.align()).ok()?.max(Alignment::CPU);
    let request = Request { zeroed, ..Request::new(outer.size()).align(align) };
    let cached = allocator.take_cached(&request);
    let block = cached.or_else(|| allocator.allocate(&request).ok())?;
    if block.check_host().is_err() {
        // SAFETY: just handed out. (A refusal leaks what nobody can use.)
        let _ = unsafe { allocator.deallocate(block) };
        return None;
    }
    // SAFETY: the block holds the outer layout.
    Some(unsafe { put_header(block.ptr, offset(layout), Some(block.record())) })
}

/// Returns memory from [`allocate`].
///
/// # Safety
///
/// 1. `record` is the [`header`] of memory from `allocator`, which nobody uses any more;
/// 2. the allocator does not go with its last block: a handle is held, or it never goes.
unsafe fn deallocate<A: Allocator>(allocator: &A, record: NonNull<Record>) -> Result<()> {
    // SAFETY: the header of a block that was given up for a bare pointer.
    let block = unsafe { RawBlock::from_record(record) };
    // SAFETY: guaranteed by the caller.
    match unsafe { A::give_cached(NonNull::from(allocator), block) } {
        None => Ok(()),
        // SAFETY: as above; the block is as it was.
        Some(block) => unsafe { allocator.deallocate(block) },
    }
}
