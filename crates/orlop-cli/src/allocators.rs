//! Which allocators there are: those of the process's registry, by name.

use crate::arguments::NULL;
use orlop::lab::LabError;
use orlop::lab::cpu_bench::{Replay, ReplayReport, replay_in_smallest_pool};
use orlop::memory::backing::{self, BackingRef, Null};
use orlop::memory::registry::{FactoryOptions, registry};
use orlop::memory::{AllocatorRef, Result};
use orlop::types::Device;
use std::sync::Arc;

/// Works in one pool of a size that must be given: here, the smallest that holds the trace.
const FIXED: &str = "bfc-fixed";

/// A device of a size that must be given: here, so many times what is live at most, and at least so many
/// bytes.
const PAGES: &str = "host-pages";
const PAGES_TIMES: usize = 2;
const PAGES_LEAST: usize = 64 << 20;

/// Not compared unless they are named. An arena gives nothing back while a trace runs: over one of hours it
/// would take all memory there is. `direct` and `system` clear every block, since each is a region of its
/// own: that takes as long as the traces themselves. `host-pages` has memory of its own, of a size that must
/// be given.
const UNUSUAL: [&str; 4] = ["arena", "direct", "host-pages", "system"];

/// Other names for some.
const ALIASES: [(&str, &str); 1] = [("buckets", "pow2")];

/// Registers what the backends offer that are not built in. Before the first allocator is made.
pub(crate) fn register() {
    orlop::device::register(registry());
}

/// All names, the preferred one first.
pub(crate) fn names() -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for registered in registry().registered() {
        if !names.iter().any(|name| **name == *registered.name) {
            names.push(registered.name.into());
        }
    }
    names
}

/// Those that are compared unless some are named.
pub(crate) fn usual() -> Vec<String> {
    names().into_iter().filter(|name| !UNUSUAL.contains(&name.as_str())).collect()
}

/// Other names of the allocator of this name.
pub(crate) fn aliases(name: &str) -> impl Iterator<Item = &'static str> {
    ALIASES.into_iter().filter(move |&(_, known)| known == name).map(|(alias, _)| alias)
}

/// The name itself, if it is another one's alias.
pub(crate) fn canonical(name: String) -> String {
    ALIASES.into_iter().find(|&(alias, _)| alias == name).map_or(name, |(_, known)| known.to_owned())
}

/// Replays through a new allocator of this name.
pub(crate) fn replay(
    name: &str,
    replay: &Replay<'_>,
    backing: &BackingRef,
) -> Result<ReplayReport, LabError> {
    let options = FactoryOptions::new().backing(Arc::clone(backing));
    if name == PAGES {
        let live = usize::try_from(replay.trace().peak().bytes).unwrap_or(usize::MAX);
        let size = live.saturating_mul(replay.thread_count()).saturating_mul(PAGES_TIMES);
        // It takes no backing.
        return replay.run(&make(name, &FactoryOptions::new().limit(size.max(PAGES_LEAST)))?);
    }
    if name != FIXED {
        return replay.run(&make(name, &options)?);
    }
    let null = FactoryOptions::new().backing(Arc::new(Null::new(Device::CPU)));
    let search = |bytes| make(name, &null.clone().limit(bytes));
    let real = |bytes| make(name, &options.clone().limit(bytes));
    replay_in_smallest_pool(replay, search, real).map(|(_, report)| report)
}

fn make(name: &str, options: &FactoryOptions) -> Result<AllocatorRef, LabError> {
    registry().make(name, options).map_err(|error| LabError::Make { allocator: name.into(), error })
}

/// The backing of this name, or the one that orlop would take.
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
        let [most @ .., last] = UNUSUAL;
        assert!(help.contains(&format!("all but {} and {last}]", most.join(", "))), "{help}");
    }

    #[test]
    fn what_is_usual_is_known_and_aliases_lead_to_names() {
        let names = names();
        for name in ["bfc", "direct", "bfc-fixed", "pool", "pow2", "arena", "system"] {
            assert_eq!(names.iter().filter(|known| *known == name).count(), 1, "{name}");
        }
        assert!(usual().contains(&"pow2".to_owned()) && !usual().contains(&"arena".to_owned()));
        for (alias, name) in ALIASES {
            assert_eq!(canonical(alias.to_owned()), name);
            assert!(aliases(name).any(|known| known == alias));
        }
        assert_eq!(canonical("bfc".to_owned()), "bfc");
    }
}
