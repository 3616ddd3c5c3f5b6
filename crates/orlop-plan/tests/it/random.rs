//! Properties of random problems.

use crate::{overlaps, problem};
use orlop_core::Alignment;
use orlop_plan::{Buffer, Plan, PlanError, Planner, Problem, SearchBudget, Verdict, greedy_by_size, verify};
use proptest::prelude::*;

/// Checks that a plan is valid and not below the bound.
fn check(problem: &Problem, plan: &Plan) {
    verify(problem, plan).expect("plans are valid");
    assert!(!overlaps(problem, plan));
    assert!(plan.lower_bound() >= problem.lower_bound());
    let peak = problem.load_profile().peak().map_or(0, |peak| peak.bytes);
    assert!(peak <= plan.lower_bound() && plan.lower_bound() <= plan.height());
    assert_eq!(plan.verdict() == Verdict::Optimal, plan.height() == plan.lower_bound());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn plans_are_valid(
        small in problem(12, 8, 6, 3),
        many in problem(100, 60, 1000, 0),
        aligned in problem(40, 30, 3000, 9),
        seed: u64,
    ) {
        for problem in [small, many, aligned] {
            check(&problem, &greedy_by_size(&problem));
            for heuristics in 0..30 {
                check(&problem, &Planner::new().budget(SearchBudget::iterations(heuristics)).plan(&problem));
            }
            let once = Planner::new().plan(&problem);
            let planner = Planner::new().budget(SearchBudget::iterations(60)).seed(seed);
            let more = planner.clone().threads(1).plan(&problem);
            check(&problem, &once);
            check(&problem, &more);
            prop_assert!(more.height() <= once.height());
            prop_assert!(once.height() <= greedy_by_size(&problem).height());
            prop_assert_eq!(&planner.threads(3).plan(&problem), &more, "the same with any number of threads");
        }
    }

    #[test]
    fn the_profile_is_the_sum_of_live_buffers(problem in problem(30, 20, 100, 2)) {
        let profile = problem.load_profile();
        let mut before = 0;
        for time in 0..25 {
            let live = problem.buffers().iter().filter(|buffer| (buffer.start..buffer.end).contains(&time));
            let load: u64 = live.map(|buffer| buffer.size).sum();
            prop_assert_eq!(profile.at(time), load);
            prop_assert_eq!(profile.steps().iter().any(|step| step.time == time), load != before);
            before = load;
        }
        prop_assert!(profile.steps().is_sorted_by(|step, next| step.time < next.time));
    }

    #[test]
    fn verify_finds_overlaps_in_any_order(
        problem in problem(8, 6, 4, 0),
        offsets in proptest::collection::vec(0_u64..8, 8),
        turn in 0_usize..8,
    ) {
        let verdict = |problem: &Problem, offsets: &[u64]| {
            let plan = Plan::new(problem, offsets.to_vec()).unwrap();
            let expected = overlaps(problem, &plan);
            let found = verify(problem, &plan);
            assert_eq!(found.is_err(), expected, "{found:?}");
            if let Err(PlanError::Overlap { first, second, time, from, to }) = found {
                for buffer in [first, second] {
                    let (index, at) = (buffer.index, offsets[buffer.index]);
                    let buffer = problem.buffers()[index];
                    assert!((buffer.start..buffer.end).contains(&time));
                    assert!(at <= from && from < to && to <= at + buffer.size);
                }
            } else {
                found.unwrap();
            }
            expected
        };
        let offsets = &offsets[..problem.len()];
        let expected = verdict(&problem, offsets);
        // The same buffers in another order.
        let (mut buffers, mut turned) = (problem.buffers().to_vec(), offsets.to_vec());
        buffers.rotate_left(turn.min(problem.len()));
        turned.rotate_left(turn.min(problem.len()));
        prop_assert_eq!(verdict(&Problem::new(buffers).unwrap(), &turned), expected);
    }

    #[test]
    fn a_buffer_moved_onto_another_is_found(problem in problem(40, 10, 50, 0), which: usize, other: usize) {
        prop_assume!(problem.len() > 1);
        let plan = Planner::new().plan(&problem);
        let (which, other) = (which % problem.len(), other % problem.len());
        let (moved, onto) = (problem.buffers()[which], problem.buffers()[other]);
        prop_assume!(which != other && moved.size > 0 && onto.size > 0 && moved.lives_with(&onto));
        let mut offsets = plan.offsets().to_vec();
        offsets[which] = offsets[other] + onto.size - 1;
        let result = verify(&problem, &Plan::new(&problem, offsets).unwrap());
        prop_assert!(matches!(result, Err(PlanError::Overlap { .. })), "{:?}", result);
    }

    #[test]
    fn only_the_order_of_times_matters(
        problem in problem(40, 20, 100, 4),
        steps in proptest::collection::vec(1_u64..1000, 22),
    ) {
        let stretched = |time: u64| steps.iter().take(usize::try_from(time).unwrap()).sum::<u64>();
        let buffers = problem.buffers().iter().map(|buffer| {
            let lifetime = stretched(buffer.start)..stretched(buffer.end);
            Buffer::unaligned(lifetime, buffer.size).aligned(buffer.alignment)
        });
        let other = Problem::new(buffers).unwrap();
        prop_assert_eq!(problem.lower_bound(), other.lower_bound());
        // A plan that is valid for one is valid for the other.
        let plan = Planner::new().plan(&problem);
        check(&other, &Plan::new(&other, plan.offsets().to_vec()).unwrap());
    }

    #[test]
    fn sizes_near_the_largest_number(
        parts in proptest::collection::vec((0_u64..4, 1_u64..4, 0_u64..1 << 20), 1..6),
    ) {
        let share = u64::MAX / parts.len() as u64;
        let buffers = parts
            .iter()
            .map(|&(start, width, less)| Buffer::unaligned(start..start + width, share - less));
        let problem = Problem::new(buffers).unwrap();
        check(&problem, &Planner::new().plan(&problem));
        check(&problem, &greedy_by_size(&problem));
    }
}

#[test]
fn a_problem_without_buffers() {
    let nothing = Problem::new([]).unwrap();
    for plan in [Planner::new().budget(SearchBudget::iterations(9)).plan(&nothing), greedy_by_size(&nothing)]
    {
        check(&nothing, &plan);
        assert_eq!((plan.height(), plan.verdict(), plan.ratio()), (0, Verdict::Optimal, 1.0));
    }
}

#[test]
fn the_largest_possible_problems() {
    let largest = Problem::new([Buffer::unaligned(0..u64::MAX, u64::MAX)]).unwrap();
    for plan in [Planner::new().plan(&largest), greedy_by_size(&largest)] {
        check(&largest, &plan);
        assert_eq!(plan.height(), u64::MAX);
    }
    // With the gap that the alignment may need, the sum overflows.
    let highest = Alignment::new(1 << 63).unwrap();
    let below = Buffer::unaligned(0..2, (1 << 62) - 1);
    let two = Problem::new([below, Buffer::unaligned(1..3, 1).aligned(highest)]).unwrap();
    check(&two, &Planner::new().plan(&two));
    assert!(
        Problem::new([Buffer::unaligned(0..2, 1 << 63), Buffer::unaligned(1..3, 1).aligned(highest)])
            .is_err()
    );
}

#[test]
fn a_plan_needs_no_iterations() {
    let problem = Problem::new([Buffer::unaligned(0..2, 3), Buffer::unaligned(1..3, 4)]).unwrap();
    check(&problem, &Planner::new().budget(SearchBudget::iterations(0)).plan(&problem));
    let at_once = SearchBudget::iterations(u64::MAX).within(std::time::Duration::ZERO);
    check(&problem, &Planner::new().budget(at_once).plan(&problem));
}
