//! The smallest static plan: a bound from an allocator that knows the future.

use orlop_plan::{Buffer, Planner, Problem, ProblemBuilder, verify};
use orlop_trace::history::{WorkStep, Workload};
use serde::Serialize;

/// The device's alignment: blocks of a plan are multiples of it.
const GRANULARITY: u64 = 512;

/// The smallest static plan that was found.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
pub struct PerfectPlan {
    /// Its size in bytes. Each block is rounded up to a multiple of 512.
    pub bytes: u64,
    /// Whether it is proven that no allocator with blocks in multiples of 512 bytes needs less.
    pub optimal: bool,
}

impl PerfectPlan {
    /// Plans the blocks of a workload. Times are the steps.
    pub(super) fn of(work: &Workload) -> Option<Self> {
        let problem = problem(work, true)?;
        let plan = Planner::new().plan(&problem);
        verify(&problem, &plan).ok()?;
        // An allocator may wait for the streams that use a freed block, and need less than the best plan.
        let bound = if work.blocks.iter().any(|block| block.stays_pending) {
            bound_with_waits(work)?
        } else {
            problem.lower_bound()
        };
        Some(Self { bytes: plan.height(), optimal: plan.height() == bound })
    }
}

/// Returns a lower bound for allocators that wait for streams whenever that helps.
fn bound_with_waits(work: &Workload) -> Option<u64> {
    problem(work, false).map(|problem| problem.lower_bound())
}

/// Converts a workload to a planning problem. With `pending`, blocks are in use until their pending frees
/// complete.
fn problem(work: &Workload, pending: bool) -> Option<Problem> {
    let mut builder = ProblemBuilder::new();
    let end = work.steps.len() as u64 + 1;
    let mut stops: Vec<Option<usize>> =
        work.blocks.iter().map(|block| block.died.filter(|_| !(pending && block.stays_pending))).collect();
    for (index, step) in work.steps.iter().enumerate() {
        match *step {
            // Streams use it until then.
            WorkStep::Completed(block) if pending => stops[block as usize] = Some(index),
            // Replays make this request, too.
            WorkStep::Failed(bytes, _) => {
                let start = index as u64 + 1;
                builder.push(Buffer::new(start..start + 1, round_up(bytes)?)).ok()?;
            }
            _ => {}
        }
    }
    for (block, stop) in work.blocks.iter().zip(stops) {
        let start = block.born.map_or(0, |step| step as u64 + 1);
        let stop = stop.map_or(end, |step| step as u64 + 1);
        if start < stop {
            builder.push(Buffer::new(start..stop, round_up(block.bytes)?)).ok()?;
        }
    }
    Some(builder.finish())
}

/// Rounds up the size of a block.
fn round_up(bytes: u64) -> Option<u64> {
    bytes.max(1).checked_next_multiple_of(GRANULARITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_trace::history::{DeviceHistory, EventAction, HistoryEvent};

    const PAGE: u64 = 4096;

    fn perfect(events: &[(EventAction, u64, u64)]) -> (u64, bool) {
        let events = events.iter().map(|&(action, address, bytes)| HistoryEvent::new(action, address, bytes));
        let history = DeviceHistory::from_events(events.collect());
        let perfect = PerfectPlan::of(&Workload::of(&history)).unwrap();
        (perfect.bytes, perfect.optimal)
    }

    #[test]
    fn a_plan_is_optimal_if_no_allocator_needs_less() {
        use EventAction::{Allocate, FreeCompleted, FreeRequested, OutOfMemory};
        let first = [(Allocate, 0, PAGE), (FreeRequested, 0, PAGE), (FreeCompleted, 0, PAGE)];
        assert_eq!(perfect(&first), (PAGE, true));
        // The second waits for a stream while the third is allocated: an allocator that waits, too, needs
        // memory for only one of them.
        let waits = [
            (Allocate, PAGE, PAGE),
            (FreeRequested, PAGE, PAGE),
            (Allocate, 2 * PAGE, PAGE),
            (FreeCompleted, PAGE, PAGE),
        ];
        assert_eq!(perfect(&[&first[..], &waits].concat()), (2 * PAGE, false));
        // A request that failed has to fit.
        assert_eq!(perfect(&[&first[..], &[(OutOfMemory, 0, 3 * PAGE)]].concat()), (3 * PAGE, true));
    }
}
