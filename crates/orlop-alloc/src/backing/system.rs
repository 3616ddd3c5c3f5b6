//! Memory from a Rust global allocator: the system's, or one of the named ones.

use super::{Backing, Line, Mmap, Region};
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
        let slack = if align.bytes() > NATURAL { align.bytes() - NATURAL } else { 0 };
        // One word in front keeps what the allocator returned.
        let front = if slack > 0 { NATURAL } else { 0 };
        let total = bytes.checked_add(slack)?.checked_add(front)?;
        Layout::from_size_align(total, align.bytes().min(NATURAL)).ok()
    }
}

// SAFETY: 1. the allocator's blocks do not overlap and a region lies inside one: with slack, it begins at the
// first multiple of `align` at or after `start + 16`, which is at most `start + 16 + (align - 16)`, so it ends
// within the block. 2. `alloc_zeroed`. 3. `GlobalAlloc` is callable from any thread.
unsafe impl<G: GlobalAlloc + std::fmt::Debug + Send + Sync + 'static> Backing for FromGlobal<G> {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        let layout = Self::layout(bytes, align).filter(|layout| layout.size() > 0)?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { self.allocator.alloc_zeroed(layout) })?;
        let region = |ptr| Region { ptr, bytes, align, zeroed: true };
        if align.bytes() <= NATURAL {
            return Some(region(start));
        }
        let first = start.as_ptr().addr() + NATURAL;
        let padding = NATURAL + (first.next_multiple_of(align.bytes()) - first);
        // SAFETY: `padding <= 16 + slack`, inside the block (see above).
        let ptr = unsafe { start.add(padding) };
        // SAFETY: `padding >= 16`, so the word before `ptr` is inside the block too.
        let word = unsafe { ptr.cast::<*mut u8>().sub(1) };
        // SAFETY: in the block, aligned (`ptr` is a multiple of more than 16), and ours.
        unsafe { word.write(start.as_ptr()) };
        Some(region(ptr))
    }

    unsafe fn release(&self, region: Region) {
        let Some(layout) = Self::layout(region.bytes, region.align) else { return };
        let start = if region.align.bytes() <= NATURAL {
            region.ptr.as_ptr()
        } else {
            // SAFETY: `reserve` put a word there.
            let word = unsafe { region.ptr.cast::<*mut u8>().sub(1) };
            // SAFETY: written by `reserve`; users get `ptr ..` only and cannot have changed it.
            unsafe { word.read() }
        };
        // SAFETY: what `alloc_zeroed` returned, with the layout it was asked with.
        unsafe { self.allocator.dealloc(start, layout) };
    }

    fn access(&self) -> Access {
        Access::Host
    }

    fn line(&self, capacity: usize, align: Alignment) -> Option<Line> {
        self.pages?.line(capacity, align)
    }

    fn grain(&self) -> Alignment {
        self.pages.unwrap_or_default().grain()
    }

    unsafe fn extend(&self, line: &Line, from: usize, to: usize) -> bool {
        // SAFETY: the caller's promise: a line of ours is one of the pages'.
        self.pages.is_some_and(|pages| unsafe { pages.extend(line, from, to) })
    }

    unsafe fn shorten(&self, line: &Line, from: usize, to: usize) {
        if let Some(pages) = self.pages {
            // SAFETY: as in `extend`.
            unsafe { pages.shorten(line, from, to) };
        }
    }

    unsafe fn release_line(&self, line: Line, gained: usize) {
        if let Some(pages) = self.pages {
            // SAFETY: as in `extend`.
            unsafe { pages.release_line(line, gained) };
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
