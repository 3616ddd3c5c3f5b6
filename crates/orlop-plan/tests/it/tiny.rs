//! Problems so small that all plans can be enumerated.

use crate::problem;
use orlop_plan::{Buffer, CapacityVerdict, Planner, Problem, SearchBudget, Verdict, greedy_by_size, verify};
use proptest::prelude::*;

/// Returns the height of the lowest plan.
///
/// In any plan, buffers can be moved down until each is at 0 or on top of another, as close as its alignment
/// allows. In order of offset, each buffer is then at 0 or at the rounded end of one below: all of these are
/// tried.
pub(crate) fn lowest(problem: &Problem) -> u64 {
    fn place(buffers: &[Buffer], offsets: &mut Vec<Option<u64>>, height: u64, best: &mut u64) {
        if height >= *best {
            return;
        }
        let placed = |offsets: &[Option<u64>]| -> Vec<(Buffer, u64)> {
            buffers.iter().zip(offsets).filter_map(|(&buffer, &at)| Some((buffer, at?))).collect()
        };
        let below = placed(offsets);
        if below.len() == buffers.len() {
            *best = height;
            return;
        }
        for index in 0..buffers.len() {
            if offsets[index].is_some() {
                continue;
            }
            let buffer = buffers[index];
            let alignment = buffer.alignment.bytes() as u64;
            let ends = below.iter().map(|(other, at)| (at + other.size).next_multiple_of(alignment));
            for offset in ends.chain([0]) {
                let free = |&(other, at): &(Buffer, u64)| {
                    !buffer.lives_with(&other) || at + other.size <= offset || offset + buffer.size <= at
                };
                if below.iter().all(free) {
                    offsets[index] = Some(offset);
                    place(buffers, offsets, height.max(offset + buffer.size), best);
                    offsets[index] = None;
                }
            }
        }
    }
    let real: Vec<Buffer> = problem.buffers().iter().copied().filter(|buffer| buffer.size > 0).collect();
    let mut best = real.iter().map(|buffer| buffer.size + buffer.alignment.bytes() as u64).sum::<u64>() + 1;
    place(&real, &mut vec![None; real.len()], 0, &mut best);
    if real.is_empty() { 0 } else { best }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn optimal_plans_are_optimal(plain in problem(5, 5, 5, 0), aligned in problem(4, 4, 9, 3)) {
        for problem in [plain, aligned] {
            let lowest = lowest(&problem);
            prop_assert!(problem.lower_bound() <= lowest, "the bound {}", problem.lower_bound());
            let planner = Planner::new().budget(SearchBudget::iterations(50));
            for plan in [planner.plan(&problem), Planner::new().plan(&problem), greedy_by_size(&problem)] {
                verify(&problem, &plan).unwrap();
                prop_assert!(plan.height() >= lowest);
                match plan.verdict() {
                    Verdict::Optimal => prop_assert_eq!(plan.height(), lowest),
                    Verdict::Within(ratio) => {
                        prop_assert!(plan.height() as f64 <= ratio * lowest as f64 + 1e-9);
                    }
                    verdict => prop_assert!(false, "{}", verdict),
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Searches with backtracking miss no plan, and prove that there is no lower one.
    #[test]
    fn plans_of_a_long_search_are_the_lowest(plain in problem(6, 6, 5, 0), aligned in problem(4, 4, 9, 3)) {
        for problem in [plain, aligned] {
            let plan = Planner::new().budget(SearchBudget::iterations(500)).plan(&problem);
            verify(&problem, &plan).unwrap();
            prop_assert_eq!((plan.height(), plan.verdict()), (lowest(&problem), Verdict::Optimal));
        }
    }
}

#[test]
fn the_bound_is_not_always_reached() {
    // In 5 bytes, the first two buffers divide the space into 3 and 2 bytes, say the upper two. The last two
    // do the same at the other end. The buffer of 1..4, which is live with both, puts those 3 bytes below,
    // too. Then no byte is free at both 2 and 3 for the buffer of 2..4.
    let first = [Buffer::unaligned(0..2, 3), Buffer::unaligned(0..1, 2)];
    let between = [Buffer::unaligned(1..3, 1), Buffer::unaligned(1..4, 1), Buffer::unaligned(2..4, 1)];
    let last = [Buffer::unaligned(3..6, 3), Buffer::unaligned(4..7, 2)];
    let problem = Problem::new([&first[..], &between, &last].concat()).unwrap();
    let plan = Planner::new().plan(&problem);
    assert_eq!((problem.lower_bound(), lowest(&problem), plan.height()), (5, 6, 6));
    assert_eq!((plan.lower_bound(), plan.verdict()), (5, Verdict::Within(1.2)));
    // Only a complete search can tell.
    let plan = Planner::new().budget(SearchBudget::iterations(500)).plan(&problem);
    assert_eq!((plan.lower_bound(), plan.height(), plan.verdict()), (6, 6, Verdict::Optimal));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// A search at a capacity finds out whether there is a plan.
    #[test]
    fn a_search_at_a_capacity_has_a_verdict(problem in problem(6, 5, 9, 3)) {
        let lowest = lowest(&problem);
        for capacity in problem.lower_bound()..=lowest + 1 {
            let budget = SearchBudget::iterations(2000);
            let plan = Planner::new().budget(budget).capacity(capacity).plan(&problem);
            prop_assert_eq!(verify(&problem, &plan), Ok(()));
            let fits = matches!(plan.verdict_in(capacity), CapacityVerdict::Fits);
            let is_infeasible = matches!(plan.verdict_in(capacity), CapacityVerdict::Infeasible { .. });
            prop_assert_eq!((fits, is_infeasible), (lowest <= capacity, lowest > capacity));
        }
    }

    /// A problem that is called infeasible in a capacity has no plan there, and one that fits has one.
    #[test]
    fn verdicts_in_a_capacity_are_true(problem in problem(4, 4, 9, 3)) {
        let lowest = lowest(&problem);
        for plan in [Planner::new().plan(&problem), greedy_by_size(&problem)] {
            for capacity in 0..plan.height() + 2 {
                match plan.verdict_in(capacity) {
                    CapacityVerdict::Fits => prop_assert!(lowest <= capacity && plan.height() <= capacity),
                    CapacityVerdict::Infeasible { missing } => {
                        prop_assert!(missing > 0 && capacity + missing <= lowest);
                    }
                    CapacityVerdict::Unproven { missing } => {
                        prop_assert!(problem.lower_bound() <= capacity);
                        prop_assert_eq!(capacity + missing, plan.height());
                    }
                    verdict => prop_assert!(false, "{}", verdict),
                }
            }
            prop_assert_eq!(plan.verdict_in(u64::MAX), CapacityVerdict::Fits);
        }
    }
}
