//! The start of a search from the peak of a region, instead of from the plan so far.
//!
//! What is live while the load is high is packed first, without regard to the rest: a problem of its own,
//! which is small. Then what begins later is placed forwards in time, and what ends earlier backwards. Where
//! bytes are left free, the load is lower. The heuristic that does this for the whole problem leaves bytes
//! free at all peaks but one.

use super::repack::{Repack, RepackData};
use crate::first_fit::{UNPLACED, find_hole};
use crate::normal::SectionSpan;
use crate::planner::{Fit, Stop, plan_part};
use std::cmp::Reverse;
use std::ops::Range;

/// Where a search begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SearchStart {
    /// With the offsets of the plan so far.
    Plan,
    /// With what is live at the peak, and about as long as this number of spans begins.
    Peak(u32),
}

/// The number of spans up to which a region begins so. With more, it would take longer than an attempt.
const MAX_SPANS: usize = 1 << 13;

impl Repack<'_> {
    /// Places all spans that move, those at the peak first, unless they are not packed with an `effort`: work
    /// and a seed. Those that fit nowhere are left to the search.
    pub(super) fn place_from_peak(
        &mut self,
        data: &RepackData<'_>,
        count: u32,
        effort: (u64, u64),
        stop: &Stop<'_>,
    ) {
        let core = self.region().core.clone();
        let is_movable =
            |number: &u32| time(self.span(*number), &core) == 0 && self.is_movable(*number as usize);
        let mut movable: Vec<u32> = self.region().spans.clone().filter(is_movable).collect();
        if movable.len() > MAX_SPANS {
            return;
        }
        let window = self.peak(data, count);
        if window.is_empty() {
            return;
        }
        let at_peak = movable.iter().copied().filter(|&number| time(self.span(number), &window) == 0);
        let at_peak: Vec<u32> = at_peak.collect();
        let buffers = data.problem.buffers();
        let buffer = |&number: &u32| buffers[self.span(number).index as usize];
        let (packed, work) = plan_part(at_peak.iter().map(buffer).collect(), self.space().0, effort, stop);
        self.work += work;
        let Some(packed) = packed else { return };
        for &number in &movable {
            self.set(number as usize, UNPLACED);
        }
        self.pool.retain(|number| movable.binary_search(number).is_err());
        for (&number, &offset) in at_peak.iter().zip(&packed) {
            if stop.is_due() {
                self.pool.push(number);
                continue;
            }
            // What is beyond the core makes room.
            let end = offset + self.normal.rounded(self.span(number));
            let placed = self.collect(data, number as usize);
            for other in placed.iter().filter(|other| other.offset < end && offset < other.end) {
                if at_peak.binary_search(&other.span).is_err() {
                    self.set(other.span as usize, UNPLACED);
                    self.pool.push(other.span);
                }
            }
            self.reuse(placed);
            self.set(number as usize, offset);
        }
        movable.retain(|&number| time(self.span(number), &window) != 0);
        movable.sort_by_key(|&number| match time(self.span(number), &window) {
            1 => (1, Reverse(0), number),
            place => (place, Reverse(self.span(number).behind), 0),
        });
        for number in movable {
            if stop.is_due() {
                self.pool.push(number);
                continue;
            }
            let placed = self.collect(data, number as usize);
            match find_hole(self.span(number), &placed, self.space(), Fit::Tightest) {
                Some(offset) => self.set(number as usize, offset),
                None => self.pool.push(number),
            }
            self.reuse(placed);
        }
    }

    /// Returns the sections around the peak in which at least `count` spans begin. No span that does not move
    /// is live there, or together with what is live there.
    fn peak(&self, data: &RepackData<'_>, count: u32) -> Range<u32> {
        let sections = self.free_sections(data);
        let load = |section: u32| self.normal.load[section as usize];
        let peak = sections.clone().max_by_key(|&section| (load(section), Reverse(section)));
        let Some(peak) = peak else { return sections };
        let (mut start, mut end) = (peak, peak + 1);
        let begun = |section: u32| self.normal.first_span[section as usize];
        // The side with the greater load is next.
        while begun(end) - begun(start) < count && (start..end) != sections {
            let before = (start > sections.start).then(|| load(start - 1));
            let after = (end < sections.end).then(|| load(end));
            if before > after {
                start -= 1;
            } else {
                end += 1;
            }
        }
        start..end
    }

    /// Returns the sections of the core in which no span is live that does not move, or is live together with
    /// such a span.
    fn free_sections(&self, data: &RepackData<'_>) -> Range<u32> {
        let Range { mut start, mut end } = self.region().sections;
        let crossing = |number: &u32| self.span(*number).behind > end;
        if let Some(first) = self.region().spans.clone().find(crossing) {
            end = self.span(first).first;
        }
        let first = self.region().spans.start as usize;
        // Those that begin earlier are live where the region's first span begins.
        let before = data.live.neighbors(self.normal, first).filter(|&number| number < first);
        start = before.map(|number| self.normal.spans[number].behind).fold(start, u32::max);
        // Spans that are live together with these are not packed, either.
        let (free, spans) = (start..end, self.region().spans.clone().map(|number| self.span(number)));
        for span in spans {
            if span.first < free.start {
                start = start.max(span.behind);
            }
            if span.behind > free.end {
                end = end.min(span.first);
            }
        }
        start = start.max(self.region().core.start);
        start..end.min(self.region().core.end).max(start)
    }
}

/// Returns 0 if a span is live in the window, 1 if it begins later, and 2 if it ends earlier.
fn time(span: &SectionSpan, window: &Range<u32>) -> u8 {
    match () {
        () if span.first >= window.end => 1,
        () if span.behind <= window.start => 2,
        () => 0,
    }
}
