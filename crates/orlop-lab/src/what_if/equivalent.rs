//! Settings that cannot differ in the replay of a workload: one of them is replayed for all.

use crate::simulate::{AllocatorRules, SimulationOutcome};
use orlop_trace::history::{WorkStep, Workload};
use rayon::prelude::*;

/// Replays a workload with each of the rules by `replay`. `is_unlimited` is whether memory is.
pub(super) fn replays(
    work: &Workload,
    rules: &[AllocatorRules],
    is_unlimited: bool,
    replay: impl Fn(&AllocatorRules) -> SimulationOutcome + Sync,
) -> Vec<SimulationOutcome> {
    let largest = if is_unlimited { largest_request(work) } else { u64::MAX };
    let reduced: Vec<AllocatorRules> = rules.iter().map(|rules| reduced(rules, largest)).collect();
    let mut distinct: Vec<&AllocatorRules> = Vec::new();
    for rules in &reduced {
        if !distinct.contains(&rules) {
            distinct.push(rules);
        }
    }
    // One at a time: a replay of a long recording takes a second, and the last ones are divided too.
    let replays = distinct.into_par_iter().with_max_len(1);
    let outcomes: Vec<(&AllocatorRules, SimulationOutcome)> =
        replays.map(|rules| (rules, replay(rules))).collect();
    let all = rules.iter().zip(&reduced).filter_map(|(rules, reduced)| {
        let (_, outcome) = outcomes.iter().find(|(replayed, _)| *replayed == reduced)?;
        Some(SimulationOutcome { rules: rules.to_string(), conf: rules.conf(), ..outcome.clone() })
    });
    all.collect()
}

/// Returns the bytes of the largest request, failed ones included.
fn largest_request(work: &Workload) -> u64 {
    let failed = work.steps.iter().filter_map(|step| match *step {
        WorkStep::Failed(bytes, _) => Some(bytes),
        _ => None,
    });
    work.blocks.iter().map(|block| block.bytes).chain(failed).max().unwrap_or(0)
}

/// Returns the rules without `max_split_size`, if it forbids nothing: no request is larger than `largest`, so
/// all regions are smaller, and so are all blocks. Expandable segments grow beyond a request, and with less
/// memory the setting also decides what is released.
fn reduced(rules: &AllocatorRules, largest: u64) -> AllocatorRules {
    let AllocatorRules::Torch(conf) = rules else { return rules.clone() };
    let Some(max_split) = conf.max_split_size.filter(|_| !conf.expandable_segments) else {
        return rules.clone();
    };
    let mut without = conf.clone();
    without.max_split_size = None;
    let without = AllocatorRules::Torch(without);
    let region = without.policy().zip(usize::try_from(largest).ok()).and_then(|(policy, largest)| {
        // Requests of medium size share regions, which can be larger than that of the largest request.
        Some(policy.region_bytes(policy.round(largest)?)?.max(policy.large_region))
    });
    let is_idle = conf.memory_fraction.is_none() && region.is_some_and(|region| region < max_split);
    if is_idle { without } else { rules.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::Simulation;
    use crate::what_if::settings;
    use orlop_trace::history::History;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const MIB: u64 = 1 << 20;

    /// Blocks of many sizes up to 100 MiB, freed in another order.
    fn work() -> Workload {
        let sizes = (1..60).map(|index: u64| (index * index * 37) % 100 * MIB + index * 700);
        let mut text = String::new();
        for (id, bytes) in (0..).zip(sizes) {
            text += &format!("a,{id},{bytes}\n");
            if id % 3 == 2 {
                text += &format!("f,{}\n", id - id % 2);
            }
        }
        let history = History::parse(text.as_bytes()).unwrap();
        Workload::of(&history.devices[0])
    }

    #[test]
    fn settings_that_cannot_differ_are_replayed_once_with_the_results_of_each() {
        let (work, rules) = (work(), settings(false));
        let replayed = AtomicUsize::new(0);
        let replay = |rules: &AllocatorRules| {
            replayed.fetch_add(1, Ordering::Relaxed);
            SimulationOutcome { nanoseconds: None, ..Simulation::new(&work).run(rules) }
        };
        let each: Vec<SimulationOutcome> = rules.iter().map(replay).collect();
        assert_eq!(replayed.swap(0, Ordering::Relaxed), rules.len());
        // max_split_size_mb of 128, alone and with roundup_power2_divisions, of 256, and of 512.
        assert_eq!(replays(&work, &rules, true, replay), each);
        assert_eq!(replayed.swap(0, Ordering::Relaxed), rules.len() - 4);
        assert_eq!(replays(&work, &rules, false, replay), each);
        assert_eq!(replayed.into_inner(), rules.len());
    }

    #[test]
    fn a_setting_that_the_largest_request_reaches_stays() {
        let rules = |conf: &str| AllocatorRules::torch(conf).unwrap();
        let with = rules("max_split_size_mb:64");
        assert_eq!(reduced(&with, 62 * MIB), rules(""));
        assert_eq!(reduced(&with, 62 * MIB + 1), with);
        assert_eq!(reduced(&rules("max_split_size_mb:20"), 512), rules("max_split_size_mb:20"));
        for conf in [
            "expandable_segments:True,max_split_size_mb:64",
            "max_split_size_mb:64,per_process_memory_fraction:0.5",
        ] {
            assert_eq!(reduced(&rules(conf), 512), rules(conf));
        }
    }
}
