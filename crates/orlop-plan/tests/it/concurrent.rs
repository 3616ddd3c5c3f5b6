//! Buffers on concurrent streams, against the transitive closure of the waits.

use orlop_core::Alignment;
use orlop_plan::{ConcurrentBuilder, Planner, Problem, SearchBudget, StreamStep, verify};
use proptest::prelude::*;

/// Streams, steps as (stream, steps to wait for), and buffers as (size, steps that use it).
#[derive(Debug, Clone)]
struct Schedule {
    steps: Vec<(usize, Vec<usize>)>,
    buffers: Vec<(u64, Vec<usize>)>,
}

const STREAMS: usize = 3;

fn schedules() -> impl Strategy<Value = Schedule> {
    (1..14_usize).prop_flat_map(|count| {
        let step = (0..STREAMS, prop::collection::vec(0..count, 0..3));
        let buffer = (0..9_u64, prop::collection::vec(0..count, 1..4));
        let steps = prop::collection::vec(step, count).prop_map(|mut steps| {
            for (index, (_, after)) in steps.iter_mut().enumerate() {
                after.retain(|&other| other < index);
            }
            steps
        });
        (steps, prop::collection::vec(buffer, 1..9)).prop_map(|(steps, buffers)| Schedule { steps, buffers })
    })
}

impl Schedule {
    fn problem(&self) -> Problem {
        let mut streams = ConcurrentBuilder::new(STREAMS);
        let mut ids: Vec<StreamStep> = Vec::new();
        let of =
            |ids: &[StreamStep], steps: &[usize]| steps.iter().map(|&step| ids[step]).collect::<Vec<_>>();
        for (stream, after) in &self.steps {
            ids.push(streams.step(*stream, &of(&ids, after)).expect("it is valid"));
        }
        for (size, steps) in &self.buffers {
            streams.push("", *size, Alignment::ONE, &of(&ids, steps)).expect("it is valid");
        }
        streams.finish().expect("it is small")
    }

    /// Returns, by step, whether each other one happens before it: the definition.
    fn closure(&self) -> Vec<Vec<bool>> {
        let mut before = vec![vec![false; self.steps.len()]; self.steps.len()];
        for (index, (stream, after)) in self.steps.iter().enumerate() {
            let is_earlier = |other: &usize| self.steps[*other].0 == *stream;
            for other in (0..index).filter(is_earlier).chain(after.iter().copied()) {
                let (earlier, later) = before.split_at_mut(index);
                later[0][other] = true;
                for (step, &is_before) in later[0].iter_mut().zip(&earlier[other]) {
                    *step |= is_before;
                }
            }
        }
        before
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn buffers_share_bytes_if_the_waits_order_them(schedule in schedules()) {
        let (problem, before) = (schedule.problem(), schedule.closure());
        let all_before = |one: &[usize], other: &[usize]| {
            other.iter().all(|&later| one.iter().all(|&earlier| before[later][earlier]))
        };
        let plan = Planner::new().budget(SearchBudget::iterations(50)).plan(&problem);
        prop_assert_eq!(verify(&problem, &plan), Ok(()));
        for (index, (size, steps)) in schedule.buffers.iter().enumerate() {
            for (other, (other_size, other_steps)) in schedule.buffers.iter().enumerate().take(index) {
                let is_ordered = all_before(steps, other_steps) || all_before(other_steps, steps);
                let lives_with = problem.buffers()[index].lives_with(&problem.buffers()[other]);
                let is_excluded = problem.exclusions().any(|pair| pair == (other, index));
                if *size > 0 && *other_size > 0 {
                    prop_assert_eq!(lives_with || is_excluded, !is_ordered, "{} {}", other, index);
                }
                let (at, other_at) = (plan.offsets()[index], plan.offsets()[other]);
                let share = at.max(other_at) < (at + size).min(other_at + other_size);
                prop_assert!(is_ordered || !share, "{} {}", other, index);
            }
        }
    }
}
