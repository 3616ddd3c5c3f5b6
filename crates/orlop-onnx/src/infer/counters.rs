//! [`Counters`]: parts of a loop's state to which each iteration adds the same number, or the same size.
//!
//! Nothing in the body bounds such a part, but the iterations do: after `n` of them it is `n` steps from its
//! start. And if the body compares a counter with a number, it bounds the iterations.

use super::control::Captured;
use super::way::{Change, MAX_NUMBER, Way};
use super::{Element, Fact, Facts, Range, Tensor, to_integer};

/// A part of a loop's state that counts its iterations.
struct Counter {
    /// The position in the state.
    position: usize,
    change: Change,
    /// What it is before the first iteration.
    start: Fact,
}

/// The counters of a loop.
pub(super) struct Counters {
    counters: Vec<Counter>,
    /// The number of the first iteration.
    from: i64,
    /// The iterations until the condition of the body ends the loop, if they are known.
    until_condition: Option<Range>,
    /// The iterations, whatever ends the loop.
    pub(super) iterations: Range,
}

impl Counters {
    /// Finds the counters of a loop that begins with the iteration `from` in this state, and has these
    /// iterations. `facts` are those of an iteration. Its condition counts if it `has_condition`.
    pub(super) fn of(
        body: &Captured<'_>,
        facts: &Facts,
        start: &[Fact],
        from: i64,
        iterations: Range,
        has_condition: bool,
    ) -> Self {
        let way = Way::new(body, facts);
        let counter = |(position, start): (usize, &Fact)| {
            let change = way.change(position)?;
            Some(Counter { position, change, start: start.clone() })
        };
        let counters = start.iter().enumerate().filter_map(counter).collect();
        let mut found = Self { counters, from, until_condition: None, iterations };
        if has_condition {
            found.until_condition = found.count(&way);
            found.iterations = found.until_condition.map_or(iterations, |end| end.minimum(iterations));
        }
        let iterations = found.iterations;
        found.counters.retain(|counter| counter.reached(&counter.start, iterations).is_some());
        found
    }

    /// Returns `true` if the condition of the body ends the loop after a known number of iterations.
    pub(super) fn has_end(&self) -> bool {
        self.until_condition.is_some()
    }

    /// Sets the counters in a state, which is the hull of those before and after an iteration with `facts`. A
    /// counter that this iteration changes in another way is removed. Returns `false` if the number of
    /// iterations no longer follows from the condition.
    pub(super) fn hold(&mut self, body: &Captured<'_>, facts: &Facts, state: &mut [Fact]) -> bool {
        let way = Way::new(body, facts);
        self.counters.retain(|counter| way.change(counter.position) == Some(counter.change));
        let before_last = Range::up_to(self.iterations.max().saturating_sub(1).max(0));
        for counter in &self.counters {
            if let Some(reached) = counter.reached(&state[counter.position], before_last) {
                state[counter.position] = reached;
            }
        }
        self.until_condition.is_none() || self.count(&way) == self.until_condition
    }

    /// Returns a state with the counters as they are after these iterations.
    pub(super) fn after(&self, mut state: Vec<Fact>, iterations: Range) -> Vec<Fact> {
        for counter in &self.counters {
            if let Some(reached) = counter.reached(&state[counter.position], iterations) {
                state[counter.position] = reached;
            }
        }
        state
    }

    /// Counts the iterations by the condition.
    fn count(&self, way: &Way<'_>) -> Option<Range> {
        let pace = |counter: &Counter| match counter.change {
            Change::Step(step) => way.pace(counter.position, &counter.start, step),
            Change::Growth { .. } | Change::Length(_) => None,
        };
        let paces: Vec<_> = self.counters.iter().filter_map(pace).chain(way.number(self.from)).collect();
        way.iterations(&paces)
    }
}

impl Counter {
    /// Returns what the counter is after these iterations. What else is in `fact` holds in all of them.
    fn reached(&self, fact: &Fact, iterations: Range) -> Option<Fact> {
        let grown = |start: Range, by: Range| {
            let added = by.multiply(iterations);
            let size = start.add(added);
            (iterations.is_bounded() && added.is_bounded() && size.is_bounded()).then_some(size)
        };
        match (self.change, &self.start, fact) {
            (Change::Step(step), Fact::Tensor(start), _) => moved(start, step, iterations),
            (Change::Growth { axis, by }, Fact::Tensor(start), Fact::Tensor(tensor)) => {
                let mut shape = tensor.shape.clone()?;
                *shape.get_mut(axis)? = grown(*start.shape.as_ref()?.get(axis)?, by)?;
                Some(Tensor::new(tensor.data_type, shape).into())
            }
            (Change::Length(by), Fact::Sequence { length, .. }, Fact::Sequence { element, .. }) => {
                Some(Fact::Sequence { element: element.clone(), length: grown(*length, by)? })
            }
            _ => None,
        }
    }
}

/// Returns a number after these iterations, each of which adds a step to it.
fn moved(tensor: &Tensor, step: f64, iterations: Range) -> Option<Fact> {
    let &[element] = tensor.elements.as_deref()? else { return None };
    let (min, max) = element.span();
    let ends = [iterations.min(), iterations.max()].map(|iterations| step * iterations as f64);
    let (min, max) = (min + ends[0].min(ends[1]), max + ends[0].max(ends[1]));
    let is_counted = |end: f64| end.fract() == 0.0 && end.abs() <= MAX_NUMBER;
    if !is_counted(min) || !is_counted(max) {
        return None;
    }
    let element = match element {
        Element::Int(_) => Element::Int(Range::between(to_integer(min), to_integer(max))),
        Element::Real(..) => Element::Real(min, max),
    };
    Some(Tensor { elements: Some(vec![element]), ..tensor.clone() }.into())
}
