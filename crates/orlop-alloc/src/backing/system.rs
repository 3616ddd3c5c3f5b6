//! Memory from a Rust global allocator: the system's, or one of the named ones.

use super::{Backing, Mmap, Region, Reservation};
use crate::Access;
use orlop_core::Alignment;
use std::alloc::{GlobalAlloc, Layout};
use std::ptr::NonNull;

/// The system's allocator (`malloc` on Unix).
pub type System = FromGlobal<std::alloc::System>;

/// A backing over any [`GlobalAlloc`].
///
/// Regions are allocated zeroed, hence initialised. Large requests cost nothing extra for that: allocators
/// get those fresh from the kernel, zero already. Alignment beyond 16 bytes is made by asking for more,
/// because an aligned zeroed request makes the system's allocator write every byte, and thereby touch every
/// page.
#[derive(Debug, Clone, Copy, Default)]
pub struct FromGlobal<G> {
    allocator: G,
    name: &'static str,
    /// Where lines come from, if there are any: an allocator has none.
    pages: Option<Mmap>,
}

/// What allocators align to without being asked.
const NATURAL: usize = 16;

impl System {
    /// The system's allocator, and the system's pages for memory that grows in place.
    #[must_use]
    pub const fn new() -> Self {
        Self { allocator: std::alloc::System, name: "system", pages: Some(Mmap::new()) }
    }
}

impl<G: GlobalAlloc> FromGlobal<G> {
    /// A backing over `allocator`, called `name`.
    #[must_use]
    pub const fn over(allocator: G, name: &'static str) -> Self {
        Self { allocator, name, pages: None }
    }

    /// What is asked of the allocator for a region: the same at `reserve` and at `release`.
    fn layout(bytes: usize, align: Alignment) -> Option<Layout> {
        let slack = align.bytes().max(NATURAL) - NATURAL;
        let total = bytes.checked_add(slack)?.checked_add(size_of::<Header>())?;
        Layout::from_size_align(total, NATURAL).ok()
    }
}

/// What is kept in front of every region.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
struct Header {
    /// Bytes of the region.
    bytes: usize,
    /// What the allocator returned.
    start: *mut u8,
}

const _: () = assert!(size_of::<Header>() == NATURAL && align_of::<Header>() == NATURAL);

// SAFETY: 1. the allocator's blocks do not overlap and a region lies inside one: it begins at the first multiple of
// `align` at or after `start + 16`. With an alignment up to 16 that is `start + 16`; else it is at most
// `start + 16 + (align - 16)`. So it ends within the block. 2. `alloc_zeroed`, and the header is not in the region.
// 3. `GlobalAlloc` is callable from any thread.
unsafe impl<G: GlobalAlloc + std::fmt::Debug + Send + Sync + 'static> Backing for FromGlobal<G> {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        let layout = Self::layout(bytes, align).filter(|_| bytes > 0)?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { self.allocator.alloc_zeroed(layout) })?;
        let first = start.as_ptr().addr() + NATURAL;
        let padding = NATURAL + (first.next_multiple_of(align.bytes()) - first);
        // SAFETY: `padding <= 16 + slack`, inside the block (see above).
        let ptr = unsafe { start.add(padding) };
        // SAFETY: `padding >= 16`, so the header before `ptr` is inside the block too.
        let header = unsafe { ptr.cast::<Header>().sub(1) };
        // SAFETY: in the block, and ours; the block begins at a multiple of 16, and `padding` is one.
        unsafe { header.write(Header { bytes, start: start.as_ptr() }) };
        Some(Region { ptr, bytes, align, zeroed: true })
    }

    unsafe fn release(&self, region: Region) {
        let Some(layout) = Self::layout(region.bytes, region.align) else { return };
        // SAFETY: `reserve` put a header there.
        let header = unsafe { region.ptr.cast::<Header>().sub(1) };
        // SAFETY: written by `reserve`; users get `ptr ..` only and cannot have changed it.
        let start = unsafe { header.read() }.start;
        // SAFETY: what `alloc_zeroed` returned, with the layout it was asked with.
        unsafe { self.allocator.dealloc(start, layout) };
    }

    unsafe fn region_bytes(&self, ptr: NonNull<u8>) -> Option<usize> {
        // SAFETY: `reserve` put a header there (the caller's promise: `ptr` begins a region).
        let header = unsafe { ptr.cast::<Header>().sub(1) };
        // SAFETY: written by `reserve`; users get `ptr ..` only and cannot have changed it.
        Some(unsafe { header.read() }.bytes)
    }

    fn access(&self) -> Access {
        Access::Host
    }

    fn reserve_addresses(&self, capacity: usize, align: Alignment) -> Option<Reservation> {
        self.pages?.reserve_addresses(capacity, align)
    }

    fn commit_granularity(&self) -> Alignment {
        self.pages.unwrap_or_default().commit_granularity()
    }

    unsafe fn commit(&self, line: &Reservation, from: usize, to: usize) -> bool {
        // SAFETY: the caller's promise: a line of ours is one of the pages'.
        self.pages.is_some_and(|pages| unsafe { pages.commit(line, from, to) })
    }

    unsafe fn decommit(&self, line: &Reservation, from: usize, to: usize) {
        if let Some(pages) = self.pages {
            // SAFETY: as in `extend`.
            unsafe { pages.decommit(line, from, to) };
        }
    }

    unsafe fn release_addresses(&self, line: Reservation, gained: usize) {
        if let Some(pages) = self.pages {
            // SAFETY: as in `extend`.
            unsafe { pages.release_addresses(line, gained) };
        }
    }

    unsafe fn discard(&self, ptr: NonNull<u8>, bytes: usize) -> usize {
        // SAFETY: the caller's promise; whole pages among bytes that nobody uses hold nothing of the allocator's.
        self.pages.map_or(0, |pages| unsafe { pages.discard(ptr, bytes) })
    }

    fn name(&self) -> &str {
        self.name
    }

    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: host memory, and the caller's alone (the caller's promise).
        unsafe { ptr.write_bytes(0, bytes) };
        true
    }
}
