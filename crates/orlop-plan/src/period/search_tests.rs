//! The log, periods found in it, and plans for them.

use super::*;
use crate::period::PeriodPlan;

/// A workload with its search, and a plan if there is one.
#[derive(Default)]
struct Workload {
    search: PeriodSearch,
    plan: Option<PeriodPlan>,
    live: Vec<(char, u32)>,
}

impl Workload {
    fn of(events: &str) -> Self {
        let mut workload = Self::default();
        workload.play(events);
        workload
    }

    /// Plays events: an upper-case letter allocates, its lower-case letter frees the oldest block of that
    /// name. Returns the planned addresses.
    fn play(&mut self, events: &str) -> Vec<Option<usize>> {
        let mut addresses = Vec::new();
        for event in events.chars() {
            let name = event.to_ascii_uppercase();
            if event == name {
                let number = self.search.log(name as usize);
                self.live.push((name, number));
                addresses.push(self.plan.as_mut().and_then(|plan| plan.follow(&self.search)));
            } else {
                let at = self.live.iter().position(|&(known, _)| known == name).expect("it is live");
                self.search.log_free(self.live.remove(at).1);
            }
        }
        addresses
    }
}

/// Sixteen requests, each of another size, of which two blocks are live at once; `Z` is live across the end.
const PERIOD: &str = "AaBCbcDdEFefGgHIhiJjKLklMmNnZOoz";

#[test]
fn a_period_has_the_lifetimes_of_its_blocks() {
    assert!(PeriodSearch::default().find().is_none());
    let period = Workload::of(&PERIOD.repeat(2)).search.find().expect("it happened twice");
    assert_eq!((period.requests().len(), period.is_confirmed()), (16, true));
    let duration = |name: char| {
        let request = period.requests().iter().find(|request| request.key == name as usize);
        request.and_then(|request| request.buffer).map(|buffer| buffer.end - buffer.start)
    };
    assert_eq!([duration('A'), duration('B'), duration('Z')], [Some(1), Some(2), Some(2)]);
}

#[test]
fn blocks_that_accumulate_are_no_period() {
    assert!(Workload::of(&PERIOD.replace('m', "").repeat(3)).search.find().is_none());
}

#[test]
fn a_period_is_found_when_its_second_time_has_begun() {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ["Aa", "Bb", "Cc", "Dd"][(state >> 30) as usize]
    };
    let first: String = (0..300).map(|_| next()).collect();
    let second = "Ee".repeat(300);
    let workload = Workload::of(&[&*first, &second, &first].concat());
    let period = workload.search.find().expect("half of it has repeated");
    assert_eq!((period.requests().len(), period.is_confirmed()), (600, false));
}

#[test]
fn a_block_across_the_end_of_the_period_shares_no_address() {
    let mut workload = Workload::of("Z");
    workload.play(&"AaBbCcDdEeFfGgYzHhIiJjKkLlMmNnZy".repeat(3));
    let period = workload.search.find().expect("it happened three times");
    let always =
        |request: &&PeriodRequest| request.buffer.is_some_and(|buffer| buffer.end == Period::ALWAYS.end);
    // Wherever the period begins, one of the two is live across it.
    assert_eq!(period.requests().iter().filter(always).count(), 1);
    assert!(period.requests().iter().all(|request| request.buffer.is_some()));
}

#[test]
fn numbers_lead_to_the_requests_of_a_period() {
    let mut workload = Workload::of(&PERIOD.repeat(2));
    let period = workload.search.find().expect("it happened twice");
    let next = workload.search.log(1);
    let at = |back: u32| period.request(next - back).map(|request| request.key);
    let name = |name: char| Some(name as usize);
    assert_eq!([at(0), at(1), at(16), at(17)], [None, name('O'), name('A'), None]);
}

#[test]
fn a_plan_begins_at_its_turn_and_recovers_from_divergences() {
    let mut workload = Workload::of(&PERIOD.repeat(2));
    let period = workload.search.find().expect("it happened twice");
    let addresses = period.requests().iter().map(|request| Some(request.key));
    workload.plan = Some(PeriodPlan::new(&period, addresses));
    workload.play(PERIOD);
    let here: Vec<_> =
        PERIOD.chars().filter(char::is_ascii_uppercase).map(|name| Some(name as usize)).collect();
    assert_eq!(workload.play(PERIOD), here);
    assert!(!workload.plan.as_ref().is_some_and(PeriodPlan::has_diverged));
    // A divergence: there is no address until a whole context is as planned.
    assert_eq!(workload.play("YyXx"), [None, None]);
    assert!(workload.plan.as_ref().is_some_and(PeriodPlan::has_diverged));
    let addresses = workload.play(&PERIOD.repeat(2));
    assert_eq!((addresses[0], &addresses[16..]), (None, &here[..]));
}

#[test]
fn the_log_is_truncated_and_continues() {
    let mut workload = Workload::default();
    let first = workload.search.log(1);
    for _ in 0..CAPACITY / 16 {
        workload.play(PERIOD);
    }
    workload.search.log_free(first);
    assert!(workload.search.first > 0 && workload.search.log.len() < CAPACITY);
    assert_eq!(workload.search.find().map(|period| period.requests().len()), Some(16));
}

#[test]
fn numbers_wrap_around_before_they_run_out() {
    let mut search = PeriodSearch { first: NUMBERS - 1, pause: u32::MAX, ..PeriodSearch::default() };
    assert!(!search.take_turn());
    let numbers: Vec<u32> = (0..=CAPACITY).map(|_| search.log(1)).collect();
    assert_eq!((numbers[0], numbers[CAPACITY]), (NUMBERS - 1, 0));
    assert!(search.take_turn() && !search.take_turn());
}

#[test]
fn searches_are_deferred_for_longer_each_time() {
    let mut workload = Workload::of(&PERIOD.repeat(2));
    let period = workload.search.find().expect("it happened twice");
    let mut pauses = Vec::new();
    for _ in 0..4 {
        workload.search.reject(&period);
        let mut periods = 0;
        while !workload.search.take_turn() {
            workload.play(PERIOD);
            periods += 1;
        }
        pauses.push(periods);
    }
    assert_eq!(pauses, [1, 2, 4, 8]);
}
