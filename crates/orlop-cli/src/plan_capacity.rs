//! Whether a plan fits in a memory, and which buffers do not.

use crate::plan_arguments::PlanArguments;
use crate::table::{self, bytes};
use orlop::plan::{BoundWitness, Plan, Problem};
use serde::Serialize;
use std::cmp::Reverse;

/// The number of buffers that do not fit which the text names.
const MAX_WITNESSES: usize = 5;

/// Whether a plan fits in a memory.
#[derive(Serialize)]
pub(crate) struct CapacityEntry {
    pub(crate) bytes: u64,
    /// `fits`, `infeasible` or `unproven`, and why.
    pub(crate) verdict: String,
    /// Buffers that are live at one time and do not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    witness: Option<CapacityWitness>,
}

/// Buffers that do not fit in a memory, at a time at which all of them are live.
#[derive(Serialize)]
struct CapacityWitness {
    time: u64,
    buffers: Vec<usize>,
    bytes: u64,
}

impl CapacityEntry {
    pub(crate) fn new(arguments: &PlanArguments, problem: &Problem, plan: &Plan) -> Option<Self> {
        let bytes = arguments.capacity?;
        // A bound of a search has none.
        let witness = problem.bound_witness().filter(|witness| witness.bytes > bytes);
        let witness =
            witness.map(|BoundWitness { time, buffers, bytes, .. }| CapacityWitness { time, buffers, bytes });
        Some(Self { bytes, verdict: plan.verdict_in(bytes).to_string(), witness })
    }

    /// Returns lines with the largest buffers that do not fit.
    pub(crate) fn witness_text(&self, problem: &Problem) -> String {
        let Some(witness) = &self.witness else { return String::new() };
        let size = |index: &usize| problem.buffers()[*index].size;
        let mut largest = witness.buffers.clone();
        largest.sort_by_key(|index| Reverse(size(index)));
        let name = |index: &usize| match problem.name(*index) {
            Some(name) => table::plain(name),
            None => format!("buffer {index}"),
        };
        let named = largest
            .iter()
            .take(MAX_WITNESSES)
            .map(|index| format!("  {} {}\n", bytes(size(index)), name(index)));
        let named: String = named.collect();
        let (time, count, needed) = (witness.time, largest.len(), bytes(witness.bytes));
        let more = match count.saturating_sub(MAX_WITNESSES) {
            0 => String::new(),
            more => format!("  and {} that are not larger\n", table::counted(more as u64, "buffer")),
        };
        format!(
            "At {time}, {} are live that need {needed}:\n{named}{more}",
            table::counted(count as u64, "buffer")
        )
    }
}
