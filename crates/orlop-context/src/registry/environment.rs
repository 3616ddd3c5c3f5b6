//! Environment variables for the CPU's allocators, which `config` lists.

use super::AllocatorConfig;
use orlop_alloc::adaptor::Hardening;
use orlop_alloc::{Error, Result};
use orlop_core::ByteSize;
use orlop_host::system_memory;
use std::env::{self, VarError};
use std::sync::Arc;

const ALLOCATOR: &str = "ORLOP_CPU_ALLOCATOR";
const LIMIT: &str = "ORLOP_CPU_LIMIT";
const GROWTH: &str = "ORLOP_CPU_GROWTH";
const RELEASE: &str = "ORLOP_CPU_RELEASE";
const FORK_SAFE: &str = "ORLOP_CPU_FORK_SAFE";

/// The variables that are not flags. `ORLOP_CPU_BACKING` is read where backings are found by name.
const VALUES: [&str; 4] = [ALLOCATOR, "ORLOP_CPU_BACKING", LIMIT, GROWTH];

/// What a share must be.
pub(super) const SHARE: &str = "a share from 1 to 100 percent of memory whose size is known";

/// A boolean setting: its variable, the value that has an effect, and the effect.
type Flag = (&'static str, &'static str, fn(AllocatorConfig) -> AllocatorConfig);

const FLAGS: [Flag; 6] = [
    (RELEASE, "1", |config| config.release_when_stuck(true)),
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
    config.unknown_variables = unknown_variables();
    config.environment = Some(Arc::new(config.clone()));
    config
}

/// Returns the variables that look like settings but are not: every unknown `ORLOP_CPU…`, and names that
/// only lack the device (`ORLOP_LIMIT`). Other variables that begin with `ORLOP_` are not this crate's.
fn unknown_variables() -> Box<[Box<str>]> {
    let settings = || VALUES.into_iter().chain(FLAGS.map(|(variable, ..)| variable));
    let is_unknown = |name: &str| {
        let looks = |rest: &str| {
            rest.starts_with("CPU")
                || settings().any(|setting| setting.strip_prefix("ORLOP_CPU_") == Some(rest))
        };
        name.strip_prefix("ORLOP_").is_some_and(looks) && settings().all(|setting| setting != name)
    };
    let names = env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let mut unknown: Vec<_> = names.filter(|name| is_unknown(name)).map(String::into_boxed_str).collect();
    unknown.sort_unstable();
    unknown.into()
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

/// Errors in terms of the environment.
impl AllocatorConfig {
    /// Returns an error for a setting that could not be read.
    pub(super) fn check_read(&self) -> Result<()> {
        if let Some((variable, value, expected)) = self.misread.clone() {
            return Err(Error::Configuration { variable, value, expected });
        }
        if !self.unknown_variables.is_empty() {
            return Err(Error::UnknownVariables { names: self.unknown_variables.clone() });
        }
        Ok(())
    }

    /// Names the environment variable in an error of a setting that has its value from there.
    pub(super) fn name_variable(&self, error: Error) -> Error {
        let Some(read) = &self.environment else { return error };
        match error {
            Error::Configuration { variable, value, expected } => {
                let variable = match variable {
                    "limit" if read.limit == self.limit => LIMIT,
                    "growth" if read.whole_limit == self.whole_limit => GROWTH,
                    "release" if read.release_when_stuck == self.release_when_stuck => RELEASE,
                    "fork_safe" if read.fork_safe == self.fork_safe => FORK_SAFE,
                    other => other,
                };
                Error::Configuration { variable, value, expected }
            }
            Error::UnknownName { what: "allocator", name }
                if read.name == self.name && self.name.as_ref() == Some(&name) =>
            {
                let expected = "the name of an allocator in the registry";
                Error::Configuration { variable: ALLOCATOR, value: name, expected }
            }
            other => other,
        }
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
