//! No planner of [`peers`](crate::peers) finds a lower plan for a shipped problem.
//!
//! The ignored test gives all of them the same time: `cargo test --release -p orlop-plan --test it versus --
//! --ignored --nocapture`. The environment variable `ORLOP_PLAN_PROBLEMS` names a folder with more problems,
//! as CSV with gzip.

use crate::peers::{Conflicts, Limit, Peer};
use crate::shipped::{PROBLEMS, read};
use crate::tiny::lowest;
use flate2::read::GzDecoder;
use orlop_plan::{Planner, Problem, SearchBudget, verify};
use proptest::prelude::*;
use std::fs::{self, File};
use std::time::{Duration, Instant};

const SEARCH: Limit = Limit { steps: 20, until: None };

#[test]
fn plans_are_no_higher_than_those_of_other_planners() {
    for (name, buffers, ..) in PROBLEMS {
        if buffers > 10_000 {
            // The square of it is too much without optimisation.
            continue;
        }
        let problem = read(name);
        let plan = Planner::new().budget(SearchBudget::short(problem.len())).plan(&problem);
        let conflicts = Conflicts::new(&problem).expect("few pairs");
        for peer in Peer::ALL {
            let height = peer.plan(&conflicts, SEARCH, 1);
            assert!(plan.height() <= height, "{name}: {} above {height} of {peer:?}", plan.height());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_search_of_minimalloc_is_complete(problem in crate::problem(5, 5, 5, 0)) {
        let conflicts = Conflicts::new(&problem).expect("few pairs");
        prop_assert_eq!(Peer::Minimalloc.plan(&conflicts, SEARCH, 0), lowest(&problem));
    }
}

/// The time of a planner that does not end by itself.
const SEARCH_TIME: Duration = Duration::from_secs(1);

/// The number of times that orlop may try: it may have waited for a processor.
const TRIES: usize = 3;

/// Returns all problems, by name.
fn problems() -> Vec<(String, Problem)> {
    let mut problems: Vec<_> = PROBLEMS.iter().map(|(name, ..)| ((*name).to_owned(), read(name))).collect();
    if let Some(folder) = std::env::var_os("ORLOP_PLAN_PROBLEMS") {
        for entry in fs::read_dir(folder).expect("a folder with problems") {
            let path = entry.expect("a file").path();
            let file = GzDecoder::new(File::open(&path).expect("a readable file"));
            problems.push((path.display().to_string(), Problem::read_csv(file).expect("a valid problem")));
        }
    }
    problems
}

/// Returns the lowest height of orlop's plans in this time, each time anew until it is low enough.
fn height_within(problem: &Problem, time: Duration, seed: u64, enough: u64) -> u64 {
    let mut lowest = u64::MAX;
    for _ in 0..TRIES {
        let budget = SearchBudget::iterations(u64::MAX).within(time);
        let plan = Planner::new().budget(budget).seed(seed).plan(problem);
        verify(problem, &plan).expect("a valid plan");
        lowest = lowest.min(plan.height());
        if lowest <= enough {
            break;
        }
    }
    lowest
}

#[test]
#[ignore = "timed: minutes, and the machine must have nothing else to do"]
fn plans_are_no_higher_after_the_same_time() {
    let mut higher = String::new();
    for (name, problem) in problems() {
        let begin = Instant::now();
        let Some(conflicts) = Conflicts::new(&problem) else {
            println!("{name}: too many pairs");
            continue;
        };
        let listed = begin.elapsed();
        for peer in Peer::ALL {
            let planned = |seed| {
                let begin = Instant::now();
                let until = Some(begin + SEARCH_TIME);
                (peer.plan(&conflicts, Limit { steps: u64::MAX, until }, seed), listed + begin.elapsed())
            };
            let first = planned(0);
            for seed in 0..5 {
                let (height, time) = if peer.is_search() && seed > 0 { planned(seed) } else { first };
                let own = height_within(&problem, time, seed, height);
                let ratio = |height: u64| height as f64 / problem.lower_bound() as f64;
                let milliseconds = time.as_secs_f64() * 1e3;
                let (other, ratio) = (ratio(height), ratio(own));
                let line = format!(
                    "{name}, {peer:?}, seed {seed}, {milliseconds:.3} ms: {other:.5}, orlop {ratio:.5}\n"
                );
                print!("{line}");
                if own > height {
                    higher += &line;
                }
            }
        }
    }
    assert!(higher.is_empty(), "higher plans:\n{higher}");
}
