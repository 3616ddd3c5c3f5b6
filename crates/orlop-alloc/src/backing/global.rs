//! Backings by name: the system's allocator and those that cargo features add (T15).

use super::{Backing, HugePages, Mmap, System};
use crate::{Error, Result};
use std::sync::Arc;

/// A backing of any type.
pub type BackingRef = Arc<dyn Backing>;

/// The variable that names the backing behind the CPU allocators.
pub(crate) const VARIABLE: &str = "ORLOP_CPU_BACKING";

/// The names that [`named`] knows in this build. The first of `mimalloc`, `jemalloc`, `snmalloc` that is
/// built in stands behind the CPU allocators; without any, `system` does.
pub const NAMES: &[&str] = &[
    #[cfg(feature = "mimalloc")]
    "mimalloc",
    #[cfg(feature = "jemalloc")]
    "jemalloc",
    #[cfg(feature = "snmalloc")]
    "snmalloc",
    "system",
    "mmap",
    "mmap-huge",
    "mmap-4k",
];

/// The backing of this name.
///
/// # Errors
///
/// [`Error::UnknownName`] if the name is unknown or its feature is not built in.
pub fn named(name: &str) -> Result<BackingRef> {
    Ok(match name {
        #[cfg(feature = "mimalloc")]
        "mimalloc" => Arc::new(super::system::FromGlobal::over(Quiet(mimalloc::MiMalloc), "mimalloc")),
        #[cfg(feature = "jemalloc")]
        "jemalloc" => {
            Arc::new(super::system::FromGlobal::over(Quiet(tikv_jemallocator::Jemalloc), "jemalloc"))
        }
        #[cfg(feature = "snmalloc")]
        "snmalloc" => Arc::new(super::system::FromGlobal::over(Quiet(snmalloc_rs::SnMalloc), "snmalloc")),
        "system" => Arc::new(System::new()),
        "mmap" => Arc::new(Mmap::new()),
        "mmap-huge" => Arc::new(Mmap::new().huge_pages(HugePages::Always)),
        "mmap-4k" => Arc::new(Mmap::new().huge_pages(HugePages::Never)),
        _ => return Err(Error::UnknownName { what: "backing", name: name.into() }),
    })
}

/// What stands behind the CPU allocators unless a builder says otherwise: the backing that
/// `ORLOP_CPU_BACKING` names, else the first of [`NAMES`].
///
/// # Errors
///
/// [`Error::UnknownName`] if the variable names none.
pub fn default_backing() -> Result<BackingRef> {
    match std::env::var(VARIABLE) {
        Ok(name) if !name.is_empty() => named(&name),
        _ => named(NAMES.first().copied().unwrap_or("system")),
    }
}

/// Gives an allocator that lacks it a `Debug`.
#[cfg(any(feature = "mimalloc", feature = "jemalloc", feature = "snmalloc"))]
struct Quiet<G>(G);

#[cfg(any(feature = "mimalloc", feature = "jemalloc", feature = "snmalloc"))]
mod quiet {
    use super::Quiet;
    use std::alloc::{GlobalAlloc, Layout};
    use std::fmt;

    // SAFETY: every call is the inner allocator's.
    unsafe impl<G: GlobalAlloc> GlobalAlloc for Quiet<G> {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller's promise.
            unsafe { self.0.alloc(layout) }
        }
        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller's promise.
            unsafe { self.0.alloc_zeroed(layout) }
        }
        unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
            // SAFETY: the caller's promise.
            unsafe { self.0.dealloc(ptr, layout) }
        }
    }

    impl<G> fmt::Debug for Quiet<G> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("GlobalAlloc")
        }
    }
}
