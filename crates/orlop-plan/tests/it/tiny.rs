//! Problems so small that every plan can be looked at.

use crate::problem;
use orlop_plan::{Buffer, Problem, SearchBudget, Skyline, Verdict, greedy_by_size, verify};
use proptest::prelude::*;

/// The height of the lowest plan.
///
/// Any plan can be pushed down until each buffer lies at 0 or on another, as near as its alignment allows.
/// Placing buffers in order of offset then gives each of them the end of one below, rounded up, or 0: all of
/// those are tried.
fn lowest(problem: &Problem) -> u64 {
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
    fn nothing_is_called_optimal_that_is_not(plain in problem(5, 5, 5, 0), aligned in problem(4, 4, 9, 3)) {
        for problem in [plain, aligned] {
            let lowest = lowest(&problem);
            prop_assert!(problem.lower_bound() <= lowest, "the bound {}", problem.lower_bound());
            let skyline = Skyline::new().budget(SearchBudget::iterations(50));
            for plan in [skyline.plan(&problem), Skyline::new().plan(&problem), greedy_by_size(&problem)] {
                verify(&problem, &plan).unwrap();
                prop_assert!(plan.height() >= lowest);
                match plan.verdict() {
                    Verdict::Optimal => prop_assert_eq!(plan.height(), lowest),
                    // Some plan may be lower, none by more than that.
                    Verdict::Within(ratio) => prop_assert!(plan.height() as f64 <= ratio * lowest as f64 + 1e-9),
                    verdict => prop_assert!(false, "{}", verdict),
                }
            }
        }
    }
}

#[test]
fn the_bound_is_not_always_met() {
    // In 5 bytes the first two leave 3 for the one and 2 for all that follow it: say the upper two. The last
    // two do the same at the other end, and the buffer of 1..4, which lives with both, puts the other 3
    // below, too. Then what lives in 2..4 has no byte that is free at 2 and at 3.
    let first = [Buffer::unaligned(0..2, 3), Buffer::unaligned(0..1, 2)];
    let between = [Buffer::unaligned(1..3, 1), Buffer::unaligned(1..4, 1), Buffer::unaligned(2..4, 1)];
    let last = [Buffer::unaligned(3..6, 3), Buffer::unaligned(4..7, 2)];
    let problem = Problem::new([&first[..], &between, &last].concat()).unwrap();
    let plan = Skyline::new().plan(&problem);
    assert_eq!((problem.lower_bound(), lowest(&problem), plan.height()), (5, 6, 6));
    assert_eq!(plan.verdict(), Verdict::Within(1.2));
}
