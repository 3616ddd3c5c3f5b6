//! [`Counters`]: parts of a loop's state to which each iteration adds the same number.
//!
//! Nothing in the body bounds such a number, but the iterations do: after `n` of them it is `n` steps from
//! its start. Only what a body obviously adds counts, a constant by `Add` or `Sub`, because a range that
//! merely moves by the step could be that of another function.

use super::control::Captured;
use super::{Element, Fact, Facts, Range, Tensor, to_integer, types};
use crate::decode::{Node, Scope};
use std::collections::HashMap;

/// Nodes between a counter and its next value.
const MAX_NODES: usize = 32;

/// Numbers up to this size are the same in all types that a counter may be cast to.
const MAX_NUMBER: f64 = (1 << 24) as f64;

/// A counter of a loop.
struct Counter {
    /// The position in the state.
    position: usize,
    step: f64,
    /// What it is in all iterations.
    during: Fact,
    /// What it is after each of them, or before the first.
    after: Fact,
}

/// The counters of a loop.
pub(super) struct Counters(Vec<Counter>);

impl Counters {
    /// Finds the counters of a loop with at most this number of iterations, which begins in this state.
    /// `facts` are those of an iteration.
    pub(super) fn of(body: &Captured<'_>, facts: &Facts, state: &[Fact], iterations: i64) -> Self {
        let way = Way::new(body.scope(), facts);
        let counter = |(position, fact): (usize, &Fact)| {
            let step = way.step(position)?;
            let reached = |steps: i64| moved(fact.tensor()?, step * steps as f64);
            let (during, after) = (reached(iterations - 1)?, reached(iterations)?);
            Some(Counter { position, step, during, after })
        };
        Self(state.iter().enumerate().filter_map(counter).collect())
    }

    /// Sets the counters in a state, which is the hull of those before and after an iteration with `facts`. A
    /// counter that this iteration moves by another step is removed.
    pub(super) fn hold(&mut self, body: &Captured<'_>, facts: &Facts, state: &mut [Fact]) {
        let way = Way::new(body.scope(), facts);
        self.0.retain(|counter| way.step(counter.position) == Some(counter.step));
        for counter in &self.0 {
            state[counter.position] = counter.during.clone();
        }
    }

    /// Returns a state with the counters as they are after the loop.
    pub(super) fn after(&self, mut state: Vec<Fact>) -> Vec<Fact> {
        for counter in &self.0 {
            state[counter.position] = counter.after.clone();
        }
        state
    }
}

/// The way from a part of a body's state to what it is after the iteration.
struct Way<'a> {
    scope: &'a Scope,
    facts: &'a Facts,
    /// By the value that a node writes first.
    producers: HashMap<usize, &'a Node>,
}

impl<'a> Way<'a> {
    fn new(scope: &'a Scope, facts: &'a Facts) -> Self {
        let written = |node: &'a Node| Some((node.outputs.first().copied()??, node));
        Self { scope, facts, producers: scope.nodes.iter().filter_map(written).collect() }
    }

    /// Returns the number that the iteration adds to the only element at a position of the state.
    fn step(&self, position: usize) -> Option<f64> {
        let (input, output) = (self.scope.inputs.get(position + 2)?, self.scope.outputs.get(position + 1)?);
        self.added(*input, *output, &mut MAX_NODES.clone())
    }

    /// Returns what is added to `from` for `value`, if that takes no more than this number of nodes.
    fn added(&self, from: usize, value: usize, nodes: &mut usize) -> Option<f64> {
        *nodes = nodes.checked_sub(1)?;
        if !is_number(self.facts.values.get(value)?) {
            return None;
        }
        if value == from {
            return Some(0.0);
        }
        let node = self.producers.get(&value).filter(|node| node.domain.is_empty())?;
        let operand = |index: usize| node.inputs.get(index).copied().flatten();
        let constant = |index: usize| exact(self.facts.values.get(operand(index)?)?);
        let mut before = |index: usize| self.added(from, operand(index)?, nodes);
        match &*node.operator {
            "Identity" | "Cast" | "Squeeze" | "Unsqueeze" | "Reshape" => before(0),
            "Add" => match (constant(0), constant(1)) {
                // In a first iteration the counter is exact as well.
                (Some(left), Some(right)) => {
                    before(0).map(|total| total + right).or_else(|| Some(before(1)? + left))
                }
                (None, Some(right)) => Some(before(0)? + right),
                (Some(left), None) => Some(before(1)? + left),
                (None, None) => None,
            },
            "Sub" => Some(before(0)? - constant(1)?),
            _ => None,
        }
    }
}

/// Returns `true` for one element of a type that has all whole numbers up to the largest.
fn is_number(fact: &Fact) -> bool {
    let is_one = |tensor: &Tensor| {
        let is_exact = matches!(tensor.data_type, types::INT32 | types::INT64 | types::FLOAT | types::DOUBLE);
        is_exact && tensor.shape.as_ref().is_some_and(|shape| shape.iter().all(|size| size.is_exactly(1)))
    };
    fact.tensor().is_some_and(is_one)
}

/// Returns the whole number that a tensor of one element is.
fn exact(fact: &Fact) -> Option<f64> {
    let element = *fact.tensor()?.elements.as_ref()?.first()?;
    let (min, max) = element.span();
    (is_number(fact) && min == max && min.fract() == 0.0 && min.abs() <= MAX_NUMBER).then_some(min)
}

/// Returns a counter that is moved by anything between nothing and this number.
fn moved(tensor: &Tensor, by: f64) -> Option<Fact> {
    let &[element] = tensor.elements.as_deref()? else { return None };
    let (min, max) = element.span();
    let (min, max) = (min + by.min(0.0), max + by.max(0.0));
    let is_counted = |end: f64| end.fract() == 0.0 && end.abs() <= MAX_NUMBER;
    if !is_counted(min) || !is_counted(max) {
        return None;
    }
    let element = match element {
        Element::Int(_) => Element::Int(Range { min: to_integer(min), max: to_integer(max) }),
        Element::Real(..) => Element::Real(min, max),
    };
    Some(Tensor { elements: Some(vec![element]), ..tensor.clone() }.into())
}
