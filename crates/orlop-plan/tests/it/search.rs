//! Searches: families of problems, how a search ends, and where it begins.

use orlop_core::SplitMix64;
use orlop_plan::{
    Buffer, CapacityVerdict, Plan, PlanError, Planner, Problem, ProblemBuilder, SearchBudget, Verdict,
    greedy_by_size, verify,
};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn verified(problem: &Problem, planner: &Planner) -> Plan {
    let plan = planner.plan(problem);
    verify(problem, &plan).expect("plans are valid");
    plan
}

/// Buffers whose lifetimes have one length, as in pipelines and sliding windows.
fn one_length(seed: u64, mut size: impl FnMut(&mut SplitMix64) -> u64) -> Problem {
    let mut random = SplitMix64::new(seed);
    let buffers = (0..1500).map(|_| {
        let start = random.below(4500) as u64;
        Buffer::unaligned(start..start + 500, size(&mut random))
    });
    Problem::new(buffers.collect::<Vec<_>>()).expect("a valid problem")
}

#[test]
fn buffers_of_one_lifetime_length_are_packed_at_the_bound() {
    let planner = Planner::new();
    for seed in 0..4 {
        let equal = verified(&one_length(seed, |_| 4096), &planner);
        assert_eq!(equal.verdict(), Verdict::Optimal, "equal sizes, seed {seed}");
        let two = verified(&one_length(seed, |random| 4096 << random.below(2)), &planner);
        assert_eq!(two.verdict(), Verdict::Optimal, "two sizes, seed {seed}");
        let any = one_length(seed, |random| 1 + random.below(1 << 20) as u64);
        let plan = verified(&any, &planner);
        assert!(plan.ratio() < 1.03, "any size, seed {seed}: {}", plan.verdict());
        assert!(plan.height() <= greedy_by_size(&any).height());
    }
}

/// Buffers of short lifetimes, and a few of long ones, in more time than one region of a search has.
fn regions(seed: u64) -> Problem {
    let mut random = SplitMix64::new(seed);
    let buffers = (0..6000).map(|_| {
        let start = random.below(6000) as u64;
        let length = if random.below(100) == 0 { 1 + random.below(2000) } else { 40 };
        Buffer::unaligned(start..start + length as u64, 1 + random.below(1 << 20) as u64)
    });
    Problem::new(buffers.collect::<Vec<_>>()).expect("a valid problem")
}

#[test]
fn the_peaks_of_a_long_problem_are_packed_apart() {
    let planner = Planner::new().budget(SearchBudget::iterations(120)).threads(2);
    for (seed, max) in [(3, 1.012), (5, 1.0)] {
        let plan = verified(&regions(seed), &planner);
        assert!(plan.ratio() <= max, "seed {seed}: {}", plan.verdict());
    }
}

/// Four buffers that need more than the load, and many that are beside them.
fn hard() -> Problem {
    let mut random = SplitMix64::new(3);
    let buffers = (0..60).map(|_| {
        let start = random.below(40) as u64;
        Buffer::unaligned(start..start + 1 + random.below(12) as u64, 1 + random.below(300) as u64)
    });
    Problem::new(buffers.collect::<Vec<_>>()).expect("a valid problem")
}

#[test]
fn a_search_ends_when_the_plan_fits_in_the_capacity() {
    let problem = hard();
    let budget = SearchBudget::iterations(2000);
    let lowest = verified(&problem, &Planner::new().budget(budget));
    let first = verified(&problem, &Planner::new().budget(SearchBudget::iterations(1)));
    assert!(lowest.height() < first.height());
    let easy = Planner::new().budget(budget).capacity(first.height());
    assert_eq!(verified(&problem, &easy), first, "the first plan is low enough");
    let exact = verified(&problem, &Planner::new().budget(budget).capacity(lowest.height()));
    assert_eq!(exact.verdict_in(lowest.height()), CapacityVerdict::Fits);
    let impossible = verified(&problem, &Planner::new().budget(budget).capacity(problem.lower_bound() - 1));
    let verdict = impossible.verdict_in(problem.lower_bound() - 1);
    assert!(matches!(verdict, CapacityVerdict::Infeasible { .. }), "{verdict}");
}

#[test]
fn a_complete_search_proves_that_a_capacity_is_too_small() {
    // As in `tiny`: the load is 5 and the lowest plan 6.
    let sizes = [(0..2, 3), (0..1, 2), (1..3, 1), (1..4, 1), (2..4, 1), (3..6, 3), (4..7, 2)];
    let problem = Problem::new(sizes.map(|(lifetime, size)| Buffer::unaligned(lifetime, size))).unwrap();
    let plan = verified(&problem, &Planner::new().budget(SearchBudget::iterations(500)).capacity(5));
    assert_eq!(plan.verdict_in(5), CapacityVerdict::Infeasible { missing: 1 });
    let unsearched = verified(&problem, &Planner::new().capacity(5));
    assert_eq!(unsearched.verdict_in(5), CapacityVerdict::Unproven { missing: 1 });
}

#[test]
fn a_search_is_observed_and_broken_off() {
    let problem = hard();
    let planner = Planner::new().budget(SearchBudget::iterations(2000));
    let mut heights = Vec::new();
    let plan = planner.plan_with(&problem, |progress| {
        assert!(progress.lower_bound <= progress.height);
        heights.push(progress.height);
        ControlFlow::Continue(())
    });
    assert!(heights.is_sorted_by(|before, after| before >= after));
    assert_eq!(heights.last(), Some(&plan.height()));
    let mut calls = 0;
    let broken = planner.plan_with(&problem, |_| {
        calls += 1;
        ControlFlow::Break(())
    });
    verify(&problem, &broken).unwrap();
    assert_eq!((calls, broken.height()), (1, heights[0]));
}

#[test]
fn a_cancelled_search_returns_its_best_plan() {
    let problem = hard();
    let cancelled = Arc::new(AtomicBool::new(false));
    let planner = Planner::new().budget(SearchBudget::iterations(u64::MAX)).cancel(Arc::clone(&cancelled));
    let mut calls = 0;
    let plan = planner.plan_with(&problem, |_| {
        calls += 1;
        cancelled.store(calls >= 3, Ordering::Relaxed);
        ControlFlow::Continue(())
    });
    verify(&problem, &plan).unwrap();
    assert!(calls <= 4, "{calls} calls");
}

#[test]
fn a_search_begins_with_an_earlier_plan() {
    let problem = hard();
    let lowest = verified(&problem, &Planner::new().budget(SearchBudget::iterations(2000)));
    let none = Planner::new().budget(SearchBudget::iterations(0));
    assert_eq!(none.plan_from(&problem, &lowest).unwrap().offsets(), lowest.offsets());
    let better = Planner::new().plan_from(&problem, &greedy_by_size(&problem)).unwrap();
    verify(&problem, &better).unwrap();
    assert!(better.height() <= greedy_by_size(&problem).height());
    let invalid = Plan::new(&problem, vec![0; problem.len()]).unwrap();
    assert!(matches!(none.plan_from(&problem, &invalid), Err(PlanError::Overlap { .. })));
}

#[test]
fn ejection_lowers_plans_the_same_way_with_any_number_of_threads() {
    // Too many buffers for backtracking.
    let mut random = SplitMix64::new(10);
    let buffers = (0..1100).map(|_| {
        let start = random.below(5000) as u64;
        Buffer::unaligned(start..start + 1 + random.below(150) as u64, 1 + random.below(1000) as u64)
    });
    let problem = Problem::new(buffers.collect::<Vec<_>>()).unwrap();
    let heuristics = verified(&problem, &Planner::new());
    let planner = Planner::new().budget(SearchBudget::iterations(600)).seed(4);
    let plans = [1, 2, 5].map(|threads| verified(&problem, &planner.clone().threads(threads)));
    assert!(plans[0].height() < heuristics.height(), "not below {}", heuristics.height());
    assert_eq!((&plans[0], &plans[0]), (&plans[1], &plans[2]));
}

/// A search that advances byte by byte from a height to the next does not end.
#[test]
fn a_proof_goes_from_one_possible_height_to_the_next() {
    // The load is 5 units, and the lowest plan 6.
    let lifetimes = [(0..2, 3), (0..1, 2), (1..3, 1), (1..4, 1), (2..4, 1), (3..6, 3), (4..7, 2)];
    for cut in [0, 100] {
        let buffers = lifetimes.clone().map(|(lifetime, size)| Buffer::new(lifetime, (size << 30) - cut));
        let problem = Problem::new(buffers).unwrap();
        let plan = verified(&problem, &Planner::new().budget(SearchBudget::iterations(500)));
        let height = (6 << 30) - cut;
        assert_eq!((plan.height(), plan.verdict()), (height, Verdict::Optimal));
        assert!(problem.lower_bound() < height);
    }
}

/// Planning one of these takes the square of their number where a hint or a fixed offset is taken up.
fn live_together(constrain: impl FnOnce(&mut ProblemBuilder)) -> Problem {
    let mut builder = ProblemBuilder::new();
    for number in 0..50_000 {
        builder.push(Buffer::unaligned(0..2, 1 + number % 7)).expect("sizes are small");
    }
    constrain(&mut builder);
    builder.finish()
}

#[test]
fn a_cancelled_planner_takes_up_no_hints() {
    let planner = Planner::new().threads(1).cancel(Arc::new(AtomicBool::new(true)));
    let plain = planner.plan(&live_together(|_| ()));
    let hinted = live_together(|builder| builder.hint(0, 1 << 30).unwrap());
    assert_eq!(planner.plan(&hinted), plain);
}

#[test]
fn a_cancelled_planner_completes_no_plan() {
    let planner = Planner::new().threads(1).cancel(Arc::new(AtomicBool::new(true)));
    let problem = hard();
    let plan = planner.plan(&problem);
    verify(&problem, &plan).unwrap();
    let total: u64 = problem.buffers().iter().map(|buffer| buffer.size).sum();
    assert!(plan.height() >= total && Planner::new().plan(&problem).height() < total);
    // Time that is over does not keep the first plan from its end.
    let late = Planner::new().budget(SearchBudget::iterations(1).within(std::time::Duration::ZERO));
    assert_eq!(late.plan(&problem), Planner::new().budget(SearchBudget::iterations(1)).plan(&problem));
}

#[test]
fn a_cancelled_planner_stacks_buffers_above_what_is_fixed() {
    let planner = Planner::new().threads(1).cancel(Arc::new(AtomicBool::new(true)));
    let problem = live_together(|builder| builder.fix(0, 1000).unwrap());
    let plan = planner.plan(&problem);
    verify(&problem, &plan).unwrap();
    let total: u64 = problem.buffers().iter().map(|buffer| buffer.size).sum();
    // First fit puts some of them below.
    assert_eq!(plan.height(), 1000 + total);
}
