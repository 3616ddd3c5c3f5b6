//! Plans for several memories: each buffer in one of them, at the least cost.
//!
//! | file | what it holds |
//! |---|---|
//! | `costs` | the costs of buffers in spaces, and a lower bound of all plans |
//! | `fit` | whether buffers fit in a space |
//! | `exact` | a search through all assignments, for few buffers |
//! | `spill` | from the cheapest spaces to others until all fit, and back |
//! | `plan` | [`SpacesPlan`] and its check |
//! | `preferences` | accesses of buffers, and the spaces in which they may be |

mod costs;
mod exact;
mod fit;
mod plan;
mod preferences;
mod spill;

pub use self::plan::{SpacePlan, SpacesPlan};
pub(crate) use self::preferences::Preferences;

use self::costs::Costs;
use self::exact::search;
use self::fit::Fits;
use self::spill::spill;
use crate::error::BufferRef;
use crate::{PlanError, Problem, SearchBudget};

/// The number of buffers up to which all assignments are searched.
const MAX_EXACT: usize = 20;

/// A memory with a capacity, such as SRAM.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Space {
    /// Its name.
    pub name: Box<str>,
    /// Its size in bytes.
    pub capacity: u64,
    /// The cost of an access to one byte.
    pub cost: u64,
}

impl Space {
    /// Creates a space of `capacity` bytes, where an access to one byte costs `cost`.
    #[must_use]
    pub fn new(name: &str, capacity: u64, cost: u64) -> Self {
        Self { name: name.into(), capacity, cost }
    }
}

/// Why buffers have no plan in spaces.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpaceError {
    /// There are no spaces.
    #[error("there are no spaces")]
    NoSpaces,
    /// Two spaces have the same name.
    #[error("two spaces have the name {name:?}")]
    NameTwice {
        /// The name.
        name: Box<str>,
    },
    /// A buffer prefers a space that does not exist.
    #[error("{buffer} may be in the space {name:?}, which does not exist")]
    UnknownSpace {
        /// The buffer.
        buffer: BufferRef,
        /// The name.
        name: Box<str>,
    },
    /// A buffer is larger than each space in which it may be.
    #[error("{buffer} of {size} bytes is larger than each space in which it may be")]
    TooLarge {
        /// The buffer.
        buffer: BufferRef,
        /// Its size in bytes.
        size: u64,
    },
    /// The problem has fixed offsets, reserved ranges, parts or blocks of limited size, which are of one
    /// space.
    #[error("fixed offsets, reserved ranges, parts of buffers and blocks cannot be divided among spaces")]
    Constrained,
    /// The costs of all buffers may exceed 64 bits.
    #[error("the costs of all buffers may exceed 2^64")]
    CostOverflow,
    /// No assignment to the spaces was found in which all buffers fit.
    #[error("the buffers do not fit in the spaces{}", if *.is_proven { "" } else { ", as far as searched" })]
    NoRoom {
        /// Whether it is proven that there is none.
        is_proven: bool,
    },
    /// A plan is not valid in a space.
    #[error("in the space {space:?}: {error}")]
    Plan {
        /// The name of the space.
        space: Box<str>,
        /// What is wrong.
        error: PlanError,
    },
    /// The buffers in a space are above its capacity.
    #[error("the space {space:?} has {capacity} bytes, and its plan needs {height}")]
    Capacity {
        /// The name of the space.
        space: Box<str>,
        /// Its capacity in bytes.
        capacity: u64,
        /// The height of its plan in bytes.
        height: u64,
    },
    /// The cost is not that of the buffers, or below its bound.
    #[error("the cost is {cost} with a bound of {lower_bound}, not {stated}")]
    Cost {
        /// The cost of the plan, as it states it.
        stated: u64,
        /// The cost of the buffers.
        cost: u64,
        /// The lower bound of the plan.
        lower_bound: u64,
    },
    /// A buffer is in no space, in several, or in one where it may not be.
    #[error("{buffer} is not in one of its spaces, or in several")]
    Misplaced {
        /// The buffer.
        buffer: BufferRef,
    },
}

/// Divides the buffers of a problem among spaces, at the least cost, and plans each of them.
///
/// The cost of a buffer is its size times its [accesses](crate::ProblemBuilder::accesses) times the cost of
/// the space. Of up to 20 buffers all assignments are searched; of more, buffers are moved from spaces that
/// are too full to where that costs the least for their bytes, and back where they still fit.
///
/// ```
/// use orlop_plan::{Buffer, Problem, Space, SpacePlanner, Verdict};
///
/// let buffers = [(0..2, 60), (1..3, 50), (2..4, 40)];
/// let problem = Problem::new(buffers.map(|(lifetime, size)| Buffer::unaligned(lifetime, size)))?;
/// let spaces = [Space::new("sram", 100, 1), Space::new("dram", u64::MAX, 10)];
/// let plan = SpacePlanner::new(spaces).plan(&problem)?;
/// plan.verify(&problem)?;
/// // The buffer of 50 bytes is live with each of the others.
/// assert_eq!([0, 1, 2].map(|index| plan.space(index)), [Some(0), Some(1), Some(0)]);
/// assert_eq!((plan.cost(), plan.verdict()), (60 + 500 + 40, Verdict::Optimal));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct SpacePlanner {
    spaces: Vec<Space>,
    budget: Option<SearchBudget>,
}

impl SpacePlanner {
    /// Creates a planner for these spaces. Of spaces with the same cost the first is preferred.
    #[must_use]
    pub fn new(spaces: impl IntoIterator<Item = Space>) -> Self {
        Self { spaces: spaces.into_iter().collect(), budget: None }
    }

    /// Sets the budget of each plan of a space; by default [`SearchBudget::short`].
    #[must_use]
    pub fn budget(mut self, budget: SearchBudget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Plans the problem.
    ///
    /// # Errors
    ///
    /// [`SpaceError`]
    pub fn plan(&self, problem: &Problem) -> Result<SpacesPlan, SpaceError> {
        let costs = Costs::new(problem, &self.spaces)?;
        let mut fits = Fits::new(problem, &self.spaces, self.budget);
        let spilled = spill(&costs, &mut fits);
        let exact = (problem.len() <= MAX_EXACT).then(|| search(&costs, &mut fits, spilled.as_ref()));
        let is_proven = exact.as_ref().is_some_and(|exact| exact.is_complete);
        let best = exact.and_then(|exact| exact.assignment).or(spilled);
        let Some(assignment) = best else { return Err(SpaceError::NoRoom { is_proven }) };
        let cost = costs.of(&assignment);
        let lower_bound = if is_proven { cost } else { costs.lower_bound().min(cost) };
        Ok(SpacesPlan::new(problem, &self.spaces, fits.plans(&assignment), (cost, lower_bound)))
    }
}
