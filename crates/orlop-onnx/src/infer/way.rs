//! [`Way`]: how an iteration changes a part of a loop's state.
//!
//! Only what a body obviously does counts: it adds a constant by `Add` or `Sub`, appends by `Concat` or
//! `SequenceInsert`, and compares by `Less` and the like. A range that merely moves by a constant could be
//! that of another function.

use super::control::Captured;
use super::{Fact, Facts, Range, Tensor, axis_of, to_integer, types};
use crate::decode::{Node, Scope};
use std::collections::HashMap;

/// Nodes between a part of the state and its next value, or between a condition and what it compares.
const MAX_NODES: usize = 32;

/// Numbers up to this size are the same in all types that a counter may be cast to.
pub(super) const MAX_NUMBER: f64 = (1 << 24) as f64;

/// What an iteration does to a part of the state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Change {
    /// Adds a number to the only element.
    Step(f64),
    /// Appends elements along an axis.
    Growth { axis: usize, by: Range },
    /// Appends tensors to a sequence.
    Length(Range),
}

/// A number to which each iteration adds a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// The input of the body.
    pub(super) input: usize,
    /// What the input is in the first iteration.
    pub(super) start: (f64, f64),
    pub(super) step: f64,
}

/// The way from the state of a body to what it is after the iteration.
pub(super) struct Way<'a> {
    scope: &'a Scope,
    facts: &'a Facts,
    /// By the value that a node writes first.
    producers: HashMap<usize, &'a Node>,
}

impl<'a> Way<'a> {
    pub(super) fn new(body: &'a Captured<'_>, facts: &'a Facts) -> Self {
        let scope = body.scope();
        let written = |node: &'a Node| Some((node.outputs.first().copied()??, node));
        Self { scope, facts, producers: scope.nodes.iter().filter_map(written).collect() }
    }

    /// Returns what the iteration does to the part of the state at a position.
    pub(super) fn change(&self, position: usize) -> Option<Change> {
        let (input, output) = (*self.scope.inputs.get(position + 2)?, *self.scope.outputs.get(position + 1)?);
        let step = || self.added(input, output, &mut MAX_NODES.clone()).map(Change::Step);
        step().or_else(|| self.appended(input, output, &mut MAX_NODES.clone())?)
    }

    /// Returns the number of iterations after which the condition of the body ends the loop, by inputs that
    /// count them.
    pub(super) fn iterations(&self, paces: &[Pace]) -> Option<Range> {
        let condition = *self.scope.outputs.first()?;
        self.holds_for(condition, paces, &mut MAX_NODES.clone())
    }

    /// Returns the input of the body at a position of the state as one that counts the iterations.
    pub(super) fn pace(&self, position: usize, start: &Fact, step: f64) -> Option<Pace> {
        Some(Pace { input: *self.scope.inputs.get(position + 2)?, start: span(start)?, step })
    }

    /// Returns the number of the iteration, which counts from this one on.
    pub(super) fn number(&self, from: i64) -> Option<Pace> {
        let start = from as f64;
        let is_exact = start <= MAX_NUMBER;
        is_exact.then_some(Pace { input: *self.scope.inputs.first()?, start: (start, start), step: 1.0 })
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
        let node = self.producer(value)?;
        let constant = |index: usize| exact(self.facts.values.get(operand(node, index)?)?);
        let mut before = |index: usize| self.added(from, operand(node, index)?, nodes);
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

    /// Returns what is appended to `from` for `value`; `Some(None)` if that is nothing.
    fn appended(&self, from: usize, value: usize, nodes: &mut usize) -> Option<Option<Change>> {
        *nodes = nodes.checked_sub(1)?;
        if value == from {
            return Some(None);
        }
        let node = self.producer(value)?;
        match &*node.operator {
            "Identity" | "Cast" => self.appended(from, operand(node, 0)?, nodes),
            "SequenceInsert" => {
                let before = match self.appended(from, operand(node, 0)?, nodes)? {
                    None => Range::exactly(0),
                    Some(Change::Length(by)) => by,
                    Some(_) => return None,
                };
                Some(Some(Change::Length(before.add(Range::exactly(1)))))
            }
            "Concat" => {
                let axis = axis_of(node.attribute("axis")?.i?, self.shape(value)?.len()).ok()?;
                let mut by = Range::exactly(0);
                let mut is_found = false;
                for &input in &node.inputs {
                    let input = input?;
                    let before = if is_found { None } else { self.appended(from, input, nodes) };
                    is_found |= before.is_some();
                    by = by.add(match before {
                        None => *self.shape(input)?.get(axis)?,
                        Some(None) => Range::exactly(0),
                        Some(Some(Change::Growth { axis: same, by })) if same == axis => by,
                        Some(Some(_)) => return None,
                    });
                }
                (is_found && by.is_bounded()).then_some(Some(Change::Growth { axis, by }))
            }
            _ => None,
        }
    }

    /// Returns the number of iterations after which a condition is false for the first time.
    fn holds_for(&self, condition: usize, paces: &[Pace], nodes: &mut usize) -> Option<Range> {
        *nodes = nodes.checked_sub(1)?;
        let node = self.producer(condition)?;
        let (left, right) = (operand(node, 0)?, operand(node, 1));
        match &*node.operator {
            "Identity" | "Cast" => self.holds_for(left, paces, nodes),
            "And" => {
                let [left, right] = [left, right?].map(|side| self.holds_for(side, paces, nodes));
                match (left, right) {
                    (Some(left), Some(right)) => Some(left.minimum(right)),
                    (Some(one), None) | (None, Some(one)) => Some(one.with_min(1)),
                    (None, None) => None,
                }
            }
            "Less" => self.is_less_for(left, right?, false, paces),
            "LessOrEqual" => self.is_less_for(left, right?, true, paces),
            "Greater" => self.is_less_for(right?, left, false, paces),
            "GreaterOrEqual" => self.is_less_for(right?, left, true, paces),
            _ => None,
        }
    }

    /// Returns the number of iterations until `left` is not less than `right`, and not equal to it either if
    /// that counts: one of them approaches the other.
    fn is_less_for(&self, left: usize, right: usize, or_equal: bool, paces: &[Pace]) -> Option<Range> {
        paces.iter().find_map(|&Pace { input, start, step }| {
            let counted = |value: usize| self.added(input, value, &mut MAX_NODES.clone());
            let other = |value: usize| span(self.facts.values.get(value)?);
            // The counter is this far from its end when it is compared first.
            let (distance, pace) = if step > 0.0 {
                let (first, end) = (counted(left)?, other(right)?);
                ((end.0 - first - start.1, end.1 - first - start.0), step)
            } else {
                let (first, end) = (counted(right)?, other(left)?);
                ((start.0 + first - end.1, start.1 + first - end.0), -step)
            };
            // It is compared after the first iteration, whatever it is before.
            let count = |distance: f64| {
                let paces = distance / pace;
                let paces = if or_equal { paces.floor() + 1.0 } else { paces.ceil() };
                (pace > 0.0 && paces.abs() <= MAX_NUMBER).then(|| to_integer(paces.max(0.0)) + 1)
            };
            Some(Range::between(count(distance.0)?, count(distance.1)?))
        })
    }

    fn producer(&self, value: usize) -> Option<&'a Node> {
        self.producers.get(&value).copied().filter(|node| node.domain.is_empty())
    }

    fn shape(&self, value: usize) -> Option<&'a [Range]> {
        self.facts.values.get(value)?.tensor()?.shape.as_deref()
    }
}

fn operand(node: &Node, index: usize) -> Option<usize> {
    node.inputs.get(index).copied().flatten()
}

/// Returns `true` for one element of a type that has all whole numbers up to the largest.
fn is_number(fact: &Fact) -> bool {
    let is_one = |tensor: &Tensor| {
        let is_exact = matches!(tensor.data_type, types::INT32 | types::INT64 | types::FLOAT | types::DOUBLE);
        is_exact && tensor.shape.as_ref().is_some_and(|shape| shape.iter().all(|size| size.is_exactly(1)))
    };
    fact.tensor().is_some_and(is_one)
}

/// Returns the least and the greatest number that the element of a tensor can be.
fn span(fact: &Fact) -> Option<(f64, f64)> {
    let element = *fact.tensor()?.elements.as_ref()?.first()?;
    let (min, max) = element.span();
    let is_exact = |end: f64| end.fract() == 0.0 && end.abs() <= MAX_NUMBER;
    (is_number(fact) && is_exact(min) && is_exact(max)).then_some((min, max))
}

/// Returns the whole number that a tensor of one element is.
fn exact(fact: &Fact) -> Option<f64> {
    let (min, max) = span(fact)?;
    (min == max).then_some(min)
}
