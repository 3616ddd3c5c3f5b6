//! The planners that are in use elsewhere, written from their descriptions, for comparison.
//!
//! | file | planner |
//! |---|---|
//! | `first_fit` | greedy by size, XLA's rule, the orders of omnimalloc's portfolio |
//! | `hill_climb` | TVM's hill climb over the order of first fit |
//! | `canonical` | minimalloc's search, at capacities from bisection |

mod canonical;
mod first_fit;
mod hill_climb;

use orlop_plan::{Plan, Problem, verify};
use std::time::Instant;

/// The number of pairs of buffers that are live together up to which these planners are tried. They list all
/// of them.
const MAX_PAIRS: usize = 1 << 25;

/// Offsets, and their end.
pub(crate) type Packing = (u64, Vec<u64>);

/// What limits a search.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limit {
    /// The number of plans of the hill climb, or of thousands of nodes of the search.
    pub(crate) steps: u64,
    /// The time at which it ends.
    pub(crate) until: Option<Instant>,
}

impl Limit {
    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

/// A problem with the pairs of buffers that are live together.
#[derive(Debug)]
pub(crate) struct Conflicts<'a> {
    pub(crate) problem: &'a Problem,
    begin: Vec<usize>,
    pairs: Vec<u32>,
}

impl<'a> Conflicts<'a> {
    /// Returns `None` if there are too many pairs.
    pub(crate) fn new(problem: &'a Problem) -> Option<Self> {
        let buffers = problem.buffers();
        let mut sorted: Vec<usize> = (0..buffers.len()).filter(|&index| buffers[index].size > 0).collect();
        sorted.sort_by_key(|&index| buffers[index].start);
        let mut neighbors = vec![Vec::new(); buffers.len()];
        let (mut live, mut count) = (Vec::<usize>::new(), 0);
        for index in sorted {
            live.retain(|&other| buffers[other].end > buffers[index].start);
            count += live.len();
            if count > MAX_PAIRS {
                return None;
            }
            for &other in &live {
                neighbors[index].push(u32::try_from(other).ok()?);
                neighbors[other].push(u32::try_from(index).ok()?);
            }
            live.push(index);
        }
        let mut begin = vec![0];
        begin.extend(neighbors.iter().scan(0, |end, of| {
            *end += of.len();
            Some(*end)
        }));
        Some(Self { problem, begin, pairs: neighbors.concat() })
    }

    fn len(&self) -> usize {
        self.problem.len()
    }

    /// Returns the buffers that are live together with one.
    fn of(&self, index: usize) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.pairs[self.begin[index]..self.begin[index + 1]].iter().map(|&other| other as usize)
    }

    fn size(&self, index: usize) -> u64 {
        self.problem.buffers()[index].size
    }

    fn round_up(&self, index: usize, offset: u64) -> u64 {
        offset.next_multiple_of(1 << self.problem.buffers()[index].alignment.log2())
    }
}

/// A planner of this module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    GreedyBySize,
    Xla,
    Portfolio,
    HillClimb,
    Minimalloc,
}

impl Peer {
    pub(crate) const ALL: [Self; 5] =
        [Self::GreedyBySize, Self::Xla, Self::Portfolio, Self::HillClimb, Self::Minimalloc];

    /// Returns `true` if it takes all of the time that it has.
    pub(crate) fn is_search(self) -> bool {
        matches!(self, Self::HillClimb | Self::Minimalloc)
    }

    /// Plans a problem, and returns the height.
    ///
    /// # Panics
    ///
    /// If its plan is not valid.
    pub(crate) fn plan(self, conflicts: &Conflicts<'_>, limit: Limit, seed: u64) -> u64 {
        let (height, offsets) = match self {
            Self::GreedyBySize => first_fit::greedy_by_size(conflicts),
            Self::Xla => first_fit::xla(conflicts),
            Self::Portfolio => first_fit::portfolio(conflicts),
            Self::HillClimb => hill_climb::plan(conflicts, limit, seed),
            Self::Minimalloc => canonical::plan(conflicts, limit),
        };
        let plan = Plan::new(conflicts.problem, offsets).expect("an offset for each buffer");
        verify(conflicts.problem, &plan).expect("a peer's plan is valid");
        assert_eq!(plan.height(), height, "{self:?}");
        height
    }
}
