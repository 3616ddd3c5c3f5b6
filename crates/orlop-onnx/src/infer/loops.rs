//! `Loop`: iterations that are followed one by one, or covered at once.

use super::control::{Captured, ExecutedBody, hulls, results, truth};
use super::counters::Counters;
use super::scan::stacked;
use super::widen::widened;
use super::{Call, Element, Fact, Facts, Fault, Inference, Range, Tensor, types};
use crate::OnnxError;

/// A loop is followed one by one for at most this many iterations, and nodes and values of its body.
const MAX_FOLLOWED: (i64, i64) = (1024, 1 << 17);

/// A loop of no more iterations is followed.
const MIN_COUNTED: i64 = 16;

/// A state that has not settled after this many runs of a body is not known.
pub(super) const MAX_ATTEMPTS: usize = 8;

impl Inference<'_> {
    /// Inputs: the trip count, the condition, the state. The body has the number of the iteration, the
    /// condition and the state; the condition, the new state, and results that are collected.
    pub(super) fn repeat(&mut self, call: &Call<'_>, body: &Captured<'_>) -> Result<ExecutedBody, OnnxError> {
        // Without a count only the condition ends the loop.
        let mut trips = match call.has(0) {
            true => call.integer(0).unwrap_or(Range::ANY_SIZE).maximum(Range::exactly(0)),
            false => Range::exactly(i64::MAX),
        };
        if let Some(&[bound]) = self.bindings.bounds.get(&*call.node.title).map(Vec::as_slice) {
            trips = trips.with_max(trips.max().min(i64::try_from(bound).unwrap_or(i64::MAX)));
        }
        let starts = call.fact(1).map_or(Some(true), truth);
        let exceeds = Fault::Invalid("it has more iterations than its bound");
        // Only a condition ends a loop before its count.
        let has_to_end = trips.min() > trips.max() && starts == Some(true);
        if has_to_end && !call.has(1) {
            return Ok((Err(exceeds), None));
        }
        trips = trips.with_min(trips.min().min(trips.max()));
        match starts {
            Some(true) => {}
            Some(false) => trips = Range::exactly(0),
            None => trips = trips.with_min(0),
        }
        let state: Vec<Fact> =
            call.inputs.iter().skip(2).map(|fact| fact.cloned().unwrap_or(Fact::Unknown)).collect();
        let mut run = LoopRun::new(trips, call.has(1), &state);
        let is_covered = self.count_alike(body, &state, &mut run)?;
        if !is_covered {
            run = LoopRun::new(trips, call.has(1), &state);
        }
        if !is_covered && !self.follow(body, state.clone(), &mut run)? {
            run = LoopRun::new(trips, call.has(1), &state);
            let (from, state) = self.first(body, state.clone(), &mut run)?;
            if run.trips.max() > from && !self.cover(body, &state, from, &mut run)? {
                return Ok((Err(Fault::Unknown), run.all));
            }
        }
        if has_to_end && run.goes_on {
            return Ok((Err(exceeds), run.all));
        }
        let states = call.inputs.len().saturating_sub(2);
        let outputs = match run.ends {
            Some(ends) => ends,
            None => vec![Fact::Unknown; states],
        };
        let collected = match run.collected {
            Some(collected) => collected,
            // Not executed: an iteration would give these.
            None => match self.run(body, loop_inputs(Range::exactly(0), &state)) {
                Ok(facts) => results(body, &facts).split_off((1 + states).min(body.scope().outputs.len())),
                Err(OnnxError::Contradiction { .. }) => Vec::new(),
                Err(error) => return Err(error),
            },
        };
        let stacks = collected.iter().map(|fact| stacked(fact, 0, run.trips));
        Ok((Ok(outputs.into_iter().chain(stacks).collect()), run.all))
    }

    /// Covers a loop at once if that loses nothing against following it: all iterations have the sizes of the
    /// first one, and their number and the state at the end are known. Returns `false` if it does.
    fn count_alike(
        &mut self,
        body: &Captured<'_>,
        state: &[Fact],
        run: &mut LoopRun,
    ) -> Result<bool, OnnxError> {
        if run.trips.max() <= MIN_COUNTED {
            return Ok(false);
        }
        let first = match self.run(body, loop_inputs(Range::exactly(0), state)) {
            Err(OnnxError::Contradiction { .. }) => return Ok(false),
            first => first?,
        };
        if !self.covers(body, state, 0, run)? || run.trips.exact().is_none() {
            return Ok(false);
        }
        // Following it would know the state at the end only where it knows the one after the first iteration.
        let next = results(body, &first);
        let next = next.get(1..).unwrap_or_default();
        let is_known = |((end, start), next): ((&Fact, &Fact), &Fact)| {
            let loses_bound = || next.bounds().iter().zip(end.bounds()).any(|(next, end)| *next && !end);
            end == start || end.is_exact() || !(next.is_exact() || loses_bound())
        };
        let mut ends = run.ends.iter().flatten().zip(state).zip(next);
        Ok(run.is_alike(Some(&first)) && ends.all(is_known))
    }

    /// Follows the iterations of a loop one by one. Returns `false` if there are too many, or if it is not
    /// known when they end.
    fn follow(
        &mut self,
        body: &Captured<'_>,
        mut state: Vec<Fact>,
        run: &mut LoopRun,
    ) -> Result<bool, OnnxError> {
        let work = i64::try_from(body.scope().work()).unwrap_or(i64::MAX);
        let followed = MAX_FOLLOWED.0.min(MAX_FOLLOWED.1 / work.max(1));
        let has_few = run.trips.max() <= followed;
        // Covering the rest is as good as following it if it adds no sizes.
        let mut may_cover = true;
        for iteration in 0..run.trips.max().min(followed) {
            let facts = match self.run(body, loop_inputs(Range::exactly(iteration), &state)) {
                // The loop ends before an iteration that contradicts the state, where it may.
                Err(OnnxError::Contradiction { .. }) if iteration >= run.trips.min().max(1) => {
                    run.trips = run.trips.with_max(iteration);
                    return Ok(true);
                }
                result => result?,
            };
            let next = results(body, &facts).get(1..=state.len()).unwrap_or_default().to_vec();
            let goes_on = run.note(body, facts, state.len());
            if goes_on.is_none() && !has_few {
                return Ok(false);
            }
            if goes_on != Some(true) {
                run.at_least(iteration + 1);
            }
            if goes_on == Some(false) {
                run.trips = run.trips.with_max(iteration + 1);
            }
            if iteration + 1 >= run.trips.min() {
                run.end_with(&next);
            }
            if goes_on == Some(false) || iteration + 1 == run.trips.max() {
                return Ok(true);
            }
            if next == state && may_cover {
                let mut covered = run.clone();
                if self.covers(body, &state, iteration + 1, &mut covered)? {
                    if !has_few || covered.is_alike(run.all.as_ref()) {
                        *run = covered;
                        return Ok(true);
                    }
                    may_cover = false;
                }
            }
            state = next;
        }
        Ok(run.trips.max() == 0)
    }

    /// Executes the first iteration of a loop apart from the others, if the state has other ranks after it:
    /// exporters begin with a placeholder. Returns the number of the next iteration, and its state.
    fn first(
        &mut self,
        body: &Captured<'_>,
        state: Vec<Fact>,
        run: &mut LoopRun,
    ) -> Result<(i64, Vec<Fact>), OnnxError> {
        if run.trips.max() == 0 {
            return Ok((0, state));
        }
        let facts = self.run(body, loop_inputs(Range::exactly(0), &state))?;
        let next = results(body, &facts).get(1..=state.len()).unwrap_or_default().to_vec();
        let rank = |fact: &Fact| fact.tensor().and_then(|tensor| Some(tensor.shape.as_ref()?.len()));
        let is_same = |(one, other): (&Fact, &Fact)| rank(one).is_none() || rank(one) == rank(other);
        if state.iter().zip(&next).all(is_same) {
            return Ok((0, state));
        }
        let goes_on = run.note(body, facts, state.len());
        if goes_on != Some(true) {
            run.at_least(1);
        }
        if goes_on == Some(false) {
            run.trips = run.trips.with_max(1);
        }
        if run.trips.min() <= 1 {
            run.end_with(&next);
        }
        Ok((1, next))
    }

    /// Covers the rest of a loop whose state does not change: it is alike, but for the number of the
    /// iteration. Returns `false` if the number matters: one of the iterations may not be executed.
    fn covers(
        &mut self,
        body: &Captured<'_>,
        state: &[Fact],
        from: i64,
        run: &mut LoopRun,
    ) -> Result<bool, OnnxError> {
        match self.cover(body, state, from, run) {
            Err(OnnxError::Contradiction { .. }) => Ok(false),
            result => result,
        }
    }

    /// Covers the iterations of a loop from this one on at once. Returns `false` if the state does not
    /// settle.
    fn cover(
        &mut self,
        body: &Captured<'_>,
        state: &[Fact],
        from: i64,
        run: &mut LoopRun,
    ) -> Result<bool, OnnxError> {
        // The bound of a counter can keep sizes from settling that are unknown without it.
        for counting in [Counting::ByCondition, Counting::ByTrips, Counting::Not] {
            if self.settle(body, state, from, run, counting)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Covers the iterations with the bounds of counters, if there are any to be counted like that.
    fn settle(
        &mut self,
        body: &Captured<'_>,
        start: &[Fact],
        from: i64,
        run: &mut LoopRun,
        counting: Counting,
    ) -> Result<bool, OnnxError> {
        let after = |trips: i64| trips.saturating_sub(from).max(0);
        let trips = Range::between(after(run.trips.min()), after(run.trips.max()));
        let mut counters: Option<Counters> = None;
        // A size is not the same one in all iterations.
        let mut state = start.to_vec();
        state.iter_mut().for_each(Fact::forget_factors);
        for attempt in 0..MAX_ATTEMPTS {
            let iterations = counters.as_ref().map_or(trips.max(), |counters| counters.iterations.max());
            let number = Range::between(from, from.saturating_add((iterations - 1).max(0)));
            let facts = self.run(body, loop_inputs(number, &state))?;
            let results = results(body, &facts);
            let next = results.get(1..=state.len()).unwrap_or_default();
            let mut joined = hulls(&state, next);
            if counting != Counting::Not {
                let has_condition = counting == Counting::ByCondition && run.has_condition;
                let found = || Counters::of(body, &facts, start, from, trips, has_condition);
                let counters = counters.get_or_insert_with(found);
                let is_counted = counters.hold(body, &facts, &mut joined);
                if !is_counted || counting == Counting::ByCondition && !counters.has_end() {
                    return Ok(false);
                }
            }
            if joined == state {
                run.settle(body, facts, from, state, counters.as_ref());
                return Ok(true);
            }
            state = if attempt < 2 { joined } else { joined.iter().zip(&state).map(widened).collect() };
        }
        Ok(false)
    }
}

/// What the parts of a state that count the iterations are bounded by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counting {
    /// The number of iterations after which the condition of the body ends the loop.
    ByCondition,
    /// The largest number of iterations of the node.
    ByTrips,
    /// Nothing.
    Not,
}

/// What is known about the iterations of a loop so far.
#[derive(Clone)]
struct LoopRun {
    /// The number of iterations.
    trips: Range,
    /// Without a condition at its start, a loop may ignore the one that its body gives.
    has_condition: bool,
    /// Whether all iterations so far are known to be followed by another one.
    goes_on: bool,
    /// The state, wherever the loop may end.
    ends: Option<Vec<Fact>>,
    /// What holds in all iterations.
    all: Option<Facts>,
    /// What each iteration adds to the results that are collected.
    collected: Option<Vec<Fact>>,
}

impl LoopRun {
    fn new(trips: Range, has_condition: bool, state: &[Fact]) -> Self {
        let ends = (trips.min() == 0).then(|| state.to_vec());
        Self { trips, has_condition, goes_on: true, ends, all: None, collected: None }
    }

    /// Notes an iteration. Returns whether another one follows, if that is known.
    fn note(&mut self, body: &Captured<'_>, facts: Facts, states: usize) -> Option<bool> {
        let results = results(body, &facts);
        let collected = results.get(1 + states..).unwrap_or_default();
        self.collected = Some(match &self.collected {
            Some(others) => hulls(others, collected),
            None => collected.to_vec(),
        });
        self.all = Some(match &self.all {
            Some(others) => others.hull(&facts),
            None => facts,
        });
        let goes_on = results.first().and_then(truth).filter(|&goes_on| goes_on || self.has_condition);
        self.goes_on &= goes_on == Some(true);
        goes_on
    }

    /// Notes that the loop may end after this many iterations.
    fn at_least(&mut self, iterations: i64) {
        self.trips = self.trips.with_min(self.trips.min().min(iterations));
    }

    /// Returns `true` if all iterations have the shapes of these facts.
    fn is_alike(&self, facts: Option<&Facts>) -> bool {
        matches!((&self.all, facts), (Some(all), Some(facts)) if all.has_shapes_of(facts))
    }

    /// Notes the iterations from this one on, in all of which these facts and this state hold.
    fn settle(
        &mut self,
        body: &Captured<'_>,
        facts: Facts,
        from: i64,
        state: Vec<Fact>,
        counters: Option<&Counters>,
    ) {
        let goes_on = self.note(body, facts, state.len());
        match counters.filter(|counters| counters.has_end()) {
            Some(counters) => {
                let trips = counters.iterations.add(Range::exactly(from));
                self.trips = self.trips.minimum(trips).with_max(self.trips.max().min(trips.max()));
            }
            None if goes_on != Some(true) => self.at_least(from + 1),
            None => {}
        }
        let iterations = self.trips.subtract(Range::exactly(from)).maximum(Range::exactly(0));
        let ends = counters.map(|counters| counters.after(state.clone(), iterations));
        self.end_with(&ends.unwrap_or(state));
    }

    fn end_with(&mut self, state: &[Fact]) {
        self.ends = Some(match &self.ends {
            Some(others) => hulls(others, state),
            None => state.to_vec(),
        });
    }
}

/// The number of the iteration, the condition, and the state.
fn loop_inputs(number: Range, state: &[Fact]) -> Vec<Fact> {
    let scalar = |data_type, range| Tensor::with_elements(data_type, &[], vec![Element::Int(range)]).into();
    let before = [scalar(types::INT64, number), scalar(types::BOOL, Range::exactly(1))];
    before.into_iter().chain(state.iter().cloned()).collect()
}
