//! Backings by name: the system's allocator and those that cargo features add.

use super::{BackingRef, HugePages, Mmap, System};
use crate::{Error, Result};
use std::sync::Arc;

/// The environment variable that names the backing of the CPU allocators.
pub(crate) const VARIABLE: &str = "ORLOP_CPU_BACKING";

/// The names that [`named`] accepts in this build, the default first. The default is the first of `mimalloc`,
/// `jemalloc` and `snmalloc` that is built in, or else `system`.
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

/// Creates the backing of this name.
///
/// # Errors
///
/// [`Error::UnknownName`] if the name is unknown or its feature is not built in.
pub fn named(name: &str) -> Result<BackingRef> {
    Ok(match name {
        #[cfg(feature = "mimalloc")]
        "mimalloc" => Arc::new(super::FromGlobal::over(WithDebug(mimalloc::MiMalloc), "mimalloc")),
        #[cfg(feature = "jemalloc")]
        "jemalloc" => Arc::new(super::FromGlobal::over(WithDebug(tikv_jemallocator::Jemalloc), "jemalloc")),
        #[cfg(feature = "snmalloc")]
        "snmalloc" => Arc::new(super::FromGlobal::over(WithDebug(snmalloc_rs::SnMalloc), "snmalloc")),
        "system" => Arc::new(System::new()),
        "mmap" => Arc::new(Mmap::new()),
        "mmap-huge" => Arc::new(Mmap::new().huge_pages(HugePages::Always)),
        "mmap-4k" => Arc::new(Mmap::new().huge_pages(HugePages::Never)),
        _ => return Err(Error::UnknownName { what: "backing", name: name.into() }),
    })
}

/// Creates the default backing of the CPU allocators: the one that `ORLOP_CPU_BACKING` names, or else the
/// first of [`NAMES`].
///
/// # Errors
///
/// [`Error::Configuration`] if the variable has an unknown name.
pub fn default_backing() -> Result<BackingRef> {
    match std::env::var_os(VARIABLE) {
        Some(name) if !name.is_empty() => {
            let name = name.to_string_lossy();
            named(&name).map_err(|_| Error::Configuration {
                variable: VARIABLE,
                value: name.into(),
                expected: "the name of a backing in this build",
            })
        }
        _ => named(NAMES.first().copied().unwrap_or("system")),
    }
}

/// Adds `Debug` to an allocator that does not implement it.
#[cfg(any(feature = "mimalloc", feature = "jemalloc", feature = "snmalloc"))]
struct WithDebug<G>(G);

#[cfg(any(feature = "mimalloc", feature = "jemalloc", feature = "snmalloc"))]
mod with_debug {
    use super::WithDebug;
    use std::alloc::{GlobalAlloc, Layout};
    use std::fmt;

    // SAFETY: every call is forwarded to the inner allocator.
    unsafe impl<G: GlobalAlloc> GlobalAlloc for WithDebug<G> {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: guaranteed by the caller.
            unsafe { self.0.alloc(layout) }
        }
        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            // SAFETY: guaranteed by the caller.
            unsafe { self.0.alloc_zeroed(layout) }
        }
        unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
            // SAFETY: guaranteed by the caller.
            unsafe { self.0.dealloc(ptr, layout) }
        }
    }

    impl<G> fmt::Debug for WithDebug<G> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("GlobalAlloc")
        }
    }
}
