//! An attempt to reach a capacity, in all regions.

use super::from_peak::SearchStart;
use super::repack::{Repack, RepackData, RepackState};
use crate::normal::Placement;
use orlop_core::SplitMix64;
use std::sync::Arc;

/// The first attempts of the sequences: the part of the distance to the bound by which they go below the best
/// height, and the number of steps for each span after which they are given up. Short attempts find the
/// easy improvements, long ones the others.
const FIRST: [(f64, usize); 2] = [(0.5, 1), (0.5, 25)];

/// The maximum of this part, and the part below which it is large again, with longer attempts.
const MAX_PART: f64 = 0.75;
const MIN_PART: f64 = 0.02;

/// The maximum of the steps.
const MAX_STEPS: usize = 400;

/// Where the attempts begin, in turn.
const STARTS: [SearchStart; 3] = [SearchStart::Plan, SearchStart::Peak(250), SearchStart::Peak(500)];

/// The factors of the part after a success, and after a failure.
const SUCCESS: f64 = 1.5;
const FAILURE: f64 = 0.5;

/// The attempts of one sequence.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    capacity: u64,
    first_part: f64,
    part: f64,
    /// The steps of an attempt for each span.
    steps: usize,
    /// The number of attempts: each has its own borders and random numbers.
    count: usize,
    random: SplitMix64,
    repacks: Vec<Repack<'a>>,
}

impl<'a> Attempt<'a> {
    /// Creates a sequence without an attempt.
    pub(super) fn new(index: usize, seed: u64) -> Self {
        let (part, steps) = FIRST[index % FIRST.len()];
        Self {
            capacity: 0,
            first_part: part,
            part,
            steps,
            count: 0,
            random: SplitMix64::new(seed),
            repacks: Vec::new(),
        }
    }

    /// Starts the next attempt from the best plan if none is under way.
    pub(super) fn start_if_idle(&mut self, data: &RepackData<'a>, best: &Placement) {
        if !self.repacks.is_empty() {
            return;
        }
        self.capacity = self.next_capacity(data, best.height);
        let base = Arc::new(best.offsets.clone());
        let is_high = |span: usize| data.normal.end(&data.normal.spans[span], base[span]) > self.capacity;
        let waiting = data.borders.regions(self.count, is_high);
        let start = STARTS[self.count % STARTS.len()];
        self.repacks = waiting
            .into_iter()
            .map(|region| {
                let steps = self.steps * data.borders.core_spans(&region);
                let seed = (start, self.random.next_u64());
                Repack::new(data, region, Arc::clone(&base), (self.capacity, steps), seed)
            })
            .collect();
        self.count += 1;
    }

    /// Returns the capacity of an attempt below `height`, which is above the bound.
    fn next_capacity(&self, data: &RepackData<'_>, height: u64) -> u64 {
        let bound = data.normal.lower_bound;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a step of any size serves"
        )]
        let step = ((height - bound) as f64 * self.part) as u64;
        let step = step.max(data.unit).min(height - bound);
        let capacity = height - step;
        (capacity - capacity % data.unit).max(bound)
    }

    /// Returns the searches that are not finished.
    pub(super) fn running(&mut self) -> impl Iterator<Item = &mut Repack<'a>> {
        self.repacks.iter_mut().filter(|repack| repack.state() == RepackState::Running)
    }

    /// Takes over what was reached if no search is running any more, or if another attempt is lower already.
    pub(super) fn finish(&mut self, data: &RepackData<'a>, best: &mut Placement) {
        if best.height <= self.capacity {
            self.repacks.clear();
            return;
        }
        if self.running().next().is_some() {
            return;
        }
        let mut has_failed = false;
        let mut offsets: Option<Vec<u64>> = None;
        for repack in self.repacks.drain(..) {
            if repack.state() == RepackState::Complete {
                repack.store(offsets.get_or_insert_with(|| repack.base().clone()));
            } else {
                has_failed = true;
            }
        }
        let reached = offsets.map(|offsets| data.normal.placed(offsets));
        if let Some(reached) = reached.filter(|reached| reached.height <= best.height) {
            *best = reached;
        }
        if has_failed && self.part < MIN_PART {
            self.steps = (2 * self.steps).min(MAX_STEPS);
            self.part = self.first_part;
        } else {
            let factor = if has_failed { FAILURE } else { SUCCESS };
            self.part = (self.part * factor).min(MAX_PART);
        }
    }
}
