//! Plans for several spaces, and their check.

use super::costs::Costs;
use super::fit::part;
use super::{Space, SpaceError};
use crate::{Plan, Problem, Verdict, verify};

/// A plan for one space.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpacePlan {
    /// The indices of its buffers in the whole problem, in order.
    pub buffers: Vec<usize>,
    /// The problem of these buffers.
    pub problem: Problem,
    /// Its plan, whose offsets are in this space.
    pub plan: Plan,
}

/// A plan for several spaces: a space for each buffer, and an offset there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpacesPlan {
    spaces: Vec<Space>,
    plans: Vec<SpacePlan>,
    /// By buffer, its space and its position there.
    places: Vec<(usize, usize)>,
    cost: u64,
    lower_bound: u64,
}

impl SpacesPlan {
    pub(super) fn new(
        problem: &Problem,
        spaces: &[Space],
        plans: Vec<SpacePlan>,
        (cost, lower_bound): (u64, u64),
    ) -> Self {
        let mut places = vec![(usize::MAX, 0); problem.len()];
        for (space, plan) in plans.iter().enumerate() {
            for (position, &buffer) in plan.buffers.iter().enumerate() {
                places[buffer] = (space, position);
            }
        }
        Self { spaces: spaces.to_vec(), plans, places, cost, lower_bound }
    }

    /// Returns the spaces.
    #[must_use]
    pub fn spaces(&self) -> &[Space] {
        &self.spaces
    }

    /// Returns the plan of each space.
    #[must_use]
    pub fn plans(&self) -> &[SpacePlan] {
        &self.plans
    }

    /// Returns the number of the space of a buffer, or `None` if there is no such buffer.
    #[must_use]
    pub fn space(&self, index: usize) -> Option<usize> {
        self.places.get(index).map(|place| place.0)
    }

    /// Returns the offset of a buffer in its space in bytes, or `None` if there is no such buffer.
    #[must_use]
    pub fn offset(&self, index: usize) -> Option<u64> {
        let &(space, position) = self.places.get(index)?;
        self.plans.get(space)?.plan.offset(position)
    }

    /// Returns the cost of all buffers.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns the lower bound of the costs of all plans.
    #[must_use]
    pub fn lower_bound(&self) -> u64 {
        self.lower_bound
    }

    /// Returns the verdict on the cost.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        Verdict::of(self.cost, self.lower_bound)
    }

    /// Checks that each buffer is in one of its spaces, that the plan of each space is valid and below its
    /// capacity, and that the cost is that of the buffers.
    ///
    /// # Errors
    ///
    /// [`SpaceError`]: the first fault.
    pub fn verify(&self, problem: &Problem) -> Result<(), SpaceError> {
        let costs = Costs::new(problem, &self.spaces)?;
        let mut space_of = vec![None; problem.len()];
        for (number, (space, of)) in self.spaces.iter().zip(&self.plans).enumerate() {
            for &buffer in &of.buffers {
                let misplaced = || SpaceError::Misplaced { buffer: problem.buffer_ref(buffer) };
                let known = space_of.get_mut(buffer).ok_or_else(misplaced)?;
                let may_be_here = costs.choices[buffer].iter().any(|choice| choice.0 == number);
                if known.replace(number).is_some() || !may_be_here {
                    return Err(misplaced());
                }
            }
            let invalid = |error| SpaceError::Plan { space: space.name.clone(), error };
            verify(&part(problem, &of.buffers), &of.plan).map_err(invalid)?;
            let (capacity, height) = (space.capacity, of.plan.height());
            if height > capacity {
                return Err(SpaceError::Capacity { space: space.name.clone(), capacity, height });
            }
        }
        let missing = space_of.iter().position(Option::is_none);
        if let Some(buffer) = missing {
            return Err(SpaceError::Misplaced { buffer: problem.buffer_ref(buffer) });
        }
        let assignment: Vec<usize> = space_of.into_iter().flatten().collect();
        let cost = costs.of(&assignment);
        if (cost, self.lower_bound.min(cost)) == (self.cost, self.lower_bound) {
            Ok(())
        } else {
            Err(SpaceError::Cost { stated: self.cost, cost, lower_bound: self.lower_bound })
        }
    }
}
