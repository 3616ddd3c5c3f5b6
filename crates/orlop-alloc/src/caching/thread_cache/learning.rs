//! Learning and planning of a thread's period, as far as the thread cache decides it: when to learn, when to
//! pause, and which fast paths that closes.

use super::{ThreadCache, fingerprint};
use crate::Record;
use crate::caching::classes::{CLASSES, size_of_class};
use crate::caching::plan::ThreadPlan;
use crate::caching::token::{NOTES, Token};
use orlop_plan::period::{PeriodLearner, PeriodRequest};

/// After this many failures, attempts to learn pause: first for this many misses, then for twice as many each
/// time, up to this many doublings.
const PATIENCE: u32 = 3;
const FIRST_PAUSE: u32 = 1 << 10;
const PAUSE_DOUBLINGS: u32 = 10;

/// A plan that was followed for this many periods was worth its cost.
const WORTHWHILE_PERIODS: u64 = 64;

impl ThreadCache {
    /// Records an allocation of a large class that the plan did not serve: for the learner, or for its pause.
    pub(in crate::caching) fn log_allocation(&mut self, record: &mut Record) {
        let token = Token(record.token);
        if !(self.first_large..CLASSES).contains(&token.class()) || token.is_planned() {
            return;
        }
        let Some(learner) = &mut self.learner else {
            if self.plan.is_none() {
                self.pause = self.pause.saturating_sub(1);
            }
            return;
        };
        match learner.log(token.class(), size_of_class(token.class()), fingerprint(record)) {
            Some(note) => record.token = token.noted(note).0,
            None => self.stop_learning(),
        }
    }

    /// Starts to learn if it is time. A log has at most `max` entries.
    pub(in crate::caching) fn maybe_learn(&mut self, max: usize) {
        if self.plan.is_none() && self.learner.is_none() && self.pause == 0 {
            if self.min_events > 2 * max {
                // No log holds that many events: the period that was too short may be the right one now.
                self.min_events = 0;
            }
            // The learner's notes are fewer than twice as many, and a token has room for `NOTES`.
            let max = max.min(NOTES / 2 - 1);
            self.learner = Some(Box::new(PeriodLearner::new(max, self.min_events)));
            self.update_fast_path();
        }
    }

    /// Counts a failure, and pauses learning.
    fn pause_learning(&mut self) {
        let pause = |times: u32| FIRST_PAUSE << times.min(PAUSE_DOUBLINGS);
        self.pause = self.failures.checked_sub(PATIENCE).map_or(0, pause);
        self.failures += 1;
    }

    /// Opens the fast paths as far as possible: a learner must see every large block, and a plan serves them
    /// from fixed addresses.
    pub(super) fn update_fast_path(&mut self) {
        let learns = self.learner.is_some();
        let small = self.first_large.checked_sub(1).map_or(0, size_of_class);
        self.fast_take_max = if learns || self.plan.is_some() { small } else { usize::MAX };
        self.fast_put_below = if learns { self.first_large } else { CLASSES };
    }

    fn stop_learning(&mut self) {
        self.learner = None;
        self.pause_learning();
        self.update_fast_path();
    }

    /// Returns `true` if a period was learned and an allocation of `class` may start it.
    pub(in crate::caching) fn has_learned(&self, class: usize) -> bool {
        class >= self.first_large
            && self.learner.as_ref().is_some_and(|learner| learner.is_period_from(class))
    }

    /// Returns the period that was learned.
    pub(in crate::caching) fn period(&self) -> Option<Vec<PeriodRequest>> {
        self.learner.as_ref().map(|learner| learner.period(|class| size_of_class(class) as u64))
    }

    /// Drops what was learned, without a plan. It may be part of a longer period.
    pub(in crate::caching) fn decline(&mut self) {
        self.min_events = 2 * self.learner.as_ref().map_or(0, |learner| learner.events());
        self.stop_learning();
    }

    /// Starts to follow a plan. `None` ends learning for now.
    pub(in crate::caching) fn follow(&mut self, plan: Option<ThreadPlan>) {
        if plan.is_none() {
            self.stop_learning();
            return;
        }
        self.min_events = self.learner.take().map_or(0, |learner| learner.events());
        self.plan = plan;
        self.update_fast_path();
    }

    /// Takes the plan out, and updates the pauses by its success.
    pub(in crate::caching) fn take_plan(&mut self) -> Option<ThreadPlan> {
        let plan = self.plan.take()?;
        if plan.periods() >= WORTHWHILE_PERIODS {
            // The plan was worth its cost.
            (self.min_events, self.pause, self.failures) = (0, 0, 0);
        } else {
            self.min_events *= 2;
            self.pause_learning();
        }
        self.update_fast_path();
        Some(plan)
    }

    pub(in crate::caching) fn plan(&self) -> Option<&ThreadPlan> {
        self.plan.as_ref()
    }

    /// Changes the first large class. The stacks must be empty.
    pub(in crate::caching) fn set_first_large(&mut self, large: usize) {
        debug_assert!(self.cached == 0);
        self.first_large = large;
        if self.learner.take().is_some() {
            // This is no failure: learning may start again at once.
            self.pause = 0;
        }
        self.update_fast_path();
    }

    /// Returns `true` if `large` is a new first large class. Never while there is a plan.
    pub(in crate::caching) fn changes_first_large(&self, large: usize) -> bool {
        self.first_large != large && self.plan.is_none()
    }

    /// Updates the maximum of live bytes with `live`, and returns it.
    pub(in crate::caching) fn update_peak_live(&mut self, live: usize) -> usize {
        self.peak_live = self.peak_live.max(live);
        self.peak_live
    }
}
