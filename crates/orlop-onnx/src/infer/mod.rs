//! What is known about the values of a graph, given its inputs.
//!
//! Sizes are ranges ([`Range`]), because some depend on data; elements of small tensors are ranges, too
//! ([`Element`]), because shapes are computed from them. A rule for each operator ([`crate::rules`]) covers
//! everything that the operator can give for inputs within their ranges. What the file says about a value
//! counts only where the rules know nothing.
//!
//! | file | what it holds |
//! |---|---|
//! | `range`, `element`, `fact` | what is known about an integer, an element, a value |
//! | `factors` | which integers are the same, or products of the same |
//! | `arithmetic` | arithmetic on elements |
//! | `call` | a node with what is known about its inputs, as rules see it |
//! | `control` | `If`, which executes bodies |
//! | `loops` | `Loop` |
//! | `counters`, `way` | parts of a loop's state that count its iterations, and how a body changes them |
//! | `scan` | `Scan` and `SequenceMap`, which do for each slice and each element |

mod arithmetic;
mod call;
mod control;
mod counters;
mod element;
mod fact;
mod factors;
mod loops;
mod range;
mod scan;
mod way;
mod widen;

pub(crate) use self::arithmetic::{Binary, Unary, result_type};
pub(crate) use self::call::{Call, Fault, Outcome, axis_of, one};
pub(crate) use self::element::{Element, rounded, to_integer, to_single, types};
pub(crate) use self::fact::{Fact, MAX_ELEMENTS, Tensor};
pub(crate) use self::factors::Unknowns;
pub(crate) use self::range::Range;

use self::control::{Executed, possible};
use crate::OnnxError;
use crate::bindings::Bindings;
use crate::decode::{Node, Scope};
use crate::proto::{DimensionSize, TypeProto};

/// Nodes with their inputs and outputs, and values of bodies, are visited this often: those in loops several
/// times.
const MAX_STEPS: u64 = 1 << 20;

/// The steps of a node, about.
const STEPS_OF_NODE: u64 = 4;

/// The number of nodes after which, one behind the other, both cases are followed.
const MAX_CASES: usize = 4;

/// What is known about the values of a graph, and about those of the bodies that its nodes execute.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Facts {
    pub(crate) values: Vec<Fact>,
    /// By node, by body. `None` for bodies that are not executed.
    pub(crate) bodies: Vec<Vec<Option<Facts>>>,
}

impl Facts {
    /// Returns `true` if all values have the shapes that they have in another run.
    fn has_shapes_of(&self, other: &Self) -> bool {
        let is_same = |(left, right): (&Fact, &Fact)| match (left, right) {
            (Fact::Tensor(left), Fact::Tensor(right)) => left.shape == right.shape,
            (left, right) => left == right,
        };
        let is_same_body = |(left, right): (&Option<Self>, &Option<Self>)| match (left, right) {
            (Some(left), Some(right)) => left.has_shapes_of(right),
            (left, right) => left.is_none() && right.is_none(),
        };
        let bodies = |(left, right): (&Vec<_>, &Vec<_>)| left.iter().zip(right).all(is_same_body);
        self.values.iter().zip(&other.values).all(is_same)
            && self.bodies.iter().zip(&other.bodies).all(bodies)
    }

    /// Returns what holds for both of two runs. A value whose rank is not the same in both has the shape with
    /// more elements, which has room for either.
    fn hull(&self, other: &Self) -> Self {
        let body = |(left, right): (&Option<Self>, &Option<Self>)| match (left, right) {
            (Some(left), Some(right)) => Some(left.hull(right)),
            (left, right) => left.clone().or_else(|| right.clone()),
        };
        let bodies = |(left, right): (&Vec<_>, &Vec<_>)| left.iter().zip(right).map(body).collect();
        Self {
            values: self.values.iter().zip(&other.values).map(|(left, right)| left.room(right)).collect(),
            bodies: self.bodies.iter().zip(&other.bodies).map(bodies).collect(),
        }
    }
}

/// Infers the facts of a graph.
pub(crate) struct Inference<'a> {
    bindings: &'a Bindings,
    unknowns: Unknowns,
    steps: u64,
    /// The number of bodies that are executed inside of each other.
    depth: usize,
    /// The number of nodes of which one of two cases is being followed.
    cases: usize,
}

impl<'a> Inference<'a> {
    pub(crate) fn new(bindings: &'a Bindings, unknowns: Unknowns) -> Self {
        Self { bindings, unknowns, steps: 0, depth: 0, cases: 0 }
    }

    /// Infers all values from the inputs of a graph and the values that it captures, in their orders.
    pub(crate) fn scope(
        &mut self,
        scope: &Scope,
        inputs: Vec<Fact>,
        captured: Vec<Fact>,
    ) -> Result<Facts, OnnxError> {
        let mut values = vec![Fact::Unknown; scope.values.len()];
        let captures = scope.captures.iter().map(|&(_, inner)| inner);
        for (value, fact) in scope.inputs.iter().copied().zip(inputs).chain(captures.zip(captured)) {
            values[value] = self.completed(fact);
        }
        for constant in &scope.constants {
            let claim = || self.claimed(scope, constant.value);
            values[constant.value] = constant.tensor.clone().map_or_else(claim, Fact::Tensor);
        }
        self.nodes(scope, 0, Facts { values, bodies: Vec::with_capacity(scope.nodes.len()) })
    }

    /// Infers the outputs of the nodes of a graph from the one at `first` on.
    fn nodes(&mut self, scope: &Scope, first: usize, mut facts: Facts) -> Result<Facts, OnnxError> {
        for (node, next) in scope.nodes.iter().zip(1..).skip(first) {
            self.count(1 + node.inputs.len() + node.outputs.len(), node)?;
            let inputs = node.inputs.iter().map(|input| input.map(|input| &facts.values[input])).collect();
            let call = Call { node, inputs };
            let executed = self.control(&call, &facts.values)?.unwrap_or_else(|| Executed {
                outcome: node.rule.map_or(Err(Fault::Unknown), |rule| (rule.rule)(&call)),
                bodies: Vec::new(),
                either: None,
            });
            facts.bodies.push(executed.bodies);
            self.set_outputs(scope, node, executed.outcome, &mut facts.values)?;
            let has_size = |output: &Option<usize>| output.is_none_or(|it| facts.values[it].has_size());
            if let Some(either) = executed.either
                && !node.outputs.iter().all(has_size)
                && either.iter().flatten().all(Fact::has_size)
                && self.can_follow_cases(scope.nodes.len() - next)
            {
                self.cases += 1;
                let facts = self.either(scope, next, facts, either);
                self.cases -= 1;
                return facts;
            }
        }
        Ok(facts)
    }

    /// Returns `true` if the remaining nodes of a graph can be visited twice.
    fn can_follow_cases(&self, nodes: usize) -> bool {
        let steps = u64::try_from(nodes).unwrap_or(u64::MAX).saturating_mul(2 * STEPS_OF_NODE);
        self.cases < MAX_CASES && self.steps.saturating_add(steps) <= MAX_STEPS
    }

    /// Goes on from the node at `next`, which follows one whose outputs differ in rank: once for each of both
    /// cases. One that contradicts what follows does not happen.
    fn either(
        &mut self,
        scope: &Scope,
        next: usize,
        before: Facts,
        either: [Vec<Fact>; 2],
    ) -> Result<Facts, OnnxError> {
        let mut cases = [before.clone(), before.clone()];
        for (facts, outputs) in cases.iter_mut().zip(either) {
            self.set_outputs(scope, &scope.nodes[next - 1], Ok(outputs), &mut facts.values)?;
        }
        let found = possible(cases.into_iter().map(|facts| self.nodes(scope, next, facts)))?.into_iter();
        let hull = found.reduce(|left, right| self.hull_of_cases(scope, &left, &right));
        Ok(hull.unwrap_or(before))
    }

    /// As [`Facts::hull`]. The node that executes a body goes on with its outputs: of those, nothing is known
    /// that holds in one case only.
    fn hull_of_cases(&self, scope: &Scope, left: &Facts, right: &Facts) -> Facts {
        let mut hull = left.hull(right);
        if self.depth > 0 {
            for &output in &scope.outputs {
                hull.values[output] = left.values[output].hull(&right.values[output]);
            }
        }
        hull
    }

    /// Counts steps before they are done.
    fn count(&mut self, steps: usize, node: &Node) -> Result<(), OnnxError> {
        self.steps = self.steps.saturating_add(u64::try_from(steps).unwrap_or(u64::MAX));
        if self.steps <= MAX_STEPS {
            return Ok(());
        }
        Err(OnnxError::TooComplex { node: node.title.clone() })
    }

    fn set_outputs(
        &mut self,
        scope: &Scope,
        node: &Node,
        outcome: Outcome,
        values: &mut [Fact],
    ) -> Result<(), OnnxError> {
        let facts = match outcome {
            Ok(facts) => facts,
            Err(Fault::Unknown) => Vec::new(),
            Err(Fault::Invalid(reason)) => return Err(contradiction(node, reason)),
        };
        let mut facts = facts.into_iter();
        for &output in &node.outputs {
            let inferred = facts.next().unwrap_or(Fact::Unknown);
            let Some(output) = output else { continue };
            let fact = with_claim(inferred, self.claimed(scope, output));
            let fact = match self.bindings.bounds.get(scope.name(output)) {
                Some(bound) => {
                    bounded(fact, bound).ok_or_else(|| contradiction(node, "an output exceeds its bound"))?
                }
                None => fact,
            };
            values[output] = self.completed(fact);
        }
        Ok(())
    }

    /// Gives factors to the integers of a value.
    fn completed(&mut self, mut fact: Fact) -> Fact {
        fact.update_ranges(&mut |range| self.unknowns.complete(range));
        fact
    }

    /// Returns what the file says about a value.
    fn claimed(&self, scope: &Scope, value: usize) -> Fact {
        scope.values[value].claim.as_ref().map_or(Fact::Unknown, |claim| self.of_type(claim))
    }

    /// Returns what a type says, with the numbers of names.
    fn of_type(&self, of: &TypeProto) -> Fact {
        fact_of(of, &|symbol| self.bindings.size_of(symbol))
    }
}

fn contradiction(node: &Node, reason: &'static str) -> OnnxError {
    OnnxError::Contradiction { node: node.title.clone(), operator: node.operator.clone(), reason }
}

/// Returns what a type says without numbers for names.
pub(crate) fn fact_of_type(of: &TypeProto) -> Fact {
    fact_of(of, &|_| None)
}

fn fact_of(of: &TypeProto, size_of: &dyn Fn(&str) -> Option<Range>) -> Fact {
    let inner = |element: &crate::proto::ElementTypeProto| {
        Box::new(element.elem_type.as_ref().map_or(Fact::Unknown, |of| fact_of(of, size_of)))
    };
    match (&of.tensor_type, &of.sequence_type, &of.optional_type) {
        (Some(tensor), ..) => {
            let size = |dimension: &crate::proto::Dimension| match &dimension.size {
                Some(DimensionSize::Value(size)) if *size >= 0 => Range::exactly(*size),
                Some(DimensionSize::Symbol(name)) => size_of(name).unwrap_or(Range::ANY_SIZE),
                _ => Range::ANY_SIZE,
            };
            let shape = tensor.shape.as_ref().map(|shape| shape.dim.iter().map(size).collect());
            Fact::Tensor(Tensor { data_type: tensor.elem_type, shape, elements: None })
        }
        (_, Some(sequence), _) => Fact::Sequence { element: inner(sequence), length: Range::ANY_SIZE },
        (.., Some(optional)) => Fact::Optional(inner(optional)),
        _ => Fact::Opaque,
    }
}

/// Completes what was inferred by what the file says.
fn with_claim(inferred: Fact, claim: Fact) -> Fact {
    match (inferred, claim) {
        (Fact::Unknown, claim) => claim,
        (Fact::Tensor(mut inferred), Fact::Tensor(claim)) => {
            if inferred.data_type == 0 {
                inferred.data_type = claim.data_type;
            }
            match (&mut inferred.shape, claim.shape) {
                (None, claim) => inferred.shape = claim,
                (Some(inferred), Some(claim)) if inferred.len() == claim.len() => {
                    for (size, claim) in inferred.iter_mut().zip(claim) {
                        if !size.is_bounded() {
                            *size = size.intersection(claim).unwrap_or(*size);
                        }
                    }
                }
                _ => {}
            }
            Fact::Tensor(inferred)
        }
        (inferred, _) => inferred,
    }
}

/// Applies a bound of the user. `None` if what is known exceeds it.
fn bounded(fact: Fact, bound: &[u64]) -> Option<Fact> {
    let bound: Vec<Range> =
        bound.iter().map(|&size| Range::up_to(i64::try_from(size).unwrap_or(i64::MAX))).collect();
    let tensor = match fact {
        Fact::Tensor(tensor) => tensor,
        // Its type is not known either: memory for the widest one that is common.
        Fact::Unknown => Tensor::of_unknown_shape(types::DOUBLE),
        other => return Some(other),
    };
    let shape = match &tensor.shape {
        // With another rank, it is the number of elements that counts.
        Some(shape) if shape.len() != bound.len() => {
            let fits = Range::product(shape).max() <= Range::product(&bound).max();
            return fits.then_some(Fact::Tensor(tensor));
        }
        Some(shape) => shape.iter().zip(bound).map(|(size, bound)| size.intersection(bound)).collect(),
        None => Some(bound),
    };
    Some(Fact::Tensor(Tensor { shape: Some(shape?), ..tensor }))
}

/// Returns the index of each element of a tensor, in row-major order.
pub(crate) fn row_major(sizes: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let count: usize = sizes.iter().product();
    (0..count).map(move |mut place| {
        let mut index = vec![0; sizes.len()];
        for (position, &size) in index.iter_mut().zip(sizes).rev() {
            *position = place % size;
            place /= size;
        }
        index
    })
}
