//! The memory of the same buffers without a plan.

use crate::simulate::{AllocatorRules, Simulation};
use orlop_core::StreamId;
use orlop_core::torch::TorchConf;
use orlop_plan::Problem;
use orlop_trace::history::{WorkBlock, WorkStep, Workload};
use serde::{Deserialize, Serialize};

/// What the buffers of a problem take without a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unplanned {
    /// The bytes of all buffers, if none shared memory with another.
    pub sum: u64,
    /// The peak of the bytes that PyTorch's allocator reserves, with its default settings, if each buffer is
    /// allocated at its start and freed at its end. `None` if the replay ran out of addresses.
    pub torch: Option<u64>,
}

impl Unplanned {
    /// Sums the sizes, and replays the lifetimes.
    #[must_use]
    pub fn of(problem: &Problem) -> Self {
        // A problem's sizes fit into 64 bits together.
        let sum = problem.buffers().iter().map(|buffer| buffer.size).sum();
        let work = workload(problem);
        let outcome = Simulation::new(&work).run(&AllocatorRules::Torch(TorchConf::default()));
        Self { sum, torch: outcome.out_of_memory.is_none().then_some(outcome.peak_reserved) }
    }
}

/// Returns the requests of a program with these lifetimes. At one time, frees come before allocations.
fn workload(problem: &Problem) -> Workload {
    let mut work = Workload::default();
    let mut events: Vec<(u64, bool, u32)> = Vec::with_capacity(2 * problem.len());
    for (id, buffer) in (0..).zip(problem.buffers()) {
        work.blocks.push(WorkBlock::new(buffer.size, StreamId::from_raw(0)));
        if buffer.size > 0 {
            events.extend([(buffer.start, true, id), (buffer.end, false, id)]);
        }
    }
    events.sort_unstable();
    for (step, (_, starts, id)) in events.into_iter().enumerate() {
        let block = &mut work.blocks[id as usize];
        work.steps.push(if starts {
            block.born = Some(step);
            WorkStep::Allocate(id)
        } else {
            block.died = Some(step);
            WorkStep::Free(id)
        });
        work.events.push(u32::try_from(step).unwrap_or(u32::MAX));
    }
    work
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_plan::Buffer;

    #[test]
    fn an_ended_buffer_is_freed_before_the_next_begins() {
        let of = |second: std::ops::Range<u64>| {
            let size = 20 << 20;
            Unplanned::of(&Problem::new([Buffer::new(0..2, size), Buffer::new(second, size)]).unwrap())
        };
        assert_eq!(of(2..3), Unplanned { sum: 40 << 20, torch: Some(20 << 20) });
        assert_eq!(of(1..3), Unplanned { sum: 40 << 20, torch: Some(40 << 20) });
        let nothing = Problem::new([Buffer::new(0..2, 0)]).unwrap();
        assert_eq!(Unplanned::of(&nothing), Unplanned { sum: 0, torch: Some(0) });
    }
}
