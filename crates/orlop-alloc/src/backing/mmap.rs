//! Pages straight from the kernel, with huge pages and a NUMA node on request.

use super::{Backing, Line, Region};
use crate::numa;
use orlop_core::Alignment;
use std::ptr::NonNull;

/// What to ask the kernel about 2 MiB pages. Elsewhere than on Linux this changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HugePages {
    /// Whatever the system is set to.
    #[default]
    System,
    /// Ask for them: first touch costs a quarter to a third, and memory is held in steps of 2 MiB.
    Always,
    /// Ask for none.
    Never,
}

/// Anonymous private mappings. Fresh pages are zero.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mmap {
    huge_pages: HugePages,
    node: Option<u32>,
}

/// The size of a huge page on every platform where we ask for them.
const HUGE: usize = 2 << 20;

impl Mmap {
    /// With the system's setting for huge pages and no NUMA node.
    #[must_use]
    pub const fn new() -> Self {
        Self { huge_pages: HugePages::System, node: None }
    }

    /// With this wish about huge pages. Regions of at least 2 MiB are aligned to 2 MiB if they are wanted.
    #[must_use]
    pub const fn huge_pages(mut self, wish: HugePages) -> Self {
        self.huge_pages = wish;
        self
    }

    /// On this NUMA node, where the kernel can. Nodes that do not exist are ignored.
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

// SAFETY: 1. the kernel's mappings do not overlap, and `map_aligned` keeps `bytes` of one from a multiple of
// the alignment on. 2. anonymous pages are readable, writable and zero. 3. mappings belong to the process.
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
        // SAFETY: the caller's promise: the whole mapping, once.
        let _logged = unsafe { pages::unmap(region) };
    }

    fn line(&self, capacity: usize, align: Alignment) -> Option<Line> {
        let capacity = self.grain().round_up(capacity).ok()?;
        let ptr = pages::set_aside(capacity, align.max(self.grain()).bytes())?;
        pages::advise(ptr, capacity, self.huge_pages);
        if let Some(node) = self.node {
            numa::bind(ptr, capacity, node);
        }
        Some(Line { ptr, capacity })
    }

    fn grain(&self) -> Alignment {
        self.align_for(HUGE, page())
    }

    unsafe fn extend(&self, line: &Line, from: usize, to: usize) -> bool {
        // SAFETY: inside the line (the caller's promise).
        let start = unsafe { line.ptr.add(from) };
        // SAFETY: of the line nothing is used from `from` on.
        unsafe { pages::open(start, to - from) }
    }

    unsafe fn shorten(&self, line: &Line, from: usize, to: usize) {
        // SAFETY: inside the line (the caller's promise).
        let start = unsafe { line.ptr.add(to) };
        // SAFETY: used by nobody (the caller's promise).
        let _logged = unsafe { pages::shut(start, from - to) };
        pages::advise(line.ptr, line.capacity, self.huge_pages);
    }

    unsafe fn release_line(&self, line: Line, _: usize) {
        let region = Region { ptr: line.ptr, bytes: line.capacity, align: self.grain(), zeroed: true };
        // SAFETY: the whole mapping of `line`, once (the caller's promise).
        let _logged = unsafe { pages::unmap(region) };
    }

    unsafe fn discard(&self, ptr: NonNull<u8>, bytes: usize) -> usize {
        let start = ptr.as_ptr().addr();
        let Ok(first) = page().round_up(start) else { return 0 };
        let whole = page().round_down(start.saturating_add(bytes)).saturating_sub(first);
        if whole == 0 {
            return 0;
        }
        // SAFETY: among the bytes.
        let first_page = unsafe { ptr.add(first - start) };
        // SAFETY: whole pages among bytes that nobody uses (the caller's promise).
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
        // SAFETY: host memory, and the caller's alone (the caller's promise).
        unsafe { ptr.write_bytes(0, bytes) };
        true
    }
}

fn page() -> Alignment {
    Alignment::new(pages::size()).unwrap_or(Alignment::PLANNED)
}

/// Whole pages of address space, for backings that manage their own: reserved, closed again, given back.
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
            // SAFETY: a query without arguments that could be wrong.
            usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
        })
    }

    fn map(bytes: usize, protection: libc::c_int) -> Option<NonNull<u8>> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let address = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED { None } else { NonNull::new(address.cast()) }
    }

    const USED: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

    /// `bytes` is a multiple of the page size, `align` a power of two.
    pub(super) fn map_aligned(bytes: usize, align: usize) -> Option<NonNull<u8>> {
        map_as(bytes, align, USED)
    }

    /// Reserves `bytes` bytes of address space, a multiple of the page size, at a multiple of `align`, a power of two.
    /// They cannot be touched and cost no memory. `None` if the system has none.
    #[must_use]
    pub fn set_aside(bytes: usize, align: usize) -> Option<NonNull<u8>> {
        if cfg!(miri) {
            // Miri has no protected pages.
            return None;
        }
        map_as(bytes, align, libc::PROT_NONE)
    }

    /// Makes pages that were set aside usable: zeroed. False if the system commits itself to no more.
    ///
    /// # Safety
    ///
    /// Whole pages from `set_aside`, used by nobody.
    pub(super) unsafe fn open(ptr: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { libc::mprotect(ptr.as_ptr().cast(), bytes, USED) == 0 }
    }

    /// Takes the memory of some pages away and keeps the addresses reserved. Returns `false` if the system refuses;
    /// nothing has changed then.
    ///
    /// # Safety
    ///
    /// Whole pages of a range from [`set_aside`], used by nobody.
    pub unsafe fn shut(ptr: NonNull<u8>, bytes: usize) -> bool {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the caller's promise: what the new mapping takes the place of is ours and used by nobody.
        let address = unsafe { libc::mmap(ptr.as_ptr().cast(), bytes, libc::PROT_NONE, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            let error = std::io::Error::last_os_error();
            let address = ptr.as_ptr().addr();
            report(|| tracing::error!(address, bytes, %error, "memory could not be given back"));
        }
        address != libc::MAP_FAILED
    }

    /// Lets the system take whole pages away; they read as zero from then on.
    ///
    /// # Safety
    ///
    /// The pages are ours and used by nobody.
    pub(super) unsafe fn discard(ptr: NonNull<u8>, bytes: usize) -> bool {
        if cfg!(miri) {
            return false;
        }
        // Elsewhere than on Linux the pages may keep what they hold: initialised either way.
        // SAFETY: the caller's promise.
        unsafe { libc::madvise(ptr.as_ptr().cast(), bytes, libc::MADV_DONTNEED) == 0 }
    }

    fn map_as(bytes: usize, align: usize, protection: libc::c_int) -> Option<NonNull<u8>> {
        if align <= size() {
            return map(bytes, protection);
        }
        let total = bytes.checked_add(align)?;
        let start = map(total, protection)?;
        let front = start.as_ptr().addr().next_multiple_of(align) - start.as_ptr().addr();
        // SAFETY: `front < align`, inside the mapping.
        let ptr = unsafe { start.add(front) };
        // SAFETY: `front + bytes <= total`.
        let end = unsafe { ptr.add(bytes) };
        for (address, length) in [(start, front), (end, align - front)] {
            if length > 0 {
                // SAFETY: whole pages at the ends of a mapping that only this function knows yet.
                unsafe { libc::munmap(address.as_ptr().cast(), length) };
            }
        }
        Some(ptr)
    }

    #[cfg(target_os = "linux")]
    pub(super) fn advise(ptr: NonNull<u8>, bytes: usize, wish: HugePages) {
        let advice = match wish {
            HugePages::System => return,
            // Miri does not know of huge pages.
            _ if cfg!(miri) => return,
            HugePages::Always => libc::MADV_HUGEPAGE,
            HugePages::Never => libc::MADV_NOHUGEPAGE,
        };
        // SAFETY: a mapping of ours. Only a hint: a kernel without huge pages refuses, and that is fine.
        unsafe { libc::madvise(ptr.as_ptr().cast(), bytes, advice) };
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn advise(_: NonNull<u8>, _: usize, _: HugePages) {}

    /// Gives memory and addresses back. Returns `false` if the system refuses.
    ///
    /// # Safety
    ///
    /// `region` is a whole mapping of [`Mmap`](super::Mmap) or from [`set_aside`] that nobody uses any more.
    pub unsafe fn unmap(region: Region) -> bool {
        // SAFETY: the caller's promise.
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

    /// Without `mmap` the system's allocator serves: zeroed, and aligned as asked.
    pub(super) fn map_aligned(bytes: usize, align: usize) -> Option<NonNull<u8>> {
        System::new().reserve(bytes, Alignment::new(align).ok()?).map(|region| region.ptr)
    }

    pub(super) fn advise(_: NonNull<u8>, _: usize, _: HugePages) {}

    /// Returns `None`: this system reserves no addresses without memory, so engines use regions.
    #[must_use]
    pub fn set_aside(_: usize, _: usize) -> Option<NonNull<u8>> {
        None
    }

    /// # Safety
    ///
    /// None: there is nothing to open.
    pub(super) unsafe fn open(_: NonNull<u8>, _: usize) -> bool {
        false
    }

    /// Returns `false`: there is nothing to close.
    ///
    /// # Safety
    ///
    /// None.
    pub unsafe fn shut(_: NonNull<u8>, _: usize) -> bool {
        false
    }

    /// # Safety
    ///
    /// None: nothing happens.
    pub(super) unsafe fn discard(_: NonNull<u8>, _: usize) -> bool {
        false
    }

    /// Gives memory back.
    ///
    /// # Safety
    ///
    /// As for [`Backing::release`].
    pub unsafe fn unmap(region: Region) -> bool {
        // SAFETY: the caller's promise.
        unsafe { System::new().release(region) };
        true
    }
}
