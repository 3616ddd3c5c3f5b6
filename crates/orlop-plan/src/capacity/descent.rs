//! One search at one capacity.

use super::Neighbors;
use super::space::Space;
use super::weights::{ConflictWeights, FRACTION};
use crate::normal::Normal;
use std::ops::Range;
use std::sync::Arc;

/// The number of bits of a capacity in units.
const MAX_UNIT_BITS: u32 = 30;

/// The number of candidates that weigh as much as slack of the whole capacity.
const SLACK: u64 = 40;

/// The end of a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DescentOutcome {
    /// The offsets, by span.
    Found(Vec<u64>),
    /// It has tried everything that it tries.
    Exhausted,
    /// It can go on.
    Interrupted,
}

/// How the section is selected that a decision is about. Candidates are the spans that can be placed in it
/// next, slack are the bytes that it can leave free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    /// One without slack, or else the one with the fewest candidates.
    Candidates,
    /// One without slack; then the one with the fewest candidates for its weight.
    WeightedCandidates,
    /// The one with the fewest candidates, and the least slack, for its weight.
    WeightedSlack,
}

/// Spans that can be placed without regard to the others that are left.
#[derive(Debug)]
struct Part {
    sections: Range<usize>,
    spans: Vec<u32>,
}

/// A decision, or parts that it has made independent.
#[derive(Debug)]
enum Frame {
    Decision { part: Arc<Part>, mark: usize, span: usize },
    Parts { waiting: Vec<Arc<Part>> },
}

/// What can be done in a part.
enum Propagation {
    /// All its spans are placed.
    Complete,
    /// Its spans do not fit.
    DeadEnd,
    /// Some of so many spans can be placed at this offset; none can be lower.
    Level { level: u64, unplaced: usize },
}

/// A search for a plan of a height.
#[derive(Debug)]
pub(crate) struct Descent<'a> {
    space: Space<'a>,
    /// By span. The smallest is tried first.
    ranks: Vec<u32>,
    selection: Selection,
    capacity: u64,
    /// The capacity, rounded up as sizes are.
    rounded: u64,
    /// Sums are in units of two to this power, of which a capacity has less than 2^30. Where that is not
    /// exact, sizes and offsets are rounded down, so that no plan is missed.
    unit_log2: u32,
    /// By span, its rounded size in units.
    units: Vec<i32>,
    stack: Vec<Frame>,
    /// What to go on with. `None` if all is placed.
    next: Option<Arc<Part>>,
    /// By section: units, or candidates.
    sums: Vec<i32>,
    /// Lowest offsets in units, and spans, in one number.
    sorted: Vec<u64>,
    work: u64,
}

impl<'a> Descent<'a> {
    /// Prepares for searches.
    pub(crate) fn new(normal: &'a Normal, neighbors: &'a Neighbors) -> Self {
        Self {
            space: Space::new(normal, neighbors),
            ranks: Vec::new(),
            selection: Selection::Candidates,
            capacity: 0,
            rounded: 0,
            unit_log2: 0,
            units: Vec::new(),
            stack: Vec::new(),
            next: None,
            sums: vec![0; normal.load.len()],
            sorted: Vec::new(),
            work: 0,
        }
    }

    /// Begins a search for a plan up to `capacity`. Of the spans to choose from, the one with the smallest
    /// rank is tried first.
    pub(crate) fn begin(&mut self, ranks: Vec<u32>, selection: Selection, capacity: u64) {
        let normal = self.space.normal;
        self.space.undo(0);
        self.stack.clear();
        (self.ranks, self.selection, self.capacity) = (ranks, selection, capacity);
        self.rounded = normal.rounded_up(capacity);
        let bits = u64::BITS - self.rounded.max(normal.lower_bound).leading_zeros();
        self.unit_log2 = normal.unit().trailing_zeros().max(bits.saturating_sub(MAX_UNIT_BITS));
        self.units = self.space.sizes.iter().map(|size| in_units(*size, self.unit_log2)).collect();
        let all = Part { sections: 0..self.sums.len(), spans: (0..).take(self.ranks.len()).collect() };
        let waiting = self.divide(&all);
        self.stack.push(Frame::Parts { waiting });
        self.next = self.next_part();
    }

    /// Goes on with the search until `may_continue`, which gets the work of each step, returns `false`. What
    /// ends at a conflict weighs more afterwards.
    pub(crate) fn run(
        &mut self,
        weights: &mut ConflictWeights,
        mut may_continue: impl FnMut(u64) -> bool,
    ) -> DescentOutcome {
        while let Some(part) = self.next.take() {
            self.next = match self.propagate(&part, weights) {
                Propagation::Level { level, unplaced } => Some(self.decide(part, level, unplaced, weights)),
                Propagation::DeadEnd => match self.backtrack() {
                    None => return DescentOutcome::Exhausted,
                    next => next,
                },
                Propagation::Complete => self.next_part(),
            };
            if !may_continue(std::mem::take(&mut self.work)) && self.next.is_some() {
                return DescentOutcome::Interrupted;
            }
        }
        DescentOutcome::Found(self.space.offsets().to_vec())
    }

    /// Raises the lowest offsets of spans that cannot rest on anything there, and checks that all fit.
    fn propagate(&mut self, part: &Part, weights: &mut ConflictWeights) -> Propagation {
        loop {
            if !self.fits(part, weights) {
                return Propagation::DeadEnd;
            }
            self.work += part.spans.len() as u64;
            let unplaced = || part.spans.iter().map(|&span| span as usize);
            let unplaced = || unplaced().filter(|&span| !self.space.is_placed(span));
            let (mut count, mut level) = (0, u64::MAX);
            for span in unplaced() {
                (count, level) = (count + 1, level.min(self.space.lowest(span)));
            }
            if count == 0 {
                return Propagation::Complete;
            }
            let at_level = unplaced().filter(|&span| self.space.lowest(span) == level);
            let in_air: Vec<usize> = at_level.filter(|&span| !self.space.is_supported(span)).collect();
            if in_air.is_empty() {
                return Propagation::Level { level, unplaced: count };
            }
            for span in in_air {
                self.work += self.space.neighbors.of(span).len() as u64;
                let Some(lowest) = self.space.next_support(span) else { return Propagation::DeadEnd };
                self.space.raise(span, lowest);
            }
        }
    }

    /// Returns `true` if, in each section, the spans from any offset up fit below the capacity: those that
    /// cannot be lower, one above the other.
    fn fits(&mut self, part: &Part, weights: &mut ConflictWeights) -> bool {
        let changed = self.space.take_changed();
        let checked = changed.start.max(part.sections.start)..changed.end.min(part.sections.end);
        if checked.is_empty() {
            return true;
        }
        self.sorted.clear();
        self.work += (checked.len() + part.spans.len()) as u64;
        for &span in &part.spans {
            let sections = self.space.sections(span as usize);
            if sections.start < checked.end
                && checked.start < sections.end
                && !self.space.is_placed(span as usize)
            {
                let lowest = self.space.lowest(span as usize);
                if lowest.saturating_add(self.space.normal.spans[span as usize].size) > self.capacity {
                    weights.add_span(span as usize);
                    return false;
                }
                self.sorted.push(pack(lowest >> self.unit_log2, span));
            }
        }
        self.sorted.sort_unstable_by(|one, other| other.cmp(one));
        self.work += 4 * self.sorted.len() as u64;
        self.sums[checked.clone()].fill(0);
        let top = in_units(self.rounded, self.unit_log2);
        for &key in &self.sorted {
            let (lowest, span) = unpack(key);
            let sections = self.space.sections(span);
            let sections = sections.start.max(checked.start)..sections.end.min(checked.end);
            let (room, size) = (top - lowest, self.units[span]);
            self.work += sections.len() as u64;
            let mut is_over = false;
            for sum in &mut self.sums[sections.clone()] {
                *sum += size;
                is_over |= *sum > room;
            }
            if is_over {
                weights.add_span(span);
                let sums = &self.sums;
                sections
                    .filter(|&section| sums[section] > room)
                    .for_each(|section| weights.add_section(section));
                return false;
            }
        }
        true
    }

    /// Places a span at `level` and returns the part to go on with.
    fn decide(
        &mut self,
        part: Arc<Part>,
        level: u64,
        unplaced: usize,
        weights: &ConflictWeights,
    ) -> Arc<Part> {
        let span = self.select(&part, level, weights);
        let mark = self.space.mark();
        self.work += self.space.neighbors.of(span).len() as u64;
        self.space.place(span);
        let sections = self.space.sections(span);
        self.stack.push(Frame::Decision { part: Arc::clone(&part), mark, span });
        if !(sections.start..sections.end - 1).any(|section| self.space.is_border(section)) {
            return if 4 * unplaced > 3 * part.spans.len() { part } else { self.without_placed(&part) };
        }
        let mut waiting = self.divide(&part);
        let Some(next) = waiting.pop() else { return part };
        self.stack.push(Frame::Parts { waiting });
        self.enter(next)
    }

    /// Returns a part without the spans that are placed: what a step does is in proportion to the others.
    fn without_placed(&mut self, part: &Part) -> Arc<Part> {
        let unplaced = |span: &&u32| !self.space.is_placed(**span as usize);
        let spans = part.spans.iter().filter(unplaced).copied().collect();
        self.work += part.spans.len() as u64;
        Arc::new(Part { sections: part.sections.clone(), spans })
    }

    /// Begins a part, of which nothing has been checked.
    fn enter(&mut self, part: Arc<Part>) -> Arc<Part> {
        self.space.change_all(part.sections.clone());
        part
    }

    /// Selects the span to place: the best of the section that is selected.
    fn select(&mut self, part: &Part, level: u64, weights: &ConflictWeights) -> usize {
        let space = &self.space;
        let is_candidate = |&span: &usize| !space.is_placed(span) && space.lowest(span) == level;
        let candidates = || part.spans.iter().map(|&span| span as usize).filter(is_candidate);
        self.sums[part.sections.clone()].fill(0);
        for span in candidates() {
            self.sums[space.sections(span)].iter_mut().for_each(|count| *count += 1);
        }
        let top = u64::from(in_units(self.rounded, self.unit_log2).unsigned_abs());
        let key = |&section: &usize| {
            let slack = (self.rounded - level).saturating_sub(space.left(section));
            let (has_slack, count) = (slack > 0, u64::from(self.sums[section].unsigned_abs()));
            match self.selection {
                Selection::Candidates => (has_slack, count, slack),
                Selection::WeightedCandidates => {
                    (has_slack, weights.per_weight(count << FRACTION, section), slack)
                }
                Selection::WeightedSlack => {
                    let part_of_top = ((slack >> self.unit_log2) << FRACTION) / top.max(1);
                    let rest = if has_slack { (1 << FRACTION) + SLACK * part_of_top } else { 0 };
                    (false, weights.per_weight((count << FRACTION) + rest, section), slack)
                }
            }
        };
        let section = part.sections.clone().filter(|&section| self.sums[section] > 0).min_by_key(key);
        self.work += 2 * (part.sections.len() + part.spans.len()) as u64;
        let inside = |&span: &usize| section.is_some_and(|section| space.sections(span).contains(&section));
        // A level is the lowest offset of at least one span.
        candidates().filter(inside).min_by_key(|&span| self.ranks[span]).unwrap_or(0)
    }

    /// Divides a part where no span that is left reaches across.
    fn divide(&mut self, part: &Part) -> Vec<Arc<Part>> {
        let mut parts: Vec<Part> = Vec::new();
        let mut start = part.sections.start;
        for section in part.sections.clone() {
            if section + 1 == part.sections.end || self.space.is_border(section) {
                parts.push(Part { sections: start..section + 1, spans: Vec::new() });
                start = section + 1;
            }
        }
        for &span in part.spans.iter().filter(|&&span| !self.space.is_placed(span as usize)) {
            let first = self.space.sections(span as usize).start;
            let index = parts.partition_point(|part| part.sections.end <= first);
            parts[index].spans.push(span);
        }
        self.work += (part.sections.len() + part.spans.len()) as u64;
        parts.into_iter().filter(|part| !part.spans.is_empty()).map(Arc::new).collect()
    }

    /// Undoes the last decision that has an alternative, and returns its part.
    fn backtrack(&mut self) -> Option<Arc<Part>> {
        loop {
            if let Frame::Decision { part, mark, span } = self.stack.pop()? {
                self.space.undo(mark);
                if self.exclude(span) {
                    return Some(part);
                }
            }
        }
    }

    /// Moves a span, and those like it, to the next offset at which they could rest on a neighbour. Returns
    /// `false` if there is none.
    fn exclude(&mut self, span: usize) -> bool {
        let level = self.space.lowest(span);
        let normal = self.space.normal;
        let neighbors = self.space.neighbors;
        let like = |other: &usize| normal.spans[*other].is_like(&normal.spans[span]);
        let others = neighbors.of(span).iter().map(|&other| other as usize).filter(like);
        for other in std::iter::once(span).chain(others) {
            if self.space.is_placed(other) || self.space.lowest(other) != level {
                continue;
            }
            self.work += neighbors.of(other).len() as u64;
            match self.space.next_support(other) {
                Some(lowest) => self.space.raise(other, lowest),
                None => return false,
            }
        }
        true
    }

    /// Returns the next part that waits, once one is complete. `None` if all are.
    fn next_part(&mut self) -> Option<Arc<Part>> {
        loop {
            match self.stack.last_mut()? {
                Frame::Parts { waiting } => match waiting.pop() {
                    Some(next) => return Some(self.enter(next)),
                    None => drop(self.stack.pop()),
                },
                // It stands: other parts do not depend on it.
                Frame::Decision { .. } => drop(self.stack.pop()),
            }
        }
    }
}

/// Returns a number of bytes in units of two to the power `unit_log2`, rounded down.
fn in_units(bytes: u64, unit_log2: u32) -> i32 {
    i32::try_from(bytes >> unit_log2).unwrap_or(i32::MAX)
}

/// Packs an offset in units and a span into a key, in the order of the offsets.
fn pack(lowest: u64, span: u32) -> u64 {
    (lowest << u32::BITS) | u64::from(span)
}

/// Returns the offset and the span of a key.
#[expect(clippy::cast_possible_truncation, reason = "both halves were packed")]
fn unpack(key: u64) -> (i32, usize) {
    ((key >> u32::BITS) as i32, key as u32 as usize)
}
