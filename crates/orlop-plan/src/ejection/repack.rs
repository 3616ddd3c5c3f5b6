//! The search of one region below one capacity.

use super::from_peak::SearchStart;
use super::region::{Borders, Region};
use crate::Problem;
use crate::constraint::BlockLimit;
use crate::first_fit::{PlacedInterval, UNPLACED, collect_placed, find_hole, for_each_hole};
use crate::live::LiveIndex;
use crate::normal::{Normal, SectionSpan};
use crate::planner::{Fit, Keys, Stop};
use orlop_core::SplitMix64;
use std::sync::Arc;

/// The number of neighbours that are moved after an ejection.
const MOVES: usize = 3;

/// One step in this many continues with another span than the one that was ejected last.
const SWAP_ONE_IN: usize = 4;

/// The work of packing the peak of a region, for each step of a span.
const PEAK_WORK: u64 = 1 << 23;

/// The largest cost of a span that has not failed yet. All costs are whole, so that sums are exact.
const MAX_COST: f64 = (1 << 22) as f64;

/// The largest factor by which failures raise a cost.
const MAX_FAILS: f64 = (1 << 16) as f64;

/// What all attempts share.
#[derive(Debug)]
pub(super) struct RepackData<'a> {
    pub(super) normal: &'a Normal,
    pub(super) problem: &'a Problem,
    /// Whether spans may be anywhere, and have no gaps.
    pub(super) is_free: bool,
    pub(super) live: &'a LiveIndex,
    pub(super) borders: Borders<'a>,
    /// By span, its area relative to the largest.
    costs: Vec<f64>,
    /// Heights that differ by less than this are not told apart.
    pub(super) unit: u64,
}

impl<'a> RepackData<'a> {
    pub(super) fn new(normal: &'a Normal, live: &'a LiveIndex, keys: &Keys<'a>) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "costs are relative")]
        let area = |number: usize| keys.width(number) as f64 * normal.spans[number].size as f64;
        let areas: Vec<f64> = (0..normal.spans.len()).map(area).collect();
        let max = areas.iter().copied().fold(1.0, f64::max);
        let costs = areas.iter().map(|area| (area / max * MAX_COST).ceil()).collect();
        let is_free = normal.is_free() && !normal.has_gaps();
        Self {
            normal,
            problem: keys.problem(),
            is_free,
            borders: Borders::new(normal),
            live,
            costs,
            unit: normal.unit(),
        }
    }

    /// Returns the work of packing the peak of a region, in an attempt of so many steps.
    fn peak_work(&self, steps: usize, region: &Region) -> u64 {
        PEAK_WORK * (steps / self.borders.core_spans(region).max(1)) as u64
    }
}

/// The state of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RepackState {
    Running,
    /// All spans of the region end below the capacity.
    Complete,
    /// It was given up.
    Failed,
}

/// A search.
#[derive(Debug)]
pub(super) struct Repack<'a> {
    pub(super) normal: &'a Normal,
    region: Region,
    capacity: u64,
    /// Where it begins, until it has.
    start: Option<SearchStart>,
    /// The offsets of all spans when the attempt began.
    base: Arc<Vec<u64>>,
    /// The offsets of the region's spans.
    offsets: Vec<u64>,
    /// By span of the region, the number of times that it did not fit.
    fails: Vec<f64>,
    /// The spans that are not placed.
    pub(super) pool: Vec<u32>,
    steps: usize,
    random: SplitMix64,
    state: RepackState,
    pub(super) work: u64,
    scratch: Scratch,
}

/// Buffers that steps reuse.
#[derive(Debug, Default)]
struct Scratch {
    placed: Vec<PlacedInterval>,
    /// Ends and costs.
    ends: Vec<(u64, Option<f64>)>,
    /// The ends of holes.
    hole_ends: Vec<u64>,
}

impl<'a> Repack<'a> {
    pub(super) fn new(
        data: &RepackData<'a>,
        region: Region,
        base: Arc<Vec<u64>>,
        (capacity, steps): (u64, usize),
        (start, seed): (SearchStart, u64),
    ) -> Self {
        let spans = region.spans.start as usize..region.spans.end as usize;
        let (offsets, fails) = (base[spans.clone()].to_vec(), vec![1.0; spans.len()]);
        let mut repack = Self {
            normal: data.normal,
            region,
            capacity,
            start: Some(start),
            base,
            offsets,
            fails,
            pool: Vec::new(),
            steps,
            random: SplitMix64::new(seed),
            state: RepackState::Running,
            work: 0,
            scratch: Scratch::default(),
        };
        for span in repack.region.spans.clone() {
            let offset = repack.offset(span as usize);
            if data.normal.end(repack.span(span), offset) <= capacity {
                continue;
            }
            if repack.is_movable(span as usize) {
                repack.pool.push(span);
                repack.set(span as usize, UNPLACED);
            } else {
                repack.state = RepackState::Failed;
            }
        }
        repack
    }

    /// Prepares the first step.
    fn begin(&mut self, data: &RepackData<'_>, start: SearchStart, max_work: u64, stop: &Stop<'_>) {
        if let SearchStart::Peak(count) = start
            && data.is_free
        {
            let effort = (data.peak_work(self.steps, &self.region).min(max_work), self.random.next_u64());
            self.place_from_peak(data, count, effort, stop);
        }
        for index in (1..self.pool.len()).rev() {
            let other = self.random.below(index + 1);
            self.pool.swap(index, other);
        }
    }

    pub(super) fn state(&self) -> RepackState {
        self.state
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    pub(super) fn base(&self) -> &Vec<u64> {
        &self.base
    }

    /// Writes the offsets of the region's spans.
    pub(super) fn store(&self, offsets: &mut [u64]) {
        let first = self.region.spans.start as usize;
        offsets[first..first + self.offsets.len()].copy_from_slice(&self.offsets);
    }

    pub(super) fn span(&self, number: u32) -> &'a SectionSpan {
        &self.normal.spans[number as usize]
    }

    fn offset(&self, number: usize) -> u64 {
        let local = number.wrapping_sub(self.region.spans.start as usize);
        self.offsets.get(local).copied().unwrap_or_else(|| self.base[number])
    }

    pub(super) fn set(&mut self, number: usize, offset: u64) {
        self.offsets[number - self.region.spans.start as usize] = offset;
    }

    /// Returns where holes end.
    pub(super) fn space(&self) -> (u64, BlockLimit) {
        (self.capacity, self.normal.block_limit)
    }

    pub(super) fn is_movable(&self, number: usize) -> bool {
        let span = &self.normal.spans[number];
        let is_inside = self.region.sections.start <= span.first && span.behind <= self.region.sections.end;
        is_inside && !self.normal.is_fixed(number)
    }

    /// Returns the cost of an ejection; `None` for a span that does not move.
    fn cost(&self, data: &RepackData<'_>, number: usize) -> Option<f64> {
        let fails = || self.fails[number - self.region.spans.start as usize];
        self.is_movable(number).then(|| data.costs[number] * fails())
    }

    /// Continues for `work`, and returns the work done. To begin may take more, but at most `max_begin`.
    pub(super) fn run(
        &mut self,
        data: &RepackData<'_>,
        (work, max_begin): (u64, u64),
        stop: &Stop<'_>,
    ) -> u64 {
        self.work = 0;
        if let Some(start) = self.start.take() {
            self.begin(data, start, max_begin, stop);
        }
        while self.state == RepackState::Running && self.work < work && !stop.is_due() {
            let Some(number) = self.pool.pop() else {
                self.state = RepackState::Complete;
                break;
            };
            let is_placed = self.place(data, number, stop);
            if !is_placed || self.steps == 0 {
                self.state = RepackState::Failed;
                break;
            }
            self.steps -= 1;
        }
        self.work
    }

    /// Collects the placed neighbours of a span, in order of offset.
    pub(super) fn collect(&mut self, data: &RepackData<'_>, number: usize) -> Vec<PlacedInterval> {
        let mut placed = std::mem::take(&mut self.scratch.placed);
        collect_placed(data.normal, data.live, number, |other| self.offset(other), &mut placed);
        self.work += 64 + 8 * placed.len() as u64;
        placed
    }

    /// Takes back what [`Self::collect`] returned.
    pub(super) fn reuse(&mut self, placed: Vec<PlacedInterval>) {
        self.scratch.placed = placed;
    }

    /// Places a span, and ejects what is in its way. Returns `false` if that cannot be moved.
    fn place(&mut self, data: &RepackData<'_>, number: u32, stop: &Stop<'_>) -> bool {
        let span = self.span(number);
        let placed = self.collect(data, number as usize);
        if let Some(offset) = find_hole(span, &placed, self.space(), Fit::Tightest) {
            self.set(number as usize, offset);
            self.scratch.placed = placed;
            return true;
        }
        let fails = &mut self.fails[(number - self.region.spans.start) as usize];
        *fails = (*fails + 1.0).min(MAX_FAILS);
        let Some(offset) = self.cheapest(data, span, &placed) else {
            self.scratch.placed = placed;
            return false;
        };
        let end = offset + self.normal.rounded(span);
        for other in placed.iter().filter(|other| other.offset < end && other.end > offset) {
            self.set(other.span as usize, UNPLACED);
            self.pool.push(other.span);
        }
        self.set(number as usize, offset);
        let neighbors: [Option<u32>; MOVES] = std::array::from_fn(|_| {
            let index = self.random.below(placed.len());
            placed.get(index).map(|other| other.span)
        });
        self.scratch.placed = placed;
        for other in neighbors.into_iter().flatten() {
            let is_placed = self.offset(other as usize) != UNPLACED;
            if is_placed && self.is_movable(other as usize) && !stop.is_due() {
                self.relocate(data, other);
            }
        }
        if self.pool.len() > 1 && self.random.below(SWAP_ONE_IN) == 0 {
            let (last, other) = (self.pool.len() - 1, self.random.below(self.pool.len()));
            self.pool.swap(last, other);
        }
        true
    }

    /// Returns the offset at which the placed neighbours in the way cost the least; `None` if at each there
    /// is one that does not move.
    fn cheapest(
        &mut self,
        data: &RepackData<'_>,
        span: &SectionSpan,
        placed: &[PlacedInterval],
    ) -> Option<u64> {
        let (rounded, blocks) = (self.normal.rounded(span), self.normal.block_limit);
        let highest = span.offset_below(self.capacity - span.size);
        let mut ends = std::mem::take(&mut self.scratch.ends);
        ends.clear();
        ends.extend(placed.iter().map(|other| (other.end, self.cost(data, other.span as usize))));
        ends.sort_unstable_by_key(|&(end, _)| end);
        self.work += 16 * placed.len() as u64;
        // The offsets at which the span rests on another one, and those at which another one rests on it:
        // both are in order.
        let (mut above, mut below) = (ends.iter().peekable(), placed.iter().peekable());
        let (mut begun, mut ended, mut index, mut end_index) = (0.0, 0.0, 0, 0);
        // Those in the way that do not move are counted apart: no sum of costs is as exact.
        let mut fixed = 0_usize;
        let (mut best, mut ties) = ((f64::INFINITY, None), 0);
        let mut next = Some(0);
        while let Some(offset) = next.filter(|&offset| offset <= highest) {
            // Without blocks there are at most two offsets for each neighbour, which are counted above.
            self.work += u64::from(blocks.is_some());
            while let Some(other) = placed.get(index).filter(|other| other.offset < offset + rounded) {
                match self.cost(data, other.span as usize) {
                    Some(cost) => begun += cost,
                    None => fixed += 1,
                }
                index += 1;
            }
            while let Some(&(_, cost)) = ends.get(end_index).filter(|&&(end, _)| end <= offset) {
                match cost {
                    Some(cost) => ended += cost,
                    None => fixed -= 1,
                }
                end_index += 1;
            }
            let cost: f64 = begun - ended;
            let is_possible = fixed == 0 && !blocks.divides(offset, span.size);
            if is_possible && cost < best.0 {
                (best, ties) = ((cost, Some(offset)), 1);
            } else if is_possible && cost <= best.0 {
                ties += 1;
                if self.random.below(ties) == 0 {
                    best.1 = Some(offset);
                }
            }
            let under =
                |other: &PlacedInterval| other.offset.checked_sub(rounded).map(|at| span.offset_below(at));
            while above.next_if(|&&(end, _)| span.offset_from(end) <= offset).is_some() {}
            while below.next_if(|other| under(other).is_none_or(|at| at <= offset)).is_some() {}
            let on_top = above.peek().map(|&&(end, _)| span.offset_from(end));
            let beside = on_top.into_iter().chain(below.peek().and_then(|other| under(other)));
            // Beside those that do not move there may be any number of borders: it is at the end of one that
            // the next offset is possible.
            let at_border = (fixed == 0).then(|| blocks.next_to_border(span, offset));
            let nearest = beside.chain(at_border.into_iter().flatten()).min();
            // The highest offset comes last.
            next = if offset == highest { None } else { Some(nearest.unwrap_or(highest).min(highest)) };
        }
        self.scratch.ends = ends;
        best.1
    }

    /// Moves a placed span to the lower or the upper end of any hole that fits.
    fn relocate(&mut self, data: &RepackData<'_>, number: u32) {
        let span = self.span(number);
        let before = self.offset(number as usize);
        self.set(number as usize, UNPLACED);
        let placed = self.collect(data, number as usize);
        let rounded = self.normal.rounded(span);
        let highest = span.offset_below(self.capacity - span.size);
        let mut ends = std::mem::take(&mut self.scratch.hole_ends);
        ends.clear();
        for_each_hole(span, &placed, self.space(), |offset, room| {
            let above = span.offset_below((offset + room).saturating_sub(rounded)).max(offset);
            ends.extend([offset, if offset + room == self.capacity { highest } else { above }]);
            true
        });
        let offset = ends.get(self.random.below(ends.len())).copied().unwrap_or(before);
        self.set(number as usize, offset);
        (self.scratch.hole_ends, self.scratch.placed) = (ends, placed);
    }
}
