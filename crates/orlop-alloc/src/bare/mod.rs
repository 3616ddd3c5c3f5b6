//! Allocators with Rust's own interfaces, which use bare pointers and layouts.
//!
//! | for | type |
//! |---|---|
//! | `#[global_allocator]` | [`GlobalAllocator`] |
//! | `Vec::new_in`, hashbrown, bumpalo … (feature `allocator-api2`) | `CollectionAllocator` |
//!
//! A free through these interfaces passes a pointer and its layout only. A header of one word before the
//! memory points to the record of its block, so that a free is as fast as that of a [`Block`].
//!
//! # Provenance
//!
//! The header is outside of what the caller's pointer may access: a `Box<T>` may access a `T`. So the
//! provenance of the whole memory is exposed when it is handed out, and headers are read through it.

#[cfg(feature = "allocator-api2")]
mod collections;
mod global;
mod observed;

#[cfg(feature = "allocator-api2")]
pub use self::collections::CollectionAllocator;
pub use self::global::GlobalAllocator;
#[cfg(all(unix, not(loom)))]
pub(crate) use self::global::SystemScope;

use crate::{Allocator, AllocatorRef, Block, Record, Request, Result};
use orlop_core::Alignment;
use std::alloc::Layout;
use std::ptr::NonNull;

/// What gives a `CollectionAllocator` its blocks: the handle of an allocator, or the `Context` of
/// `orlop-context`, whose budgets and reclaim ladder apply then.
pub trait BlockSource {
    /// Allocates a block on the CPU.
    ///
    /// # Errors
    ///
    /// Those of the allocator.
    fn allocate_block(&self, request: &Request) -> Result<Block>;
}

impl<A: ?Sized + Allocator> BlockSource for AllocatorRef<A> {
    fn allocate_block(&self, request: &Request) -> Result<Block> {
        self.allocate(request)
    }
}

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
    // For `header` and `base`.
    base.as_ptr().expose_provenance();
    memory
}

/// Returns the start of memory from [`put_header`], with the provenance of all of it: `offset` is the same.
fn base(memory: NonNull<u8>, offset: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(memory.addr().get().wrapping_sub(offset))
}

/// Reads the header of memory.
///
/// # Safety
///
/// `memory` came from [`put_header`] and has not been freed.
unsafe fn header(memory: NonNull<u8>) -> Header {
    let address = memory.addr().get().wrapping_sub(size_of::<Header>());
    // SAFETY: guaranteed by the caller: there is a header before the memory, whose provenance `put_header`
    // exposed, and which is not written afterwards.
    unsafe { std::ptr::with_exposed_provenance::<Header>(address).read() }
}

/// Returns the request for a block of memory for `layout`, which is not empty, with its header. `None` if it
/// is too large.
fn request(layout: Layout, zeroed: bool) -> Option<Request> {
    let outer = with_header(layout)?;
    let align = Alignment::new(outer.align()).ok()?.max(Alignment::CPU);
    Some(Request { zeroed, ..Request::new(outer.size()).align(align) })
}
