//! A plan for several memories, as JSON.

use super::{PlanFile, PlanFileError};
use orlop_plan::{Problem, SpacesPlan, Verdict};
use serde::{Deserialize, Serialize};

/// A plan for several memories, with its problem.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SpacesFile {
    /// The sum of the costs of all buffers: size, accesses and the cost of the space, multiplied.
    pub cost: u64,
    /// The lower bound of the costs of all plans.
    pub cost_bound: u64,
    /// `optimal`, or within how many per cent of it.
    pub verdict: String,
    /// The memories.
    pub spaces: Vec<SpaceFile>,
}

/// A memory of a [`SpacesFile`], and the plan for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SpaceFile {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub capacity: u64,
    /// The cost of an access to one byte.
    pub cost_per_byte: u64,
    /// The indices of its buffers among all of them, in the order of `plan`.
    pub indices: Vec<usize>,
    /// How often each of its buffers is accessed.
    pub accesses: Vec<u64>,
    /// The plan of these buffers.
    pub plan: PlanFile,
}

/// Why a plan for several memories is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpacesFileError {
    /// The plan of a space is not valid.
    #[error("in the space {space:?}: {error}")]
    Plan {
        /// The name of the space.
        space: String,
        /// What is wrong.
        error: PlanFileError,
    },
    /// A plan is above the capacity.
    #[error("the space {space:?} has {capacity} bytes, and its plan needs {peak}")]
    Capacity {
        /// The name of the space.
        space: String,
        /// Its capacity in bytes.
        capacity: u64,
        /// The peak of its plan in bytes.
        peak: u64,
    },
    /// The buffers are not numbered each once, or do not all have accesses.
    #[error("the buffers are not each in one space")]
    Indices,
    /// Cost, bound and verdict are not those of the buffers.
    #[error("the cost is {cost}, and the cost, its bound or the verdict in the file is not right")]
    Cost {
        /// The cost of the buffers.
        cost: u64,
    },
}

impl SpacesFile {
    /// Describes a plan.
    #[must_use]
    pub fn new(problem: &Problem, plan: &SpacesPlan) -> Self {
        let spaces = plan.spaces().iter().zip(plan.plans()).map(|(space, of)| SpaceFile {
            name: space.name.to_string(),
            capacity: space.capacity,
            cost_per_byte: space.cost,
            indices: of.buffers.clone(),
            accesses: of.buffers.iter().map(|&buffer| problem.accesses(buffer)).collect(),
            plan: PlanFile::new(&of.problem, &of.plan),
        });
        Self {
            cost: plan.cost(),
            cost_bound: plan.lower_bound(),
            verdict: plan.verdict().to_string(),
            spaces: spaces.collect(),
        }
    }

    /// Checks the plan of each space, that it is below the capacity, that each buffer is in one space, and
    /// the cost. That no plan is below the bound of the cost is not checked.
    ///
    /// # Errors
    ///
    /// [`SpacesFileError`]: the first fault.
    pub fn verify(&self) -> Result<(), SpacesFileError> {
        let mut cost = 0_u64;
        let mut indices: Vec<usize> = Vec::new();
        for space in &self.spaces {
            let invalid = |error| SpacesFileError::Plan { space: space.name.clone(), error };
            space.plan.verify().map_err(invalid)?;
            let (capacity, peak) = (space.capacity, space.plan.peak);
            if peak > capacity {
                return Err(SpacesFileError::Capacity { space: space.name.clone(), capacity, peak });
            }
            let count = space.plan.buffers.len();
            if space.indices.len() != count || space.accesses.len() != count {
                return Err(SpacesFileError::Indices);
            }
            indices.extend(&space.indices);
            for (buffer, &accesses) in space.plan.buffers.iter().zip(&space.accesses) {
                let of = buffer.size.saturating_mul(accesses).saturating_mul(space.cost_per_byte);
                cost = cost.saturating_add(of);
            }
        }
        indices.sort_unstable();
        if !indices.iter().copied().eq(0..indices.len()) {
            return Err(SpacesFileError::Indices);
        }
        let verdict = Verdict::of(cost, self.cost_bound).to_string();
        let is_right = self.cost == cost && self.cost_bound <= cost && self.verdict == verdict;
        if is_right { Ok(()) } else { Err(SpacesFileError::Cost { cost }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_plan::{Buffer, Space, SpacePlanner};

    #[test]
    fn what_is_wrong_with_a_file_is_said() {
        let problem = Problem::new([60, 50].map(|size| Buffer::unaligned(0..2, size))).unwrap();
        let spaces = [Space::new("sram", 100, 1), Space::new("dram", 1000, 4)];
        let plan = SpacePlanner::new(spaces).plan(&problem).unwrap();
        let good = SpacesFile::new(&problem, &plan);
        let text = serde_json::to_string(&good).unwrap();
        assert_eq!(serde_json::from_str::<SpacesFile>(&text).unwrap(), good);
        assert_eq!((good.verify(), good.cost, &*good.verdict), (Ok(()), 60 + 4 * 50, "optimal"));
        let wrong = |change: fn(&mut SpacesFile)| {
            let mut file = good.clone();
            change(&mut file);
            file.verify().unwrap_err()
        };
        let cost = SpacesFileError::Cost { cost: 260 };
        assert_eq!(wrong(|file| file.cost = 259), cost);
        assert_eq!(wrong(|file| file.cost_bound = 261), cost);
        assert_eq!(wrong(|file| file.verdict = "within 0.01 %".to_owned()), cost);
        assert_eq!(wrong(|file| file.spaces[1].indices = vec![0]), SpacesFileError::Indices);
        assert_eq!(wrong(|file| file.spaces[1].accesses.clear()), SpacesFileError::Indices);
        let capacity = wrong(|file| file.spaces[0].capacity = 59);
        assert_eq!(capacity, SpacesFileError::Capacity { space: "sram".to_owned(), capacity: 59, peak: 60 });
        let plan = wrong(|file| file.spaces[0].plan.offsets[0] = 1);
        assert!(matches!(plan, SpacesFileError::Plan { .. }), "{plan}");
    }
}
