//! What a lower bound follows from.

use crate::Problem;
use crate::constraint::FlatProblem;
use crate::normal::Normal;

/// The proof of a lower bound: buffers that are live at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BoundWitness {
    /// A time at which all of them are live.
    pub time: u64,
    /// The indices of the buffers with bytes that are live then.
    pub buffers: Vec<usize>,
    /// The bytes without which no plan has room for them: with what alignments add, and around fixed buffers
    /// and reserved ranges.
    pub bytes: u64,
}

impl Problem {
    /// Returns the first buffers from which [`lower_bound`](Self::lower_bound) follows: to plan in less, one
    /// of them has to be smaller, or live at another time. `None` if no buffer has bytes.
    ///
    /// ```
    /// use orlop_plan::{Buffer, Problem};
    ///
    /// let lifetimes = [(0..2, 10), (1..4, 20), (3..6, 15), (5..7, 10)];
    /// let problem = Problem::new(lifetimes.map(|(lifetime, size)| Buffer::unaligned(lifetime, size)))?;
    /// let witness = problem.bound_witness().unwrap();
    /// assert_eq!((witness.time, witness.buffers, witness.bytes), (3, vec![1, 2], 35));
    /// # Ok::<(), orlop_plan::ProblemError>(())
    /// ```
    #[must_use]
    pub fn bound_witness(&self) -> Option<BoundWitness> {
        let flat = FlatProblem::relaxed(self);
        let normal = Normal::of_flat(&flat);
        let in_section = |first: u32, behind| first <= normal.bound_section && normal.bound_section < behind;
        let live = normal.spans.iter().filter(|span| in_section(span.first, span.behind));
        let time = live.map(|span| flat.problem.buffers()[span.index as usize].start).max()?;
        let buffers = self.buffers().iter().enumerate();
        let live = buffers.filter(|&(index, buffer)| {
            buffer.size > 0 && self.lifetimes(index).any(|lifetime| lifetime.contains(&time))
        });
        Some(BoundWitness {
            time,
            buffers: live.map(|(index, _)| index).collect(),
            bytes: normal.lower_bound,
        })
    }
}
