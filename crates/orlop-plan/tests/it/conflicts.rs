//! Larger problems with gaps, exclusions and blocks of limited size.

use orlop_core::SplitMix64;
use orlop_plan::{
    Buffer, Plan, PlanError, Planner, Problem, ProblemBuilder, ProblemError, SearchBudget, greedy_by_size,
    replan, verify,
};

fn random_buffers(count: usize, seed: u64) -> ProblemBuilder {
    let mut random = SplitMix64::new(seed);
    let mut builder = ProblemBuilder::new();
    for _ in 0..count {
        let start = random.below(count) as u64;
        let lifetime = start..start + 3 + random.below(60) as u64;
        builder.push(Buffer::unaligned(lifetime, 1 + random.below(100) as u64)).expect("sizes are small");
    }
    builder
}

/// Plans with heuristics and with a search, and checks both. Returns the heights.
fn heights(problem: &Problem) -> (u64, u64) {
    let first = Planner::new().threads(2).plan(problem);
    let planner = Planner::new().budget(SearchBudget::iterations(50)).seed(3);
    let searched = planner.clone().threads(1).plan(problem);
    assert_eq!(planner.threads(3).plan(problem), searched, "the same with any number of threads");
    let offsets: Vec<Option<u64>> = searched.offsets().iter().copied().map(Some).collect();
    assert_eq!(replan(problem, &offsets).offsets(), searched.offsets(), "a valid plan is kept");
    for plan in [&first, &searched, &greedy_by_size(problem), &replan(problem, &[])] {
        verify(problem, plan).expect("plans are valid");
        assert!(plan.lower_bound() <= plan.height());
    }
    (first.height(), searched.height())
}

#[test]
fn other_buffers_are_in_gaps() {
    let mut builder = random_buffers(2500, 1);
    let without = builder.clone().finish();
    let whole = without.lower_bound();
    for (index, &Buffer { start, end, .. }) in without.buffers().iter().enumerate() {
        if end - start > 6 {
            builder.gap(index, start + 2..end - 2).unwrap();
        }
    }
    let problem = builder.finish();
    let (first, searched) = heights(&problem);
    assert!(problem.lower_bound() < whole / 2, "{} {whole}", problem.lower_bound());
    assert!(first < whole, "{first} {whole}");
    assert!(searched < first, "{searched} {first}");
}

/// Pairs that are never live together, in different regions of time.
#[test]
fn excluded_pairs_stay_apart_in_a_search() {
    let mut builder = random_buffers(2500, 2);
    let mut random = SplitMix64::new(4);
    for _ in 0..400 {
        let (one, other) = (random.below(2500), random.below(2500));
        if one != other {
            builder.exclude(one, other).unwrap();
        }
    }
    let (first, searched) = heights(&builder.finish());
    assert!(searched <= first, "{searched} {first}");
}

#[test]
fn no_buffer_is_in_two_blocks() {
    let builder = random_buffers(1500, 5);
    let problem = builder.finish();
    let limit = problem.lower_bound() / 5;
    let limited = problem.clone().limit_blocks(limit).unwrap();
    let (first, searched) = heights(&limited);
    assert!(searched <= first);
    let plan = Planner::new().plan(&limited);
    let blocks = plan.block_sizes(&limited);
    assert!(blocks.values().all(|&size| size <= limit), "{blocks:?}");
    assert_eq!(blocks.len() as u64, plan.height().div_ceil(limit));
    // The same offsets without the limit are a plan, and those of a plan without it are none with it.
    verify(&problem, &Plan::new(&problem, plan.offsets().to_vec()).unwrap()).unwrap();
    let unlimited = Planner::new().plan(&problem);
    let error = verify(&limited, &Plan::new(&limited, unlimited.offsets().to_vec()).unwrap()).unwrap_err();
    assert!(matches!(error, PlanError::Divided { .. }), "{error}");
}

#[test]
fn what_may_not_share_bytes_is_checked() {
    let mut builder = ProblemBuilder::new();
    for lifetime in [0..1, 1..2, 2..3, 0..3] {
        builder.push(Buffer::unaligned(lifetime, 10)).unwrap();
    }
    builder.exclude(1, 0).unwrap();
    assert_eq!(builder.exclude(2, 2), Err(ProblemError::Excluded { index: 2, other: 2 }));
    builder.fix(0, 5).unwrap();
    assert_eq!(builder.fix(1, 8), Err(ProblemError::Excluded { index: 1, other: 0 }));
    let mut at_once = builder.clone();
    let error = at_once.fix_all(&[(3, 30), (1, 8)]);
    assert_eq!(error, Err((1, ProblemError::Excluded { index: 0, other: 1 })));
    builder.fix(2, 8).unwrap();
    assert_eq!(builder.exclude(2, 0), Err(ProblemError::Excluded { index: 2, other: 0 }));
    let problem = builder.finish();
    let shared = Plan::new(&problem, vec![5, 8, 8, 20]).unwrap();
    let error = verify(&problem, &shared).unwrap_err();
    assert_eq!(error.to_string(), "buffer 0 and buffer 1 may not share bytes, but share 8..15");
    let mut builder = ProblemBuilder::new();
    for size in [10, 10, 20] {
        builder.push(Buffer::unaligned(0..1, size)).unwrap();
    }
    builder.exclude(0, 1).unwrap();
    builder.place_in(0, 2, 0).unwrap();
    assert_eq!(builder.place_in(1, 2, 5), Err(ProblemError::Excluded { index: 0, other: 1 }));
    builder.place_in(1, 2, 10).unwrap();
    let problem = builder.finish();
    assert_eq!(Planner::new().plan(&problem).offsets(), [0, 10, 0]);
}

#[test]
fn a_plan_in_a_gap_is_not_one_without_it() {
    let buffers = [Buffer::unaligned(0..9, 10), Buffer::unaligned(3..5, 10)];
    let mut builder = ProblemBuilder::new();
    for buffer in buffers {
        builder.push(buffer).unwrap();
    }
    builder.gap(0, 3..5).unwrap();
    let problem = builder.finish();
    let plan = Planner::new().plan(&problem);
    assert_eq!((plan.height(), plan.offsets()), (10, &[0, 0][..]));
    let without = Problem::new(buffers).unwrap();
    let error = verify(&without, &Plan::new(&without, vec![0, 0]).unwrap()).unwrap_err();
    assert!(matches!(error, PlanError::Overlap { .. }), "{error}");
}
