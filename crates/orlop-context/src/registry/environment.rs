//! Environment variables for the CPU's allocators, which `config` lists.

use super::AllocatorConfig;
use orlop_alloc::adaptor::Hardening;
use orlop_alloc::system_memory;
use orlop_core::ByteSize;
use std::env::{self, VarError};

const ALLOCATOR: &str = "ORLOP_CPU_ALLOCATOR";
const LIMIT: &str = "ORLOP_CPU_LIMIT";
const GROWTH: &str = "ORLOP_CPU_GROWTH";

/// The variable that makes the allocator fork-safe.
pub(super) const FORK_SAFE: &str = "ORLOP_CPU_FORK_SAFE";

/// What a share must be.
pub(super) const SHARE: &str = "a share from 1 to 100 percent of memory whose size is known";

/// A boolean setting: its variable, the value that has an effect, and the effect.
type Flag = (&'static str, &'static str, fn(AllocatorConfig) -> AllocatorConfig);

const FLAGS: [Flag; 6] = [
    ("ORLOP_CPU_RELEASE", "1", |config| config.release_when_stuck(true)),
    ("ORLOP_CPU_HARDENED", "1", |config| config.hardened(Hardening::full())),
    (FORK_SAFE, "1", AllocatorConfig::fork_safe),
    ("ORLOP_CPU_STATISTICS", "0", |config| config.statistics(false)),
    ("ORLOP_CPU_WARN", "1", AllocatorConfig::warned),
    ("ORLOP_CPU_LOG", "1", AllocatorConfig::logged),
];

/// Reads the configuration from the process's environment.
pub(super) fn read() -> AllocatorConfig {
    let mut config = AllocatorConfig::new();
    config = with(config, ALLOCATOR, |config, name| config.named(name));
    config = with(config, LIMIT, |config, text| match bytes(text) {
        Some(bytes) => config.limit(bytes),
        None => config.misread(LIMIT, text, "a byte size such as 8GiB, or a share such as 50%"),
    });
    config = with(config, GROWTH, |config, text| match text {
        "whole" => config.whole_limit(true),
        "doubling" => config,
        _ => config.misread(GROWTH, text, "doubling or whole"),
    });
    for (variable, active, set) in FLAGS {
        config = with(config, variable, |config, text| match text {
            "0" | "1" if text == active => set(config),
            "0" | "1" => config,
            _ => config.misread(variable, text, "0 or 1"),
        });
    }
    config
}

/// Changes the configuration by a variable's value, unless it is unset or empty.
fn with(
    config: AllocatorConfig,
    variable: &'static str,
    change: impl FnOnce(AllocatorConfig, &str) -> AllocatorConfig,
) -> AllocatorConfig {
    match env::var(variable) {
        Ok(text) if !text.is_empty() => change(config, &text),
        Ok(_) | Err(VarError::NotPresent) => config,
        Err(VarError::NotUnicode(text)) => config.misread(variable, &text.to_string_lossy(), "Unicode text"),
    }
}

/// Parses a byte size, or a share of the memory that the process may use.
fn bytes(text: &str) -> Option<usize> {
    match text.strip_suffix('%') {
        Some(percent) => share(percent.trim().parse().ok()?),
        None => text.parse::<ByteSize>().ok().and_then(|ByteSize(bytes)| usize::try_from(bytes).ok()),
    }
}

/// Returns a share of the memory that the process may use, in bytes.
pub(super) fn share(percent: u64) -> Option<usize> {
    let percent = Some(percent).filter(|percent| (1..=100).contains(percent))?;
    // Divided first, so that nothing overflows: the loss is less than 100 bytes.
    usize::try_from(system_memory::total()? / 100 * percent).ok()
}
