//! Call sites of allocations: captured as addresses, resolved when they are read.

use crate::history::{SiteId, Sites};

/// Selects the allocations that are recorded with a backtrace, which costs microseconds.
///
/// Without the feature `backtrace` of this crate none is captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backtraces {
    /// Captures one of every `every` allocations of all threads together: 0 is none, 1 is all.
    pub every: u64,
    /// Also captures all allocations of at least this size in bytes.
    pub min_bytes: u64,
}

impl Backtraces {
    /// Captures none.
    pub const NONE: Self = Self { every: 0, min_bytes: u64::MAX };
    /// Captures all.
    pub const ALL: Self = Self { every: 1, min_bytes: 0 };
}

impl Default for Backtraces {
    fn default() -> Self {
        Self::NONE
    }
}

/// The maximum number of frames.
#[cfg(feature = "backtrace")]
const DEPTH: usize = 64;

/// Captures the return addresses of the current call stack, innermost first.
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

/// Resolves addresses to functions, files and lines. Frames of the recorder and the allocator are omitted.
#[cfg(feature = "backtrace")]
pub(super) fn resolve(addresses: &[usize], sites: &mut Sites) -> SiteId {
    const OWN: [&str; 3] = ["backtrace::", "orlop_trace::recorder::", "orlop_alloc::"];
    let mut frames = Vec::new();
    let mut inside = true;
    for &address in addresses {
        backtrace::resolve(std::ptr::with_exposed_provenance_mut(address), |symbol| {
            let function = symbol.name().map(|name| format!("{name:#}")).unwrap_or_default();
            // `<orlop_alloc::Thing as Trait>::method` is also one of them.
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
