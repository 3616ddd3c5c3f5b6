//! The unplaced spans, and the chains that they form.

use super::skyline::{PackingSkyline, Step};
use crate::normal::Normal;
use crate::planner::Keys;
use orlop_core::SplitMix64;

/// The scores of a span that ends where the valley does, and of a top flush with one of its walls.
const WHOLE: f64 = 4.0;
const FLUSH: f64 = 8.0;

/// The levels beside a valley; the capacity where there is no wall.
#[derive(Debug, Clone, Copy)]
pub(super) struct WallHeights {
    before: u64,
    behind: u64,
    capacity: u64,
}

impl WallHeights {
    pub(super) fn of(skyline: &PackingSkyline, index: usize, capacity: u64) -> Self {
        let [before, behind] = skyline.walls(index).map(|wall| wall.unwrap_or(capacity));
        Self { before, behind, capacity }
    }
}

/// Whether a chain leads from a section to the end of the valley.
#[derive(Debug, Clone, Copy, Default)]
struct Reach {
    /// The search that has found it.
    search: u64,
    is_reached: bool,
}

/// The unplaced spans.
#[derive(Debug)]
pub(super) struct Links<'a> {
    normal: &'a Normal,
    keys: &'a Keys<'a>,
    /// The sum of the lengths of lifetimes that a score is relative to.
    total: f64,
    is_placed: Vec<bool>,
    /// By section.
    reach: Vec<Reach>,
    search: u64,
    /// Sections on the way, and the next span to try there.
    stack: Vec<(u32, u32)>,
    pub(super) work: u64,
}

#[expect(clippy::cast_precision_loss, reason = "scores are relative")]
fn score(value: u64) -> f64 {
    value as f64
}

impl<'a> Links<'a> {
    pub(super) fn new(normal: &'a Normal, keys: &'a Keys<'_>) -> Self {
        let spans = normal.spans.len();
        let longest = (0..spans).map(|number| keys.width(number)).max().unwrap_or(1);
        Self {
            normal,
            keys,
            total: score(longest),
            is_placed: vec![false; spans],
            reach: vec![Reach::default(); normal.load.len() + 1],
            search: 0,
            stack: Vec::new(),
            work: 0,
        }
    }

    pub(super) fn remove(&mut self, number: usize) {
        self.is_placed[number] = true;
    }

    pub(super) fn restore(&mut self, number: usize) {
        self.is_placed[number] = false;
    }

    /// Returns the first links of chains through the valley, the best last; at most as many as are tried.
    pub(super) fn first_links(
        &mut self,
        valley: Step,
        walls: WallHeights,
        noise: f64,
        random: &mut SplitMix64,
    ) -> Vec<u32> {
        self.search += 1;
        let normal = self.normal;
        let mut scored: Vec<(f64, u32)> = Vec::new();
        for number in normal.first_span[valley.start as usize]..normal.first_span[valley.start as usize + 1] {
            let span = &normal.spans[number as usize];
            let top = valley.level + normal.rounded(span);
            let fits = span.behind <= valley.end && top <= walls.capacity;
            let is_aligned = span.offset_from(valley.level) == valley.level;
            if self.is_placed[number as usize]
                || !fits
                || !is_aligned
                || !self.reaches(span.behind, valley.end)
            {
                continue;
            }
            let is_whole = span.behind == valley.end;
            let mut value = if is_whole { WHOLE } else { 0.0 };
            value += if top == walls.before { FLUSH } else { 0.0 };
            value += if is_whole && top == walls.behind { FLUSH } else { 0.0 };
            value += score(self.keys.width(number as usize)) / self.total;
            value += noise * score(random.next_u64() >> 32) / score(1 << 32);
            scored.push((value, number));
        }
        scored.sort_by(|one, other| one.0.total_cmp(&other.0).then(other.1.cmp(&one.1)));
        let first = scored.len().saturating_sub(super::TRIED_LINKS);
        scored[first..].iter().map(|&(_, number)| number).collect()
    }

    /// Returns `true` if a chain of unplaced spans leads from the section `start` to `end`.
    fn reaches(&mut self, start: u32, end: u32) -> bool {
        if start == end {
            return true;
        }
        let known = self.reach[start as usize];
        if known.search == self.search {
            return known.is_reached;
        }
        self.visit(start);
        while let Some(&(section, next)) = self.stack.last() {
            let begin_next = self.normal.first_span[section as usize + 1];
            let unplaced = |number: &u32| {
                !self.is_placed[*number as usize] && self.normal.spans[*number as usize].behind <= end
            };
            let found = (next..begin_next).find(unplaced);
            self.work += 4;
            let Some(number) = found else {
                self.stack.pop();
                continue;
            };
            if let Some(top) = self.stack.last_mut() {
                top.1 = number + 1;
            }
            let behind = self.normal.spans[number as usize].behind;
            let known = self.reach.get(behind as usize).copied().unwrap_or_default();
            let is_known = known.search == self.search;
            if behind == end || (is_known && known.is_reached) {
                for (section, _) in self.stack.drain(..) {
                    self.reach[section as usize].is_reached = true;
                }
                return true;
            }
            if !is_known {
                self.visit(behind);
            }
        }
        false
    }

    /// Begins the search at a section, from which no chain is known.
    fn visit(&mut self, section: u32) {
        self.reach[section as usize] = Reach { search: self.search, is_reached: false };
        self.stack.push((section, self.normal.first_span[section as usize]));
    }

    /// Returns the unplaced span inside the valley whose lifetime is the longest.
    pub(super) fn longest_inside(&mut self, valley: Step) -> Option<usize> {
        let begin = |section: u32| self.normal.first_span[section as usize] as usize;
        let inside = begin(valley.start)..begin(valley.end);
        self.work += inside.len() as u64;
        let fits =
            |&number: &usize| !self.is_placed[number] && self.normal.spans[number].behind <= valley.end;
        inside.filter(fits).max_by_key(|&number| (self.keys.width(number), std::cmp::Reverse(number)))
    }
}
