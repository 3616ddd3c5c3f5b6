//! The allocators of the process's registry, by name.

use orlop::lab::LabError;
use orlop::lab::cpu_bench::{Replay, ReplayReport, replay_in_smallest_pool};
use orlop::memory::AllocatorConfig;
use orlop::memory::backing::{self, BackingRef, Null};
use orlop::memory::registry::registry;
use orlop::memory::{AllocatorRef, Result};
use orlop::types::Device;
use std::sync::Arc;

/// The allocator of a fixed pool: here, of the smallest size that fits the trace.
const FIXED: &str = "bfc-fixed";

/// The allocator of a device of a fixed size: here, a multiple of the peak of live bytes, with a minimum.
const HOST_PAGES: &str = "host-pages";
const PAGES_MULTIPLE: usize = 2;
const MIN_PAGES_BYTES: usize = 64 << 20;

/// The backing without memory: traces of any size can be replayed with it.
pub(crate) const NULL: &str = "null";

/// Allocators that are compared only by name. An arena frees nothing while a trace runs: a long trace would
/// exhaust the memory. `direct` and `system` clear every block, because each is its own region, which takes
/// as long as the traces themselves. `host-pages` has its own memory, whose size must be given.
const NOT_COMPARED: [&str; 4] = ["arena", "direct", "host-pages", "system"];

/// Alternative names.
const ALIASES: [(&str, &str); 1] = [("buckets", "pow2")];

/// Registers the allocators of the backends. Call it before the first allocator is created.
pub(crate) fn register() {
    orlop::device::register(registry());
}

/// Returns all names, by preference.
pub(crate) fn names() -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for registered in registry().registered() {
        if !names.iter().any(|name| **name == *registered.name) {
            names.push(registered.name.into());
        }
    }
    names
}

/// Returns the allocators that are compared by default.
pub(crate) fn default_names() -> Vec<String> {
    names().into_iter().filter(|name| !NOT_COMPARED.contains(&name.as_str())).collect()
}

/// Returns the alternative names of an allocator.
pub(crate) fn aliases(name: &str) -> impl Iterator<Item = &'static str> {
    ALIASES.into_iter().filter(move |&(_, known)| known == name).map(|(alias, _)| alias)
}

/// Returns the name for an alternative name.
pub(crate) fn canonical(name: String) -> String {
    ALIASES.into_iter().find(|&(alias, _)| alias == name).map_or(name, |(_, known)| known.to_owned())
}

/// Replays through a new allocator of this name.
pub(crate) fn replay(
    name: &str,
    replay: &Replay<'_>,
    backing: &BackingRef,
) -> Result<ReplayReport, LabError> {
    let options = AllocatorConfig::new().backing(Arc::clone(backing));
    if name == HOST_PAGES {
        let live = usize::try_from(replay.trace().peak().bytes).unwrap_or(usize::MAX);
        let size = live.saturating_mul(replay.thread_count()).saturating_mul(PAGES_MULTIPLE);
        // It has its own memory.
        return replay.run(&make(name, &AllocatorConfig::new().limit(size.max(MIN_PAGES_BYTES)))?);
    }
    if name != FIXED {
        return replay.run(&make(name, &options)?);
    }
    let null = AllocatorConfig::new().backing(Arc::new(Null::new(Device::CPU)));
    let search = |bytes| make(name, &null.clone().limit(bytes));
    let real = |bytes| make(name, &options.clone().limit(bytes));
    replay_in_smallest_pool(replay, search, real).map(|(_, report)| report)
}

fn make(name: &str, options: &AllocatorConfig) -> Result<AllocatorRef, LabError> {
    registry().make(name, options).map_err(|error| LabError::Make { allocator: name.into(), error })
}

/// Returns the backing of this name, or the default one.
pub(crate) fn backing(name: Option<&str>) -> Result<BackingRef> {
    match name {
        Some(NULL) => Ok(Arc::new(Null::new(Device::CPU))),
        Some(name) => backing::named(name),
        None => backing::default_backing(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Arguments;
    use clap::CommandFactory;

    #[test]
    fn the_help_says_what_is_not_compared() {
        let replay = Arguments::command().find_subcommand("replay").expect("there is one").clone();
        let argument = replay.get_arguments().find(|argument| argument.get_id() == "allocators");
        let help = argument.and_then(|argument| argument.get_help()).expect("it has a help").to_string();
        let [first @ .., last] = NOT_COMPARED;
        assert!(help.contains(&format!("all but {} and {last}]", first.join(", "))), "{help}");
    }

    #[test]
    fn default_set_is_valid_and_aliases_resolve() {
        let names = names();
        for name in ["bfc", "direct", "bfc-fixed", "pool", "pow2", "arena", "system"] {
            assert_eq!(names.iter().filter(|known| *known == name).count(), 1, "{name}");
        }
        assert!(
            default_names().contains(&"pow2".to_owned()) && !default_names().contains(&"arena".to_owned())
        );
        for (alias, name) in ALIASES {
            assert_eq!(canonical(alias.to_owned()), name);
            assert!(aliases(name).any(|known| known == alias));
        }
        assert_eq!(canonical("bfc".to_owned()), "bfc");
    }
}
