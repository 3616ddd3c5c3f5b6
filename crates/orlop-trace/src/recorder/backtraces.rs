//! Call sites of allocations: walked when they are asked for, named when they are read.

use crate::history::{SiteId, Sites};

/// Which allocations a backtrace is taken of. One costs microseconds.
///
/// Without the feature `backtrace` of this crate none is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backtraces {
    /// Every n-th of all threads together; 0 is none, 1 is all.
    pub every: u64,
    /// And all of so many bytes or more.
    pub at_least: u64,
}

impl Backtraces {
    /// None.
    pub const NONE: Self = Self { every: 0, at_least: u64::MAX };
    /// Of every allocation.
    pub const ALL: Self = Self { every: 1, at_least: 0 };
}

impl Default for Backtraces {
    fn default() -> Self {
        Self::NONE
    }
}

/// How many frames are kept.
#[cfg(feature = "backtrace")]
const DEPTH: usize = 64;

/// The addresses of the calls that led here, innermost first, kept under a number.
#[cfg(feature = "backtrace")]
pub(super) fn walk(take: impl FnOnce(&[usize]) -> u32) -> u32 {
    let (mut addresses, mut depth) = ([0; DEPTH], 0);
    backtrace::trace(|frame| {
        if let Some(place) = addresses.get_mut(depth) {
            *place = frame.ip().expose_provenance();
            depth += 1;
        }
        depth < DEPTH
    });
    take(addresses.get(..depth).unwrap_or_default())
}

#[cfg(not(feature = "backtrace"))]
pub(super) fn walk(_: impl FnOnce(&[usize]) -> u32) -> u32 {
    0
}

/// Functions, files and lines of addresses. The recorder's and the allocator's own frames are left out.
#[cfg(feature = "backtrace")]
pub(super) fn resolve(addresses: &[usize], sites: &mut Sites) -> SiteId {
    const OWN: [&str; 3] = ["backtrace::", "orlop_trace::recorder::", "orlop_alloc::"];
    let mut frames = Vec::new();
    let mut inside = true;
    for &address in addresses {
        backtrace::resolve(std::ptr::with_exposed_provenance_mut(address), |symbol| {
            let function = symbol.name().map(|name| format!("{name:#}")).unwrap_or_default();
            // `<orlop_alloc::Thing as Trait>::method` is its own, too.
            inside &= OWN.iter().any(|own| function.trim_start_matches('<').starts_with(own));
            if !inside {
                let file = symbol.filename().map(|file| file.display().to_string());
                let file = file.unwrap_or_else(|| "??".to_owned());
                frames.push(sites.frame(&function, &file, symbol.lineno().unwrap_or(0)));
            }
        });
    }
    sites.stack(&frames)
}

#[cfg(not(feature = "backtrace"))]
pub(super) fn resolve(_: &[usize], _: &mut Sites) -> SiteId {
    SiteId::UNKNOWN
}
