//! The public interface: problems in `testdata`, random ones, tiny ones with all plans, untrusted files, and
//! graphs.

mod concurrent;
mod conflicts;
mod constrained;
mod graph;
mod graph_parts;
mod hostile;
mod peers;
mod random;
mod search;
mod shipped;
mod spaces;
mod tiny;
mod versus;

use orlop_core::Alignment;
use orlop_plan::{Buffer, Plan, Problem};
use proptest::prelude::*;

/// Returns any buffer that starts before `time`, of at most `size` bytes.
fn buffer(time: u64, size: u64, max_alignment_log2: u32) -> impl Strategy<Value = Buffer> {
    let lifetime = (0..time, 1..=time).prop_map(move |(start, width)| start..(start + width).min(time + 1));
    (lifetime, 0..=size, 0..=max_alignment_log2).prop_map(|(lifetime, size, log2)| {
        Buffer::unaligned(lifetime, size).aligned(Alignment::new(1 << log2).expect("a power of two"))
    })
}

fn problem(buffers: usize, time: u64, size: u64, max_alignment_log2: u32) -> impl Strategy<Value = Problem> {
    let buffers = proptest::collection::vec(buffer(time, size, max_alignment_log2), 0..=buffers);
    buffers.prop_map(|buffers| Problem::new(buffers).expect("sizes are small"))
}

/// Returns `true` if buffers of a plan overlap: the definition, in O(n²) time.
fn overlaps(problem: &Problem, plan: &Plan) -> bool {
    let placed: Vec<_> = problem.buffers().iter().zip(plan.offsets()).collect();
    let overlap = |&(one, &at): &(&Buffer, &u64), &(other, &other_at): &(&Buffer, &u64)| {
        let bytes = at.max(other_at) < (at + one.size).min(other_at + other.size);
        one.lives_with(other) && bytes
    };
    (1..placed.len()).any(|index| placed[..index].iter().any(|other| overlap(other, &placed[index])))
}
