//! Whether buffers fit in a space: they are planned, and the answers are kept.

use super::{Space, SpacePlan};
use crate::{CapacityVerdict, Plan, Planner, Problem, ProblemBuilder, SearchBudget};
use std::collections::HashMap;

/// The number of sets of buffers whose answers are kept.
const MAX_KEPT: usize = 1 << 14;

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpaceFit {
    Fits,
    /// It is proven that there is no plan.
    Infeasible {
        missing: u64,
    },
    /// No plan was found.
    Unproven {
        missing: u64,
    },
}

/// The plans of spaces.
pub(super) struct Fits<'a> {
    problem: &'a Problem,
    spaces: &'a [Space],
    budget: Option<SearchBudget>,
    /// By space and buffers.
    known: HashMap<(usize, Vec<usize>), SpaceFit>,
    planned: u64,
}

impl<'a> Fits<'a> {
    pub(super) fn new(problem: &'a Problem, spaces: &'a [Space], budget: Option<SearchBudget>) -> Self {
        Self { problem, spaces, budget, known: HashMap::new(), planned: 0 }
    }

    /// Returns the number of plans that were made for answers.
    pub(super) fn planned(&self) -> u64 {
        self.planned
    }

    /// Returns whether these buffers, in order of index, fit in a space together.
    pub(super) fn check(&mut self, space: usize, buffers: Vec<usize>) -> SpaceFit {
        let sum = buffers.iter().try_fold(0_u64, |sum, &buffer| {
            sum.checked_add(self.problem.buffers()[buffer].max_aligned_size()?)
        });
        if sum.is_some_and(|sum| sum <= self.spaces[space].capacity) {
            return SpaceFit::Fits;
        }
        let key = (space, buffers);
        if let Some(&known) = self.known.get(&key) {
            return known;
        }
        let fit = match self.plan(space, &key.1).1.verdict_in(self.spaces[space].capacity) {
            CapacityVerdict::Fits => SpaceFit::Fits,
            CapacityVerdict::Infeasible { missing } => SpaceFit::Infeasible { missing },
            CapacityVerdict::Unproven { missing } => SpaceFit::Unproven { missing },
        };
        self.planned += 1;
        if self.known.len() < MAX_KEPT {
            self.known.insert(key, fit);
        }
        fit
    }

    /// Returns the plans of an assignment whose buffers fit.
    pub(super) fn plans(&self, assignment: &[usize]) -> Vec<SpacePlan> {
        let planned = (0..self.spaces.len()).map(|space| {
            let buffers = members(assignment, space);
            let (problem, plan) = self.plan(space, &buffers);
            SpacePlan { buffers, problem, plan }
        });
        planned.collect()
    }

    fn plan(&self, space: usize, buffers: &[usize]) -> (Problem, Plan) {
        let problem = part(self.problem, buffers);
        let budget = self.budget.unwrap_or_else(|| SearchBudget::short(problem.len()));
        let plan = Planner::new().budget(budget).capacity(self.spaces[space].capacity).plan(&problem);
        (problem, plan)
    }
}

/// Returns the buffers in a space.
pub(super) fn members(assignment: &[usize], space: usize) -> Vec<usize> {
    (0..assignment.len()).filter(|&buffer| assignment[buffer] == space).collect()
}

/// Returns the problem of some buffers, in their order.
pub(super) fn part(problem: &Problem, buffers: &[usize]) -> Problem {
    let mut builder = ProblemBuilder::new();
    for &index in buffers {
        let name = problem.name(index).unwrap_or_default();
        let added = builder.push_named(name, problem.buffers()[index]);
        debug_assert!(added.is_ok(), "a part of a valid problem");
        let added = builder.gaps(builder.problem.len() - 1, problem.gaps(index).iter().cloned());
        debug_assert!(added.is_ok(), "gaps of a valid problem");
    }
    for (one, other) in problem.exclusions() {
        if let (Ok(one), Ok(other)) = (buffers.binary_search(&one), buffers.binary_search(&other)) {
            let added = builder.exclude(one, other);
            debug_assert!(added.is_ok(), "nothing is fixed");
        }
    }
    builder.finish()
}
