//! Fixed offsets, reserved ranges, parts of buffers, gaps, exclusions, and blocks of limited size.

use crate::buffer;
use orlop_plan::{
    Buffer, Plan, PlanError, Planner, Problem, ProblemBuilder, ProblemError, SearchBudget, Verdict,
    greedy_by_size, replan, verify,
};
use proptest::prelude::*;

/// A constraint that may be refused.
#[derive(Debug, Clone)]
enum Constraint {
    Fix(usize, u64),
    Reserve(u64, u64),
    PlaceIn(usize, usize, u64),
    Gap(usize, u64, u64),
    Exclude(usize, usize),
}

fn constraint(buffers: usize, time: u64, size: u64) -> impl Strategy<Value = Constraint> {
    prop_oneof![
        3 => (0..buffers, 0..time, 1..time)
            .prop_map(|(index, at, length)| Constraint::Gap(index, at, length)),
        2 => (0..buffers, 0..buffers).prop_map(|(one, other)| Constraint::Exclude(one, other)),
        1 => (0..buffers, 0..2 * size).prop_map(|(index, offset)| Constraint::Fix(index, offset)),
        1 => (0..3 * size, 0..size).prop_map(|(start, length)| Constraint::Reserve(start, start + length)),
        1 => (0..buffers, 0..buffers, 0..size)
            .prop_map(|(part, whole, at)| Constraint::PlaceIn(part, whole, at)),
        1 => (0..buffers, 0..buffers).prop_map(|(part, whole)| Constraint::PlaceIn(part, whole, 0)),
    ]
}

/// Returns problems with constraints, as far as they do not contradict each other.
fn constrained(buffers: usize, time: u64, size: u64, log2: u32) -> impl Strategy<Value = Problem> {
    let constraints = prop::collection::vec(constraint(buffers, time, size), 0..6);
    let limit = prop_oneof![2 => Just(0), 1 => 1..3_u64];
    (prop::collection::vec(buffer(time, size, log2), 1..=buffers), constraints, limit).prop_map(
        |(buffers, constraints, limit)| {
            let alignment = buffers.iter().map(|buffer| buffer.alignment.bytes() as u64).max().unwrap_or(1);
            let largest = buffers.iter().map(|buffer| buffer.size).max().unwrap_or(0);
            let mut builder = ProblemBuilder::new();
            for buffer in buffers {
                builder.push(buffer).expect("sizes are small");
            }
            for constraint in constraints {
                let _refused = match constraint {
                    Constraint::Fix(index, offset) => builder.fix(index, offset),
                    Constraint::Reserve(start, end) => builder.reserve(start..end),
                    Constraint::PlaceIn(part, whole, offset) => builder.place_in(part, whole, offset),
                    Constraint::Gap(index, start, length) => builder.gap(index, start..start + length),
                    Constraint::Exclude(one, other) => builder.exclude(one, other),
                };
            }
            let problem = builder.finish();
            let limited = problem.clone().limit_blocks((limit * largest).next_multiple_of(alignment));
            if limit > 0 { limited.unwrap_or(problem) } else { problem }
        },
    )
}

/// Returns `true` if offsets are those of a plan, or of the first buffers in one: the definition, byte by
/// byte.
fn is_plan(problem: &Problem, offsets: &[u64]) -> bool {
    let group = |index: usize| problem.part_of(index).map_or(index, |(whole, _)| whole);
    let bytes = |index: usize| offsets[index]..offsets[index] + problem.buffers()[index].size;
    let is_live = |index: usize, time: u64| {
        let buffer = &problem.buffers()[index];
        let is_in_gap = problem.gaps(index).iter().any(|gap| gap.contains(&time));
        (buffer.start..buffer.end).contains(&time) && !is_in_gap
    };
    let last = problem.buffers().iter().map(|buffer| buffer.end).max().unwrap_or(0);
    let live_together =
        |one: usize, other: usize| (0..last).any(|time| is_live(one, time) && is_live(other, time));
    let are_excluded = |one: usize, other: usize| {
        problem.exclusions().any(|pair| pair == (one, other) || pair == (other, one))
    };
    (0..offsets.len()).all(|index| {
        let buffer = &problem.buffers()[index];
        let is_in = |(whole, at): (usize, u64)| offsets.get(whole).is_none_or(|of| of + at == offsets[index]);
        let is_in_place = problem.part_of(index).is_none_or(is_in);
        let is_fixed = problem.fixed_offset(index).is_none_or(|fixed| fixed == offsets[index]);
        let is_aligned = offsets[index].is_multiple_of(buffer.alignment.bytes() as u64);
        let is_reserved = |byte: u64| problem.reserved().iter().any(|range| range.contains(&byte));
        let is_alone = (0..index).all(|other| {
            let may_share = group(other) == group(index) || !live_together(index, other);
            (may_share && !are_excluded(index, other))
                || !bytes(index).any(|byte| bytes(other).contains(&byte))
        });
        let block = |byte: u64| problem.block_limit().map_or(0, |limit| byte / limit);
        let is_divided = bytes(index).any(|byte| block(byte) != block(offsets[index]));
        let is_in_place = is_in_place && is_fixed && is_aligned && !is_divided;
        is_in_place && is_alone && !bytes(index).any(is_reserved)
    })
}

/// Returns `true` if there is a plan of at most this height.
fn has_plan(problem: &Problem, height: u64, offsets: &mut Vec<u64>) -> bool {
    let index = offsets.len();
    let Some(buffer) = problem.buffers().get(index) else { return true };
    (0..=height.saturating_sub(buffer.size)).any(|offset| {
        // Buffers without bytes may be anywhere.
        offsets.push(offset);
        let is_low = buffer.size == 0 || offset + buffer.size <= height;
        let found = is_low && is_plan(problem, offsets) && has_plan(problem, height, offsets);
        offsets.pop();
        found
    })
}

fn plans(problem: &Problem) -> Vec<Plan> {
    let planner = Planner::new().threads(1);
    let searched = planner.clone().budget(SearchBudget::iterations(60)).plan(problem);
    let again = replan(problem, &searched.offsets().iter().copied().map(Some).collect::<Vec<_>>());
    assert!(again.height() <= searched.height());
    let later = planner.plan_from(problem, &greedy_by_size(problem)).expect("a valid plan");
    vec![planner.plan(problem), searched, again, later, greedy_by_size(problem), replan(problem, &[])]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn plans_keep_their_constraints(problem in constrained(12, 8, 30, 4)) {
        for plan in plans(&problem) {
            prop_assert!(is_plan(&problem, plan.offsets()), "{:?} {:?}", problem, plan);
            prop_assert_eq!(verify(&problem, &plan), Ok(()));
            prop_assert!(plan.lower_bound() >= problem.lower_bound());
        }
    }

    /// The check finds what the definition finds.
    #[test]
    fn other_offsets_are_checked(problem in constrained(5, 4, 6, 1), change in 0..5_usize, to in 0..20_u64) {
        let mut offsets = Planner::new().plan(&problem).offsets().to_vec();
        let change = change % offsets.len();
        offsets[change] = to;
        let plan = Plan::new(&problem, offsets.clone()).unwrap();
        let is_valid = verify(&problem, &plan).is_ok();
        prop_assert_eq!(is_valid, is_plan(&problem, &offsets), "{:?} {:?}", problem, offsets);
    }
}

proptest! {
    /// The buffers of a witness alone, with what is fixed, have the bound of the problem.
    #[test]
    fn witnesses_have_the_bound(problem in constrained(12, 8, 30, 4)) {
        let Some(witness) = problem.bound_witness() else {
            prop_assert_eq!(problem.lower_bound(), 0);
            return Ok(());
        };
        prop_assert_eq!(witness.bytes, problem.lower_bound());
        let mut builder = ProblemBuilder::new();
        for (index, mut buffer) in problem.buffers().iter().copied().enumerate() {
            let lives = problem.lifetimes(index).any(|lifetime| lifetime.contains(&witness.time));
            prop_assert_eq!(lives && buffer.size > 0, witness.buffers.contains(&index));
            buffer.size = if lives { buffer.size } else { 0 };
            builder.push(buffer).unwrap();
        }
        for range in problem.reserved() {
            builder.reserve(range.clone()).unwrap();
        }
        let is_live = |index| witness.buffers.contains(&index);
        if problem.buffers().iter().all(|buffer| buffer.alignment == problem.buffers()[0].alignment) {
            for index in (0..problem.len()).filter(|&index| is_live(index)) {
                if let Some((whole, offset)) = problem.part_of(index).filter(|&(whole, _)| is_live(whole)) {
                    builder.place_in(index, whole, offset).unwrap();
                }
            }
            let has_lone_part = problem_parts(&problem).any(|(part, whole)| is_live(part) && !is_live(whole));
            for index in (0..problem.len()).filter(|&index| is_live(index)) {
                if let Some(offset) = problem.fixed_offset(index) {
                    builder.fix(index, offset).unwrap();
                }
            }
            prop_assert!(has_lone_part || builder.finish().lower_bound() == witness.bytes);
        }
    }
}

/// Returns the parts with the buffers that they are in.
fn problem_parts(problem: &Problem) -> impl Iterator<Item = (usize, usize)> + '_ {
    (0..problem.len()).filter_map(|part| Some((part, problem.part_of(part)?.0)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn bounds_are_true_with_constraints(problem in constrained(4, 4, 3, 1)) {
        for plan in plans(&problem) {
            let below = plan.lower_bound().checked_sub(1);
            let is_true = below.is_none_or(|below| !has_plan(&problem, below, &mut Vec::new()));
            prop_assert!(is_true, "{:?} {:?}", problem, plan);
        }
    }
}

/// Returns a problem in which 60 bytes do not fit below a fixed buffer, or between it and a reserved range.
fn around_what_is_fixed() -> Problem {
    let mut builder = ProblemBuilder::new();
    for size in [100, 60, 50] {
        builder.push(Buffer::unaligned(0..2, size)).expect("it is valid");
    }
    builder.fix(0, 50).expect("it is valid");
    builder.reserve(160..200).expect("it is valid");
    builder.finish()
}

#[test]
fn the_bound_counts_what_is_fixed() {
    let problem = around_what_is_fixed();
    let plan = Planner::new().plan(&problem);
    // 60 does not fit below 50 or between 150 and 160; the bound puts 10 of its bytes there.
    assert_eq!(plan.offsets(), [50, 200, 0]);
    assert_eq!((problem.lower_bound(), plan.height()), (250, 260));
}

#[test]
fn a_search_goes_on_between_what_is_fixed() {
    let mut builder = ProblemBuilder::new();
    let lifetimes = (0..120_u64).map(|number| (number * 37 % 60, 1 + number * 11 % 23, 1 + number * 53 % 97));
    for (start, length, size) in lifetimes {
        builder.push(Buffer::unaligned(start..start + length, size)).unwrap();
    }
    let fixed = [(7, 100), (90, 300), (110, 500)].map(|(index, at)| (index, at, builder.fix(index, at)));
    assert!(fixed.iter().any(|(.., fixed)| fixed.is_ok()));
    builder.reserve(0..64).unwrap();
    builder.reserve(700..720).unwrap();
    let problem = builder.finish();
    let first = Planner::new().plan(&problem);
    let budget = SearchBudget::iterations(100);
    let plan = Planner::new().budget(budget).threads(1).plan(&problem);
    verify(&problem, &plan).unwrap();
    assert!(plan.height() < first.height(), "{} {}", plan.height(), first.height());
    assert_eq!(Planner::new().budget(budget).threads(2).plan(&problem), plan);
}

/// The bytes of a region may have very many blocks, of which no buffer is in any but two.
#[test]
fn a_search_does_not_visit_the_blocks_of_a_reserved_range() {
    let offsets_above = |reserved: u64| {
        let mut builder = ProblemBuilder::new();
        let [one, other] =
            [0..1, 1..2].map(|lifetime| builder.push(Buffer::unaligned(lifetime, 40)).expect("it is valid"));
        builder.exclude(one, other).expect("it is valid");
        builder.reserve(0..reserved).expect("it is valid");
        let problem = builder.finish().limit_blocks(64).expect("it is valid");
        let plan = Planner::new().budget(SearchBudget::iterations(1000)).threads(1).plan(&problem);
        verify(&problem, &plan).expect("it is valid");
        plan.offsets().iter().map(|offset| offset - reserved).collect::<Vec<_>>()
    };
    let offsets = offsets_above(1 << 40);
    assert_eq!(offsets.iter().max(), Some(&64), "{offsets:?}");
    assert_eq!(offsets_above(1 << 10), offsets);
}

#[test]
fn a_block_far_up_is_one_block() {
    let mut builder = ProblemBuilder::new();
    builder.push(Buffer::unaligned(0..1, 1)).unwrap();
    let unlimited = builder.clone().finish();
    assert!(Planner::new().plan(&unlimited).block_sizes(&unlimited).into_iter().eq([(0, 1)]));
    builder.fix(0, 1 << 40).unwrap();
    let problem = builder.finish().limit_blocks(1).unwrap();
    let plan = Planner::new().plan(&problem);
    assert!(plan.block_sizes(&problem).into_iter().eq([(1 << 40, 1)]));
}

/// Each takes time near the number of gaps, in whichever order they are.
#[test]
fn many_gaps_of_one_buffer_are_merged_once() {
    const GAPS: u64 = 100_000;
    let descending = |gaps: u64| (0..gaps).rev().map(|gap| 4 * gap + 1..4 * gap + 3);
    let mut builder = ProblemBuilder::new();
    builder.push(Buffer::unaligned(0..4 * GAPS, 10)).unwrap();
    let mut one_by_one = builder.clone();
    builder.gaps(0, descending(GAPS)).unwrap();
    let problem = builder.finish();
    assert_eq!(problem.gaps(0).len() as u64, GAPS);
    for gap in descending(GAPS / 5) {
        one_by_one.gap(0, gap).unwrap();
    }
    assert_eq!(one_by_one.finish().gaps(0), &problem.gaps(0)[..20_000]);
}

#[test]
fn operands_of_a_concatenation_are_written_in_place() {
    // Two buffers of 1 kB that become one: without parts they are copied, and need twice the bytes.
    let lifetimes = [(0..3, 1024), (1..3, 1024), (2..4, 2048)];
    let mut builder = ProblemBuilder::new();
    for (lifetime, size) in lifetimes {
        builder.push(Buffer::new(lifetime, size)).unwrap();
    }
    let copied = Planner::new().plan(&builder.clone().finish());
    builder.place_in(0, 2, 0).unwrap();
    builder.place_in(1, 2, 1024).unwrap();
    let problem = builder.finish();
    let plan = Planner::new().plan(&problem);
    assert_eq!((copied.height(), plan.height(), plan.verdict()), (4096, 2048, Verdict::Optimal));
    assert_eq!(problem.load_profile().at(0), 1024);
    let moved = Plan::new(&problem, vec![0, 2048, 0]).unwrap();
    let error = verify(&problem, &moved).unwrap_err();
    assert!(matches!(error, PlanError::NotInPlace { offset: 2048, expected: 1024, .. }), "{error}");
}

#[test]
fn parts_of_parts_move_with_them() {
    let mut builder = ProblemBuilder::new();
    for size in [512, 256, 2048] {
        builder.push(Buffer::new(0..1, size)).unwrap();
    }
    builder.place_in(1, 0, 256).unwrap();
    builder.place_in(0, 2, 1024).unwrap();
    assert_eq!(builder.place_in(2, 1, 0), Err(ProblemError::PlacedTwice { index: 2 }));
    let problem = builder.finish();
    assert_eq!([0, 1, 2].map(|index| problem.part_of(index)), [Some((2, 1024)), Some((2, 1280)), None]);
    assert_eq!(Planner::new().plan(&problem).offsets(), [1024, 1280, 0]);
}

#[test]
fn contradictions_are_refused() {
    let mut builder = ProblemBuilder::new();
    for size in [256, 256, 100, 50] {
        builder.push(Buffer::new(0..2, size)).unwrap();
    }
    builder.push(Buffer::new(2..3, 100)).unwrap();
    builder.reserve(4096..5000).unwrap();
    builder.fix(0, 256).unwrap();
    let before = builder.clone().finish();
    let refused = [
        (builder.fix(9, 0), ProblemError::NoBuffer { index: 9 }),
        (builder.fix(0, 512), ProblemError::PlacedTwice { index: 0 }),
        (builder.fix(1, 1000), ProblemError::Misaligned { index: 1, offset: 1000, alignment: 256 }),
        (builder.fix(1, 256), ProblemError::FixedOverlap { index: 1, other: 0 }),
        (builder.fix(1, 4864), ProblemError::Reserved { index: 1, start: 4096, end: 5000 }),
        (builder.fix(1, u64::MAX - 255), ProblemError::TotalOverflow { index: 1, size: 256 }),
        (builder.reserve(300..301), ProblemError::Reserved { index: 0, start: 300, end: 301 }),
        (builder.reserve(0..u64::MAX), ProblemError::Reserved { index: 0, start: 0, end: u64::MAX }),
        (builder.reserve(5000..u64::MAX), ProblemError::ReservedOverflow { end: u64::MAX }),
        (builder.place_in(3, 0, 0), ProblemError::PlacedTwice { index: 3 }),
        (builder.place_in(1, 2, 0), ProblemError::NotInside { index: 1, whole: 2, offset: 0 }),
        (builder.place_in(3, 2, 7), ProblemError::Misaligned { index: 3, offset: 7, alignment: 256 }),
        (builder.place_in(2, 2, 0), ProblemError::PlacedTwice { index: 2 }),
    ];
    for (result, error) in refused {
        assert_eq!(result, Err(error));
    }
    assert_eq!(builder.clone().finish(), before, "nothing has changed");
    // Another time, and no byte.
    builder.fix(4, 256).unwrap();
    verify(&builder.clone().finish(), &Planner::new().plan(&builder.finish())).unwrap();
}

#[test]
fn many_offsets_of_buffers_that_do_not_exist_are_refused() {
    let mut builder = ProblemBuilder::new();
    builder.push(Buffer::unaligned(0..1, 4)).unwrap();
    assert_eq!(builder.fix_all(&[(0, 8), (1, 0)]), Err((1, ProblemError::NoBuffer { index: 1 })));
}

/// A buffer without bytes may be anywhere, and so may its parts.
#[test]
fn fixed_buffers_without_bytes_have_their_parts() {
    let mut builder = ProblemBuilder::new();
    for size in [0, 0, 100] {
        builder.push(Buffer::unaligned(0..2, size)).unwrap();
    }
    builder.place_in(1, 0, 0).unwrap();
    builder.reserve(200..300).unwrap();
    let mut at_once = builder.clone();
    at_once.fix_all(&[(2, 0), (0, 64)]).unwrap();
    builder.fix(2, 0).unwrap();
    builder.fix(0, 64).unwrap();
    let problem = builder.clone().finish();
    assert_eq!(problem, at_once.finish());
    for plan in plans(&problem) {
        verify(&problem, &plan).unwrap();
        assert_eq!(plan.offsets(), [64, 64, 0]);
    }
    let empty = builder.push(Buffer::unaligned(0..1, 0)).unwrap();
    builder.fix(empty, 250).unwrap();
    let problem = builder.finish();
    verify(&problem, &Planner::new().plan(&problem)).unwrap();
}

/// The height between what is fixed is above the bound, and no round lowers it.
#[test]
fn rounds_that_move_nothing_use_up_a_budget() {
    let problem = around_what_is_fixed();
    let mut rounds = 0;
    let plan = Planner::new().threads(2).budget(SearchBudget::short(4)).plan_with(&problem, |_| {
        rounds += 1;
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!((plan.height(), plan.lower_bound()), (260, 250));
    assert!((2..1000).contains(&rounds), "{rounds}");
}
