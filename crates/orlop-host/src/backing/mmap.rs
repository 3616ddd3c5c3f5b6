//! Pages mapped from the kernel, with optional huge pages and NUMA placement.

use super::{Backing, Region, Reservation};
use crate::numa;
use orlop_core::Alignment;
use std::ptr::NonNull;

/// The use of 2 MiB pages. It has no effect on systems other than Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HugePages {
    /// The system's setting.
    #[default]
    System,
    /// Request huge pages: first touch costs a quarter to a third, and memory is used in steps of 2 MiB.
    Always,
    /// Request none.
    Never,
}

/// A backing of anonymous private mappings. Fresh pages are zero.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mmap {
    huge_pages: HugePages,
    node: Option<u32>,
}

/// The size of a huge page in bytes, on every platform where they are requested.
const HUGE: usize = 2 << 20;

impl Mmap {
    /// Creates a backing with the system's setting for huge pages and no NUMA node.
    #[must_use]
    pub const fn new() -> Self {
        Self { huge_pages: HugePages::System, node: None }
    }

    /// Sets the use of huge pages. With [`HugePages::Always`], regions of at least 2 MiB are aligned to 2
    /// MiB.
    #[must_use]
    pub const fn huge_pages(mut self, wish: HugePages) -> Self {
        self.huge_pages = wish;
        self
    }

    /// Places pages on this NUMA node if the kernel supports it. Nodes that do not exist are ignored.
    #[must_use]
    pub const fn node(mut self, node: u32) -> Self {
        self.node = Some(node);
        self
    }

    fn align_for(&self, bytes: usize, align: Alignment) -> Alignment {
        let huge = Alignment::new(HUGE).unwrap_or(align);
        if self.huge_pages == HugePages::Always && bytes >= HUGE { align.max(huge) } else { align }
    }
}

// SAFETY: 1. the kernel's mappings do not overlap, and `map_aligned` keeps `bytes` bytes of one, from a
// multiple of the alignment on. 2. anonymous pages are readable, writable and zero. 3. mappings belong to the
// process, not to a thread.
unsafe impl Backing for Mmap {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        let bytes = page().round_up(bytes).ok()?;
        let ptr = pages::map_aligned(bytes, self.align_for(bytes, align).bytes())?;
        let region = Region { ptr, bytes, align, zeroed: true };
        pages::advise(ptr, bytes, self.huge_pages);
        if let Some(node) = self.node {
            numa::bind(ptr, bytes, node);
        }
        Some(region)
    }

    unsafe fn release(&self, region: Region) {
        // SAFETY: guaranteed by the caller: a region is a whole mapping and is released once.
        let _logged = unsafe { pages::unmap(region) };
    }

    fn reserve_addresses(&self, capacity: usize, align: Alignment) -> Option<Reservation> {
        let capacity = self.commit_granularity().round_up(capacity).ok()?;
        let ptr = pages::reserve(capacity, align.max(self.commit_granularity()).bytes())?;
        pages::advise(ptr, capacity, self.huge_pages);
        if let Some(node) = self.node {
            numa::bind(ptr, capacity, node);
        }
        Some(Reservation { ptr, capacity })
    }

    fn commit_granularity(&self) -> Alignment {
        self.align_for(HUGE, page())
    }

    unsafe fn commit(&self, reservation: &Reservation, from: usize, to: usize) -> bool {
        // SAFETY: within the reservation (guaranteed by the caller).
        let start = unsafe { reservation.ptr.add(from) };
        // SAFETY: whole pages of the reservation, which are not committed and so not in use.
        unsafe { pages::commit(start, to - from) }
    }

    unsafe fn decommit(&self, reservation: &Reservation, from: usize, to: usize) {
        // SAFETY: within the reservation (guaranteed by the caller).
        let start = unsafe { reservation.ptr.add(to) };
        // SAFETY: whole pages that are not in use (guaranteed by the caller).
        let _logged = unsafe { pages::decommit(start, from - to) };
        pages::advise(reservation.ptr, reservation.capacity, self.huge_pages);
    }

    unsafe fn release_addresses(&self, reservation: Reservation, _: usize) {
        let region = Region {
            ptr: reservation.ptr,
            bytes: reservation.capacity,
            align: self.commit_granularity(),
            zeroed: true,
        };
        // SAFETY: the reservation is a whole mapping and is released once (guaranteed by the caller).
        let _logged = unsafe { pages::unmap(region) };
    }

    unsafe fn discard(&self, ptr: NonNull<u8>, bytes: usize) -> usize {
        let start = ptr.as_ptr().addr();
        let Ok(first) = page().round_up(start) else { return 0 };
        let whole = page().round_down(start.saturating_add(bytes)).saturating_sub(first);
        if whole == 0 {
            return 0;
        }
        // SAFETY: `first` is at most the end of the bytes, because `whole > 0`.
        let first_page = unsafe { ptr.add(first - start) };
        // SAFETY: whole pages among bytes that are not in use (guaranteed by the caller).
        if unsafe { pages::discard(first_page, whole) } { whole } else { 0 }
    }

    fn name(&self) -> &str {
        match self.huge_pages {
            HugePages::System => "mmap",
            HugePages::Always => "mmap-huge",
            HugePages::Never => "mmap-4k",
        }
    }

    fn node(&self) -> Option<u32> {
        self.node
    }

    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: host memory that nothing else accesses (guaranteed by the caller).
        unsafe { ptr.write_bytes(0, bytes) };
        true
    }
}

fn page() -> Alignment {
    Alignment::new(pages::size()).unwrap_or(Alignment::PLANNED)
}

/// Whole pages of address space, for backings that manage their own: reserved, made inaccessible again,
/// released.
#[cfg(unix)]
pub mod pages {
    use super::{HugePages, Region};
    use crate::shield::report;
    use std::ptr::{self, NonNull};
    use std::sync::OnceLock;

    /// Returns the size of a page of the system, in bytes.
    #[must_use]
    pub fn size() -> usize {
        static SIZE: OnceLock<usize> = OnceLock::new();
        *SIZE.get_or_init(|| {
            // SAFETY: a query that takes no pointers.
            usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
        })
    }

    fn map(bytes: usize, protection: libc::c_int) -> Option<NonNull<u8>> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at an address that the kernel chooses does not affect existing
        // memory.
        let address = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED { None } else { NonNull::new(address.cast()) }
    }

    const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

    /// Maps readable and writable memory. `bytes` is a multiple of the page size, `align` a power of two.
    pub(super) fn map_aligned(bytes: usize, align: usize) -> Option<NonNull<u8>> {
        map_as(bytes, align, READ_WRITE)
    }

    /// Reserves `bytes` bytes of address space, a multiple of the page size, at a multiple of `align`, a
    /// power of two. The addresses are inaccessible and use no memory. Returns `None` if the system has none.
    #[must_use]
    pub fn reserve(bytes: usize, align: usize) -> Option<NonNull<u8>> {
        if cfg!(miri) {
            // Miri does not support protected pages.
            return None;
        }
        map_as(bytes, align, libc::PROT_NONE)
    }

    /// Makes reserved pages readable and writable, zeroed. Returns `false` if the system refuses to commit
    /// more memory.
    ///
    /// # Safety
    ///
    /// Whole pages from `reserve` that are not in use.
    pub(super) unsafe fn commit(ptr: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: guaranteed by the caller.
        unsafe { libc::mprotect(ptr.as_ptr().cast(), bytes, READ_WRITE) == 0 }
    }

    /// Returns pages to the system and keeps their addresses reserved. Returns `false` if the system cannot.
    ///
    /// # Safety
    ///
    /// As for `commit`.
    pub unsafe fn decommit(ptr: NonNull<u8>, bytes: usize) -> bool {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: guaranteed by the caller: the pages that the new mapping replaces belong to this backing
        // and are not in use.
        let address = unsafe { libc::mmap(ptr.as_ptr().cast(), bytes, libc::PROT_NONE, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            let error = std::io::Error::last_os_error();
            let address = ptr.as_ptr().addr();
            report(|| tracing::error!(address, bytes, %error, "memory could not be released"));
        }
        address != libc::MAP_FAILED
    }

    /// Lets the system reclaim whole pages; on Linux they read as zero afterwards.
    ///
    /// # Safety
    ///
    /// The pages belong to this backing and are not in use.
    pub(super) unsafe fn discard(ptr: NonNull<u8>, bytes: usize) -> bool {
        if cfg!(miri) {
            return false;
        }
        // On systems other than Linux the pages may keep their contents: initialised either way.
        // SAFETY: guaranteed by the caller.
        unsafe { libc::madvise(ptr.as_ptr().cast(), bytes, libc::MADV_DONTNEED) == 0 }
    }

    fn map_as(bytes: usize, align: usize, protection: libc::c_int) -> Option<NonNull<u8>> {
        if align <= size() {
            return map(bytes, protection);
        }
        let total = bytes.checked_add(align)?;
        let start = map(total, protection)?;
        let front = start.as_ptr().addr().next_multiple_of(align) - start.as_ptr().addr();
        // SAFETY: `front < align <= total`, within the mapping.
        let ptr = unsafe { start.add(front) };
        // SAFETY: `front + bytes <= total`.
        let end = unsafe { ptr.add(bytes) };
        for (address, length) in [(start, front), (end, align - front)] {
            if length > 0 {
                // SAFETY: whole pages at the ends of a mapping that was made above and not passed on.
                unsafe { libc::munmap(address.as_ptr().cast(), length) };
            }
        }
        Some(ptr)
    }

    #[cfg(target_os = "linux")]
    pub(super) fn advise(ptr: NonNull<u8>, bytes: usize, wish: HugePages) {
        let advice = match wish {
            HugePages::System => return,
            // Miri does not support huge pages.
            _ if cfg!(miri) => return,
            HugePages::Always => libc::MADV_HUGEPAGE,
            HugePages::Never => libc::MADV_NOHUGEPAGE,
        };
        // SAFETY: a mapping of this backing. The advice is a hint: a kernel without huge pages refuses it,
        // which is harmless.
        unsafe { libc::madvise(ptr.as_ptr().cast(), bytes, advice) };
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn advise(_: NonNull<u8>, _: usize, _: HugePages) {}

    /// Releases memory and addresses. Returns `false` if the system cannot.
    ///
    /// # Safety
    ///
    /// `region` is a whole mapping from `map_aligned` or `reserve` and is no longer in use.
    pub unsafe fn unmap(region: Region) -> bool {
        // SAFETY: guaranteed by the caller.
        let code = unsafe { libc::munmap(region.ptr.as_ptr().cast(), region.bytes) };
        if code != 0 {
            let error = std::io::Error::last_os_error();
            let (address, bytes) = (region.address(), region.bytes);
            report(|| tracing::error!(address, bytes, %error, "munmap failed"));
        }
        code == 0
    }
}

/// Whole pages of address space, for backings that manage their own: this system has none.
#[cfg(not(unix))]
pub mod pages {
    use super::{HugePages, Region};
    use crate::backing::{Backing, System};
    use orlop_core::Alignment;
    use std::ptr::NonNull;

    /// The unit that regions are rounded to where there are no pages to manage.
    #[must_use]
    pub fn size() -> usize {
        4096
    }

    /// Allocates from the system's allocator, which replaces `mmap` here: zeroed and aligned to `align`.
    pub(super) fn map_aligned(bytes: usize, align: usize) -> Option<NonNull<u8>> {
        System::new().reserve(bytes, Alignment::new(align).ok()?).map(|region| region.ptr)
    }

    pub(super) fn advise(_: NonNull<u8>, _: usize, _: HugePages) {}

    /// Returns `None`: address space without memory is not supported here, and engines use regions instead.
    #[must_use]
    pub fn reserve(_: usize, _: usize) -> Option<NonNull<u8>> {
        None
    }

    /// # Safety
    ///
    /// No obligations: this never commits anything.
    pub(super) unsafe fn commit(_: NonNull<u8>, _: usize) -> bool {
        false
    }

    /// Returns `false`: there is nothing to close.
    ///
    /// # Safety
    ///
    /// No obligations: this does nothing.
    pub unsafe fn decommit(_: NonNull<u8>, _: usize) -> bool {
        false
    }

    /// # Safety
    ///
    /// No obligations: this does nothing.
    pub(super) unsafe fn discard(_: NonNull<u8>, _: usize) -> bool {
        false
    }

    /// Releases memory.
    ///
    /// # Safety
    ///
    /// As for [`Backing::release`].
    pub unsafe fn unmap(region: Region) -> bool {
        // SAFETY: guaranteed by the caller.
        unsafe { System::new().release(region) };
        true
    }
}
