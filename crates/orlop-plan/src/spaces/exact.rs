//! A search through all assignments of few buffers.

use super::costs::Costs;
use super::fit::{Fits, SpaceFit, members};

/// The number of partial assignments after which the search is given up.
const MAX_STEPS: u64 = 1 << 20;

/// The number of plans of a space after which it is given up.
const MAX_PLANNED: u64 = 1 << 14;

/// What a search found.
pub(super) struct ExactAssignment {
    /// The cheapest one, unless that which the search began with is.
    pub(super) assignment: Option<Vec<usize>>,
    /// Whether it is proven that no other is cheaper, or that there is none.
    pub(super) is_complete: bool,
}

/// The state of a search.
struct AssignmentSearch<'a, 'b> {
    costs: &'a Costs<'b>,
    fits: &'a mut Fits<'b>,
    /// The buffers, those that can be most expensive first.
    order: Vec<usize>,
    /// By position in the order, the least cost of the buffers from there on.
    rest: Vec<u64>,
    best: Option<(u64, Vec<usize>)>,
    is_complete: bool,
    steps: u64,
}

/// The space of a buffer that has none yet.
const NONE: usize = usize::MAX;

/// Searches the cheapest assignment, from a known one on.
pub(super) fn search<'a>(
    costs: &Costs<'a>,
    fits: &mut Fits<'a>,
    known: Option<&Vec<usize>>,
) -> ExactAssignment {
    let count = costs.choices.len();
    let mut order: Vec<usize> = (0..count).collect();
    let range = |buffer: usize| {
        let choices = &costs.choices[buffer];
        choices.last().map_or(0, |last| last.1) - choices[0].1
    };
    order.sort_by_key(|&buffer| (std::cmp::Reverse(range(buffer)), buffer));
    let mut rest = vec![0_u64; count + 1];
    for (position, &buffer) in order.iter().enumerate().rev() {
        rest[position] = rest[position + 1].saturating_add(costs.choices[buffer][0].1);
    }
    let best = known.map(|known| (costs.of(known), known.clone()));
    let mut search = AssignmentSearch { costs, fits, order, rest, best, is_complete: true, steps: 0 };
    search.assign(0, 0, &mut vec![NONE; count]);
    let assignment = search.best.map(|(_, assignment)| assignment);
    ExactAssignment { assignment, is_complete: search.is_complete }
}

impl AssignmentSearch<'_, '_> {
    /// Assigns the buffers from a position of the order on.
    fn assign(&mut self, position: usize, cost: u64, assignment: &mut Vec<usize>) {
        let is_cheaper =
            |cost: u64, best: &Option<(u64, Vec<usize>)>| best.as_ref().is_none_or(|&(best, _)| cost < best);
        if !is_cheaper(cost.saturating_add(self.rest[position]), &self.best) {
            return;
        }
        let Some(&buffer) = self.order.get(position) else {
            self.best = Some((cost, assignment.clone()));
            return;
        };
        for &(space, added) in &self.costs.choices[buffer] {
            self.steps += 1;
            if self.steps > MAX_STEPS || self.fits.planned() > MAX_PLANNED {
                self.is_complete = false;
                return;
            }
            assignment[buffer] = space;
            match self.fits.check(space, members(assignment, space)) {
                SpaceFit::Fits => self.assign(position + 1, cost.saturating_add(added), assignment),
                SpaceFit::Infeasible { .. } => {}
                SpaceFit::Unproven { .. } => self.is_complete = false,
            }
            assignment[buffer] = NONE;
        }
    }
}
