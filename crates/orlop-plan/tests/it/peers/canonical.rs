//! minimalloc's search (Moffitt, "MiniMalloc", ASPLOS 2023): buffers are placed in order of their offsets,
//! each on the floor or on another one.
//!
//! It searches a plan below a capacity. Here, capacities are from bisection between the load and the plan of
//! greedy by size, each with half of the time that is left.

use super::{Conflicts, Limit, Packing, first_fit};
use std::cmp::Reverse;
use std::time::Instant;

/// The thousands of nodes that an order has in its first turn.
const FIRST_TURN: u64 = 4;

pub(super) fn plan(conflicts: &Conflicts<'_>, limit: Limit) -> Packing {
    let mut best = first_fit::greedy_by_size(conflicts);
    let mut lowest = conflicts.problem.lower_bound();
    let mut steps = limit.steps;
    while lowest < best.0 && steps > 0 && !limit.is_over() {
        let capacity = lowest + (best.0 - 1 - lowest) / 2;
        let now = Instant::now();
        let until = limit.until.map(|until| now + until.saturating_duration_since(now) / 2);
        let share = Limit { steps: steps.div_ceil(2), until };
        steps -= share.steps;
        match below(conflicts, capacity, share) {
            Some(found) => best = found,
            None => lowest = capacity + 1,
        }
    }
    best
}

/// Searches a plan below a capacity, with one order after the other.
fn below(conflicts: &Conflicts<'_>, capacity: u64, limit: Limit) -> Option<Packing> {
    let sections = Sections::new(conflicts);
    let orders: Vec<Vec<usize>> = (0..3).map(|kind| sections.order(conflicts, kind)).collect();
    let (mut turn, mut left) = (FIRST_TURN, limit.steps);
    while left > 0 && !limit.is_over() {
        for order in &orders {
            let nodes = turn.min(left);
            left -= nodes;
            match Search::new(conflicts, &sections, order, capacity).run(nodes * 1000, limit) {
                Outcome::Found(packing) => return Some(packing),
                Outcome::None => return None,
                Outcome::Limit => {}
            }
        }
        turn *= 2;
    }
    None
}

enum Outcome {
    Found(Packing),
    None,
    Limit,
}

/// The times at which the set of live buffers changes.
struct Sections {
    /// By buffer.
    spans: Vec<(usize, usize)>,
    totals: Vec<u64>,
}

impl Sections {
    fn new(conflicts: &Conflicts<'_>) -> Self {
        let buffers = conflicts.problem.buffers();
        let mut times: Vec<u64> = buffers.iter().flat_map(|buffer| [buffer.start, buffer.end]).collect();
        times.sort_unstable();
        times.dedup();
        let section = |time| times.partition_point(|&at| at < time);
        let spans: Vec<_> =
            buffers.iter().map(|buffer| (section(buffer.start), section(buffer.end))).collect();
        let mut totals = vec![0; times.len()];
        for (&(first, behind), buffer) in spans.iter().zip(buffers) {
            totals[first..behind].iter_mut().for_each(|total| *total += buffer.size);
        }
        Self { spans, totals }
    }

    /// Returns an order by length, area or load, with the others as ties.
    fn order(&self, conflicts: &Conflicts<'_>, kind: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..conflicts.len()).filter(|&index| conflicts.size(index) > 0).collect();
        order.sort_by_cached_key(|&index| {
            let (first, behind) = self.spans[index];
            let buffer = &conflicts.problem.buffers()[index];
            let length = u128::from(buffer.end - buffer.start);
            let load = self.totals[first..behind].iter().max().copied().unwrap_or(0);
            let mut keys = [length, length * u128::from(buffer.size), u128::from(load)];
            keys.rotate_left(kind);
            Reverse(keys)
        });
        order
    }
}

/// A search with one order.
struct Search<'a> {
    conflicts: &'a Conflicts<'a>,
    sections: &'a Sections,
    order: &'a [usize],
    capacity: u64,
    min_offsets: Vec<u64>,
    is_placed: Vec<bool>,
    /// By section, the bytes that are not placed.
    totals: Vec<u64>,
}

/// A buffer that was placed, with what the others had before, and the alternatives.
struct Level {
    candidates: std::vec::IntoIter<(u64, usize)>,
    placed: Option<usize>,
    undo: Vec<(usize, u64)>,
}

impl<'a> Search<'a> {
    fn new(conflicts: &'a Conflicts<'a>, sections: &'a Sections, order: &'a [usize], capacity: u64) -> Self {
        let count = conflicts.len();
        Self {
            conflicts,
            sections,
            order,
            capacity,
            min_offsets: vec![0; count],
            is_placed: vec![false; count],
            totals: sections.totals.clone(),
        }
    }

    fn run(mut self, nodes: u64, limit: Limit) -> Outcome {
        let mut levels = vec![self.level(0)];
        for node in 0..nodes {
            if node % 64 == 0 && limit.is_over() {
                return Outcome::Limit;
            }
            let Some(mut level) = levels.pop() else { return Outcome::None };
            self.take_back(&mut level);
            let Some((offset, index)) = level.candidates.next() else { continue };
            let fits = self.put(index, offset, &mut level);
            levels.push(level);
            if levels.len() == self.order.len() {
                if fits {
                    let ends =
                        self.order.iter().map(|&index| self.min_offsets[index] + self.conflicts.size(index));
                    return Outcome::Found((ends.max().unwrap_or(0), self.min_offsets));
                }
            } else if fits && self.is_possible(offset) {
                levels.push(self.level(offset));
            }
        }
        Outcome::Limit
    }

    /// Returns the buffers that can be next, above those before.
    fn level(&self, last: u64) -> Level {
        let unplaced = || self.order.iter().copied().filter(|&index| !self.is_placed[index]);
        let offset = |index: usize| self.conflicts.round_up(index, self.min_offsets[index].max(last));
        // Otherwise that buffer could be below.
        let end = unplaced().map(|index| offset(index) + self.conflicts.size(index)).min().unwrap_or(0);
        let resting = unplaced().filter(|&index| self.min_offsets[index] >= last);
        let mut candidates: Vec<_> = resting
            .map(|index| (self.min_offsets[index], index))
            .filter(|&(offset, _)| offset < end)
            .collect();
        candidates.sort_by_key(|&(offset, _)| offset);
        Level { candidates: candidates.into_iter(), placed: None, undo: Vec::new() }
    }

    /// Places a buffer. Returns `false` if another one is above the capacity then.
    fn put(&mut self, index: usize, offset: u64, level: &mut Level) -> bool {
        self.is_placed[index] = true;
        level.placed = Some(index);
        let end = offset + self.conflicts.size(index);
        let (first, behind) = self.sections.spans[index];
        self.totals[first..behind].iter_mut().for_each(|total| *total -= self.conflicts.size(index));
        let mut fits = end <= self.capacity;
        for other in self.conflicts.of(index) {
            if !self.is_placed[other] && self.min_offsets[other] < end {
                level.undo.push((other, self.min_offsets[other]));
                self.min_offsets[other] = self.conflicts.round_up(other, end);
                fits &= self.min_offsets[other] + self.conflicts.size(other) <= self.capacity;
            }
        }
        fits
    }

    fn take_back(&mut self, level: &mut Level) {
        for (other, offset) in level.undo.drain(..) {
            self.min_offsets[other] = offset;
        }
        if let Some(index) = level.placed.take() {
            self.is_placed[index] = false;
            let (first, behind) = self.sections.spans[index];
            self.totals[first..behind].iter_mut().for_each(|total| *total += self.conflicts.size(index));
        }
    }

    /// Returns `false` if the buffers of a section cannot all be above its floor and below the capacity.
    fn is_possible(&self, last: u64) -> bool {
        let mut floors = vec![u64::MAX; self.totals.len()];
        for &index in self.order.iter().filter(|&&index| !self.is_placed[index]) {
            let offset = self.min_offsets[index].max(last);
            let (first, behind) = self.sections.spans[index];
            floors[first..behind].iter_mut().for_each(|floor| *floor = offset.min(*floor));
        }
        floors.iter().zip(&self.totals).all(|(&floor, &total)| total == 0 || floor + total <= self.capacity)
    }
}
