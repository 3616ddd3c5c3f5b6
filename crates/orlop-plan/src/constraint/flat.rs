//! Problems without parts and reserved ranges, which planners solve.

use super::used::used_layers;
use super::{BlockLimit, InterruptedLifetimes, merged, occupied};
use crate::buffer::{alignment_bytes, round_up};
use crate::first_fit::UNPLACED;
use crate::normal::Normal;
use crate::{Buffer, Problem};
use orlop_core::Alignment;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

/// The number of parts of a buffer up to which a bound depends on where each is.
const MAX_PIECES: usize = 64;

/// A problem without parts and reserved ranges.
#[derive(Debug)]
pub(crate) struct FlatProblem<'a> {
    pub(crate) problem: Cow<'a, Problem>,
    /// By buffer, its fixed offset, or [`UNPLACED`]. Empty if none is fixed.
    pub(crate) fixed: Vec<u64>,
    /// The number of buffers of the problem. Those behind are reserved ranges.
    pub(crate) real: usize,
    pub(crate) interrupted: InterruptedLifetimes,
    /// Pairs of buffers that may not share bytes, whenever they are live.
    pub(crate) exclusions: Vec<(usize, usize)>,
    pub(crate) block_limit: BlockLimit,
    /// Whether plans for this problem and for the original one are the same.
    pub(crate) is_exact: bool,
}

impl<'a> FlatProblem<'a> {
    fn unchanged(problem: &'a Problem) -> Self {
        Self::new(Cow::Borrowed(problem), Vec::new(), problem.len())
    }

    /// Creates a problem whose buffers are live for all of their lifetimes.
    fn new(problem: Cow<'a, Problem>, fixed: Vec<u64>, real: usize) -> Self {
        Self {
            problem,
            fixed,
            real,
            interrupted: InterruptedLifetimes::default(),
            exclusions: Vec::new(),
            block_limit: BlockLimit::NONE,
            is_exact: true,
        }
    }

    /// Returns a problem whose plans are plans of this one: a buffer with parts has all of its bytes from the
    /// start of the first to the end of the last. Buffers keep their indices, and parts have no bytes.
    pub(crate) fn restricted(problem: &'a Problem) -> Self {
        let constraints = &problem.constraints;
        if constraints.is_empty() {
            return Self::unchanged(problem);
        }
        let mut buffers = problem.buffers().to_vec();
        for &part in constraints.parts.keys() {
            buffers[part].size = 0;
        }
        for (&whole, &with_parts) in &constraints.wholes {
            buffers[whole] = with_parts;
        }
        let interrupted = InterruptedLifetimes::new(problem);
        let mut fixed = vec![UNPLACED; buffers.len()];
        for (&index, &offset) in &constraints.fixed {
            fixed[index] = offset;
        }
        let is_exact = members(problem).into_iter().all(|(whole, parts)| {
            let all = &constraints.wholes[&whole];
            if parts.len() > MAX_PIECES {
                return used_layers(problem, whole, &parts, 1) == [(all.start..all.end, all.size)];
            }
            let used = occupied(problem, whole, &parts);
            matches!(&used[..], [used] if used.time == (all.start..all.end) && used.bytes == (0..all.size))
        });
        Self {
            is_exact: is_exact && constraints.gaps.is_empty(),
            interrupted,
            exclusions: constraints.excluded_roots().collect(),
            block_limit: constraints.block_limit,
            ..Self::with_reserved(problem, buffers, fixed)
        }
    }

    /// Returns a problem that has plans at least as low as those of this one: what buffers with parts occupy
    /// over time, and a buffer with gaps at each of the times, may be at different offsets, all in one block.
    pub(crate) fn relaxed(problem: &'a Problem) -> Self {
        Self::relaxed_to(problem, alignment_bytes(granule(problem)))
    }

    /// Returns the relaxed problem with the exact number of live bytes at each time.
    pub(crate) fn live(problem: &'a Problem) -> Self {
        Self::relaxed_to(problem, 1)
    }

    /// Returns the relaxed problem, in which the numbers of bytes of many parts are rounded down.
    fn relaxed_to(problem: &'a Problem, rounding: u64) -> Self {
        let constraints = &problem.constraints;
        if constraints.is_empty() {
            return Self::unchanged(problem);
        }
        let (mut buffers, mut fixed) = (Vec::new(), Vec::new());
        let groups = members(problem);
        for (index, &buffer) in problem.buffers().iter().enumerate() {
            if !groups.contains_key(&index) && !constraints.parts.contains_key(&index) {
                for Range { start, end } in problem.lifetimes(index) {
                    buffers.push(Buffer { start, end, ..buffer });
                    fixed.push(problem.fixed_offset(index).unwrap_or(UNPLACED));
                }
            }
        }
        let granule = granule(problem);
        for (whole, parts) in groups {
            if parts.len() > MAX_PIECES {
                // With this many parts, only the number of used bytes is kept, not where they are.
                for (Range { start, end }, size) in used_layers(problem, whole, &parts, rounding) {
                    buffers.push(Buffer::unaligned(start..end, size).aligned(granule));
                    fixed.push(UNPLACED);
                }
                continue;
            }
            let offset = problem.fixed_offset(whole);
            for used in occupied(problem, whole, &parts) {
                let size = used.bytes.end - used.bytes.start;
                buffers.push(Buffer::unaligned(used.time, size).aligned(granule));
                fixed.push(offset.map_or(UNPLACED, |offset| offset + used.bytes.start));
            }
        }
        Self { is_exact: false, ..Self::with_reserved(problem, buffers, fixed) }
    }

    /// Returns the normal form of this problem, which restricts `problem`, and the lower bound of all plans
    /// of that.
    pub(crate) fn normal(&self, problem: &Problem) -> (Normal, u64) {
        let mut normal = Normal::of_flat(self);
        let bound = if self.is_exact { normal.lower_bound } else { problem.lower_bound() };
        if normal.has_gaps() {
            // Its load is that of lifetimes without gaps.
            normal.lower_bound = bound;
        }
        (normal, bound)
    }

    /// Adds the reserved ranges. What is behind one begins at a multiple of the smallest alignment.
    fn with_reserved(problem: &Problem, mut buffers: Vec<Buffer>, mut fixed: Vec<u64>) -> Self {
        let real = buffers.len();
        let granule = granule(problem);
        let used = || buffers.iter().filter(|buffer| buffer.size > 0);
        let lifetime = used().map(|buffer| buffer.start).min().zip(used().map(|buffer| buffer.end).max());
        let reserved = problem.reserved().iter();
        let reserved =
            merged(reserved.map(|it| it.start..round_up(it.end, alignment_bytes(granule))).collect());
        if let Some((start, end)) = lifetime {
            for range in reserved {
                buffers.push(Buffer::unaligned(start..end, range.end - range.start).aligned(granule));
                fixed.push(range.start);
            }
        }
        if fixed.iter().all(|&offset| offset == UNPLACED) {
            fixed.clear();
        }
        Self::new(Cow::Owned(Problem::of_buffers(buffers)), fixed, real)
    }
}

/// Returns the parts of each buffer that has some.
pub(super) fn members(problem: &Problem) -> BTreeMap<usize, Vec<(usize, u64)>> {
    let mut members: BTreeMap<usize, Vec<(usize, u64)>> = BTreeMap::new();
    for (&part, &(whole, offset)) in &problem.constraints.parts {
        members.entry(whole).or_default().push((part, offset));
    }
    members
}

/// Returns the smallest alignment of buffers with bytes.
fn granule(problem: &Problem) -> Alignment {
    let buffers = problem.buffers().iter().filter(|buffer| buffer.size > 0);
    buffers.map(|buffer| buffer.alignment).min().unwrap_or(Alignment::ONE)
}
