//! Pages straight from the kernel, with huge pages and a NUMA node on request.

use super::{Backing, Region};
use crate::numa;
use orlop_core::Alignment;

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
        unsafe { pages::unmap(region) };
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
}

fn page() -> Alignment {
    Alignment::new(pages::size()).unwrap_or(Alignment::PLANNED)
}

#[cfg(unix)]
mod pages {
    use super::{HugePages, Region};
    use std::ptr::{self, NonNull};
    use std::sync::OnceLock;

    pub(super) fn size() -> usize {
        static SIZE: OnceLock<usize> = OnceLock::new();
        *SIZE.get_or_init(|| {
            // SAFETY: a query without arguments that could be wrong.
            usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
        })
    }

    fn map(bytes: usize) -> Option<NonNull<u8>> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let address = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED { None } else { NonNull::new(address.cast()) }
    }

    /// `bytes` is a multiple of the page size, `align` a power of two.
    pub(super) fn map_aligned(bytes: usize, align: usize) -> Option<NonNull<u8>> {
        if align <= size() {
            return map(bytes);
        }
        let total = bytes.checked_add(align)?;
        let start = map(total)?;
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
            HugePages::Always => libc::MADV_HUGEPAGE,
            HugePages::Never => libc::MADV_NOHUGEPAGE,
        };
        // SAFETY: a mapping of ours. Only a hint: a kernel without huge pages refuses, and that is fine.
        unsafe { libc::madvise(ptr.as_ptr().cast(), bytes, advice) };
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn advise(_: NonNull<u8>, _: usize, _: HugePages) {}

    /// # Safety
    ///
    /// `region` is a whole mapping from `map_aligned` that nobody uses any more.
    pub(super) unsafe fn unmap(region: Region) {
        // SAFETY: the caller's promise.
        let code = unsafe { libc::munmap(region.ptr.as_ptr().cast(), region.bytes) };
        if code != 0 {
            let error = std::io::Error::last_os_error();
            tracing::error!(address = region.address(), bytes = region.bytes, %error, "munmap failed");
        }
    }
}

#[cfg(not(unix))]
mod pages {
    use super::{HugePages, Region};
    use crate::backing::{Backing, System};
    use orlop_core::Alignment;
    use std::ptr::NonNull;

    pub(super) fn size() -> usize {
        4096
    }

    /// Without `mmap` the system's allocator serves: zeroed, and aligned as asked.
    pub(super) fn map_aligned(bytes: usize, align: usize) -> Option<NonNull<u8>> {
        System::new().reserve(bytes, Alignment::new(align).ok()?).map(|region| region.ptr)
    }

    pub(super) fn advise(_: NonNull<u8>, _: usize, _: HugePages) {}

    /// # Safety
    ///
    /// As for [`Backing::release`].
    pub(super) unsafe fn unmap(region: Region) {
        // SAFETY: the caller's promise.
        unsafe { System::new().release(region) };
    }
}
