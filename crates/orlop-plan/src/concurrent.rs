//! Lifetimes on concurrent streams: which buffers may share bytes follows from the waits between streams.
//!
//! Steps of one stream are executed in order, those of others in any order that the waits leave open. Two
//! buffers may share bytes if all steps that use one of them happen before all that use the other. A vector
//! clock says of each step how many steps of each stream happen before it; of the clocks of a buffer's steps
//! the join and the meet are enough to compare it with others.
//!
//! A [`Problem`] has one time. Steps are numbered in the order in which they were added, which is one of the
//! orders that the waits permit: a buffer is live from its first step to its last. Buffers that are live at
//! one time then are never ordered, and the bound holds. Those that are not ordered, but live apart, are
//! [excluded](ProblemBuilder::exclude).

use crate::{Buffer, Problem, ProblemBuilder, ProblemError};
use orlop_core::Alignment;

/// The maximum number of pairs that are excluded.
const MAX_PAIRS: usize = 1 << 22;

/// A step of a stream: the number that [`ConcurrentBuilder`] gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamStep(usize);

/// Builds a [`Problem`] of buffers that concurrent streams use.
///
/// ```
/// use orlop_core::Alignment;
/// use orlop_plan::{ConcurrentBuilder, Planner, verify};
///
/// let mut streams = ConcurrentBuilder::new(2);
/// let first = streams.step(0, &[])?;
/// let sent = streams.step(1, &[first])?; // Stream 1 waits for the first step.
/// let second = streams.step(0, &[])?;
/// let third = streams.step(0, &[sent])?;
/// let message = streams.push("message", 100, Alignment::ONE, &[first, sent])?;
/// let beside = streams.push("beside", 100, Alignment::ONE, &[second])?;
/// let after = streams.push("after", 100, Alignment::ONE, &[third])?;
/// let problem = streams.finish()?;
/// // The second step can be executed before the message is sent, the third cannot.
/// assert!(problem.exclusions().eq([(message, beside)]));
/// let plan = Planner::new().plan(&problem);
/// verify(&problem, &plan)?;
/// assert_ne!(plan.offset(message), plan.offset(beside));
/// assert_eq!((plan.height(), plan.offset(after)), (200, Some(0)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ConcurrentBuilder {
    streams: usize,
    steps: Vec<ClockedStep>,
    /// By stream, its last step.
    last: Vec<Option<usize>>,
    builder: ProblemBuilder,
    /// Those of the buffers.
    uses: Vec<BufferClocks>,
}

#[derive(Debug, Clone)]
struct ClockedStep {
    stream: usize,
    /// By stream, the number of its steps that happen before this one.
    before: Box<[usize]>,
}

#[derive(Debug, Clone)]
struct BufferClocks {
    /// By stream, the number of its steps up to the last one that uses the buffer.
    join: Box<[usize]>,
    /// By stream, the number of its steps that happen before all that use the buffer.
    meet: Box<[usize]>,
}

impl BufferClocks {
    /// Returns `true` if all steps that use this buffer happen before those whose meet is given.
    fn is_before(&self, meet: &[usize]) -> bool {
        self.join.iter().zip(meet).all(|(used, happened)| used <= happened)
    }
}

impl ConcurrentBuilder {
    /// Creates a builder for this number of streams.
    #[must_use]
    pub fn new(streams: usize) -> Self {
        let builder = ProblemBuilder::new();
        Self { streams, steps: Vec::new(), last: vec![None; streams], builder, uses: Vec::new() }
    }

    /// Adds the next step of a stream, which waits for other steps as well.
    ///
    /// # Errors
    ///
    /// [`ProblemError::NoStream`], [`ProblemError::NoStep`]; the step is then not added.
    pub fn step(&mut self, stream: usize, after: &[StreamStep]) -> Result<StreamStep, ProblemError> {
        let last = *self.last.get(stream).ok_or(ProblemError::NoStream { stream })?;
        let mut before = vec![0; self.streams].into_boxed_slice();
        for step in last.into_iter().map(StreamStep).chain(after.iter().copied()) {
            let step = self.existing(step)?;
            for (before, &of_step) in before.iter_mut().zip(&step.before) {
                *before = of_step.max(*before);
            }
            before[step.stream] = before[step.stream].max(step.before[step.stream] + 1);
        }
        let step = self.steps.len();
        self.last[stream] = Some(step);
        self.steps.push(ClockedStep { stream, before });
        Ok(StreamStep(step))
    }

    /// Adds a buffer of `size` bytes that these steps use, in any order, and returns its index. An empty name
    /// is none. A result that is read afterwards is used by a last step, which waits for all streams.
    ///
    /// # Errors
    ///
    /// [`ProblemError::NoStep`], [`ProblemError::NeverUsed`] without steps, and those of
    /// [`ProblemBuilder::push`]; the buffer is then not added.
    pub fn push(
        &mut self,
        name: &str,
        size: u64,
        alignment: Alignment,
        steps: &[StreamStep],
    ) -> Result<usize, ProblemError> {
        let mut clocks =
            BufferClocks { join: vec![0; self.streams].into(), meet: vec![usize::MAX; self.streams].into() };
        for &step in steps {
            let step = self.existing(step)?;
            let used = &mut clocks.join[step.stream];
            *used = (*used).max(step.before[step.stream] + 1);
            for (meet, &before) in clocks.meet.iter_mut().zip(&step.before) {
                *meet = before.min(*meet);
            }
        }
        let index = self.uses.len();
        let ends = steps.iter().min().zip(steps.iter().max());
        let (first, last) = ends.ok_or(ProblemError::NeverUsed { index })?;
        let lifetime = first.0 as u64..last.0 as u64 + 1;
        self.builder.push_named(name, Buffer::unaligned(lifetime, size).aligned(alignment))?;
        self.uses.push(clocks);
        Ok(index)
    }

    /// Returns the problem, whose times are the numbers of steps.
    ///
    /// # Errors
    ///
    /// [`ProblemError::TooManyPairs`] if more than 4,194,304 pairs of buffers are live apart, but not
    /// ordered.
    pub fn finish(mut self) -> Result<Problem, ProblemError> {
        let buffers = self.builder.problem.buffers();
        let mut by_start: Vec<usize> = (0..buffers.len()).filter(|&index| buffers[index].size > 0).collect();
        by_start.sort_by_key(|&index| buffers[index].start);
        let meets_from = self.meets_from(&by_start);
        let mut pairs = Vec::new();
        for (position, &one) in by_start.iter().enumerate() {
            let (clocks, end) = (&self.uses[one], buffers[one].end);
            let later = &by_start[position + 1..];
            let first = position + 1 + later.partition_point(|&other| buffers[other].start < end);
            for (&other, meet) in by_start[first..].iter().zip(meets_from[first..].iter()) {
                if clocks.is_before(meet) {
                    break;
                }
                if !clocks.is_before(&self.uses[other].meet) {
                    pairs.push((one.min(other), one.max(other)));
                }
            }
            if pairs.len() > MAX_PAIRS {
                return Err(ProblemError::TooManyPairs { limit: MAX_PAIRS });
            }
        }
        self.builder.problem.constraints.exclusions.extend(pairs);
        Ok(self.builder.finish())
    }

    /// Returns, by position, the meet of the buffers there and behind.
    fn meets_from(&self, order: &[usize]) -> Vec<Box<[usize]>> {
        let mut meet = vec![usize::MAX; self.streams].into_boxed_slice();
        let mut meets: Vec<_> = order
            .iter()
            .rev()
            .map(|&index| {
                for (meet, &of_buffer) in meet.iter_mut().zip(&self.uses[index].meet) {
                    *meet = of_buffer.min(*meet);
                }
                meet.clone()
            })
            .collect();
        meets.reverse();
        meets
    }

    fn existing(&self, step: StreamStep) -> Result<&ClockedStep, ProblemError> {
        self.steps.get(step.0).ok_or(ProblemError::NoStep { step: step.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_exist_is_refused() {
        let mut other = ConcurrentBuilder::new(1);
        other.step(0, &[]).unwrap();
        let foreign = other.step(0, &[]).unwrap();
        let mut streams = ConcurrentBuilder::new(1);
        assert_eq!(streams.step(1, &[]), Err(ProblemError::NoStream { stream: 1 }));
        assert_eq!(streams.step(0, &[foreign]), Err(ProblemError::NoStep { step: 1 }));
        let step = streams.step(0, &[]).unwrap();
        assert_eq!(step, StreamStep(0), "nothing was added");
        let mut push = |size, steps: &[StreamStep]| streams.push("", size, Alignment::ONE, steps);
        assert_eq!(push(1, &[]), Err(ProblemError::NeverUsed { index: 0 }));
        assert_eq!(push(1, &[foreign]), Err(ProblemError::NoStep { step: 1 }));
        assert_eq!(push(u64::MAX, &[step]), Ok(0));
        assert_eq!(push(1, &[step]), Err(ProblemError::TotalOverflow { index: 1, size: 1 }));
        assert_eq!(streams.finish().unwrap().len(), 1);
    }

    #[test]
    fn too_many_pairs_are_refused() {
        let mut streams = ConcurrentBuilder::new(2);
        for stream in [0, 1] {
            for _ in 0..2100 {
                let step = streams.step(stream, &[]).unwrap();
                streams.push("", 1, Alignment::ONE, &[step]).unwrap();
            }
        }
        assert_eq!(streams.finish(), Err(ProblemError::TooManyPairs { limit: MAX_PAIRS }));
    }
}
