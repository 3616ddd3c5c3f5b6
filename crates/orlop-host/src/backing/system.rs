//! Backings over a Rust global allocator: the system's or one of the named ones.

use super::{Access, Backing, Mmap, Region, Reservation};
use orlop_core::Alignment;
use std::alloc::{GlobalAlloc, Layout};
use std::ptr::NonNull;

/// A backing over the system's allocator (`malloc` on Unix).
pub type System = FromGlobal<std::alloc::System>;

/// A backing over any [`GlobalAlloc`].
///
/// Regions are allocated zeroed, hence initialised. Large regions cost nothing extra for that: allocators
/// take them fresh from the kernel, already zero. For an alignment above 16 bytes it requests more bytes and
/// aligns within them, because the system's allocator serves an aligned zeroed request by writing every byte,
/// which touches every page.
#[derive(Debug, Clone, Copy, Default)]
pub struct FromGlobal<G> {
    allocator: G,
    name: &'static str,
    /// The source of reservations, if the backing supports them: an allocator has none.
    pages: Option<Mmap>,
}

/// The alignment in bytes of every allocation.
const MIN_ALIGN: usize = 16;

impl System {
    /// Creates a backing over the system's allocator that reserves address space from the system.
    #[must_use]
    pub const fn new() -> Self {
        Self { allocator: std::alloc::System, name: "system", pages: Some(Mmap::new()) }
    }
}

impl<G: GlobalAlloc> FromGlobal<G> {
    /// Creates a backing over `allocator` with this name.
    #[must_use]
    pub const fn over(allocator: G, name: &'static str) -> Self {
        Self { allocator, name, pages: None }
    }

    /// Returns the layout of a region's allocation, which `reserve` and `release` compute alike.
    fn layout(bytes: usize, align: Alignment) -> Option<Layout> {
        let slack = align.bytes().max(MIN_ALIGN) - MIN_ALIGN;
        let total = bytes.checked_add(slack)?.checked_add(size_of::<RegionHeader>())?;
        Layout::from_size_align(total, MIN_ALIGN).ok()
    }
}

/// The header in front of every region.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(16))]
struct RegionHeader {
    /// Length of the region in bytes.
    bytes: usize,
    /// The pointer that the allocator returned.
    start: *mut u8,
}

const _: () = assert!(size_of::<RegionHeader>() == MIN_ALIGN && align_of::<RegionHeader>() == MIN_ALIGN);

// SAFETY: 1. allocations do not overlap, and a region lies inside one: it begins at the first multiple of
// `align` at or after `start + 16`. With an alignment up to 16 that is `start + 16`; otherwise it is at most
// `start + 16 + (align - 16)`. So it ends within the allocation. 2. `alloc_zeroed` returns zeroed bytes, and
// the header is outside the region. 3. `GlobalAlloc` may be called from any thread.
unsafe impl<G: GlobalAlloc + std::fmt::Debug + Send + Sync + 'static> Backing for FromGlobal<G> {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        let layout = Self::layout(bytes, align).filter(|_| bytes > 0)?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { self.allocator.alloc_zeroed(layout) })?;
        let first = start.as_ptr().addr() + MIN_ALIGN;
        let padding = MIN_ALIGN + (first.next_multiple_of(align.bytes()) - first);
        // SAFETY: `padding <= 16 + slack`, so `ptr` is inside the allocation (see above).
        let ptr = unsafe { start.add(padding) };
        // SAFETY: `padding >= 16`, so the header before `ptr` is inside the allocation too.
        let header = unsafe { ptr.cast::<RegionHeader>().sub(1) };
        // SAFETY: inside the allocation, which no other code has yet. It is aligned: `start` and `padding`
        // are multiples of 16.
        unsafe { header.write(RegionHeader { bytes, start: start.as_ptr() }) };
        Some(Region { ptr, bytes, align, zeroed: true })
    }

    unsafe fn release(&self, region: Region) {
        let Some(layout) = Self::layout(region.bytes, region.align) else { return };
        // SAFETY: `reserve` put a header there (guaranteed by the caller: the region came from `reserve`).
        let header = unsafe { region.ptr.cast::<RegionHeader>().sub(1) };
        // SAFETY: written by `reserve`; users have access to `ptr ..` only and cannot have changed it.
        let start = unsafe { header.read() }.start;
        // SAFETY: the pointer that `alloc_zeroed` returned, with the same layout.
        unsafe { self.allocator.dealloc(start, layout) };
    }

    unsafe fn region_bytes(&self, ptr: NonNull<u8>) -> Option<usize> {
        // SAFETY: `reserve` put a header there (guaranteed by the caller: a region begins at `ptr`).
        let header = unsafe { ptr.cast::<RegionHeader>().sub(1) };
        // SAFETY: written by `reserve`; users have access to `ptr ..` only and cannot have changed it.
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

    unsafe fn commit(&self, reservation: &Reservation, from: usize, to: usize) -> bool {
        // SAFETY: guaranteed by the caller: every reservation of this backing comes from `pages`.
        self.pages.is_some_and(|pages| unsafe { pages.commit(reservation, from, to) })
    }

    unsafe fn decommit(&self, reservation: &Reservation, from: usize, to: usize) {
        if let Some(pages) = self.pages {
            // SAFETY: as in `commit`.
            unsafe { pages.decommit(reservation, from, to) };
        }
    }

    unsafe fn release_addresses(&self, reservation: Reservation, committed: usize) {
        if let Some(pages) = self.pages {
            // SAFETY: as in `commit`.
            unsafe { pages.release_addresses(reservation, committed) };
        }
    }

    unsafe fn discard(&self, ptr: NonNull<u8>, bytes: usize) -> usize {
        // SAFETY: guaranteed by the caller: the bytes are unused, so pages that lie wholly among them hold no
        // data of the allocator.
        self.pages.map_or(0, |pages| unsafe { pages.discard(ptr, bytes) })
    }

    fn name(&self) -> &str {
        self.name
    }

    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: host memory that nothing else accesses (guaranteed by the caller).
        unsafe { ptr.write_bytes(0, bytes) };
        true
    }
}
