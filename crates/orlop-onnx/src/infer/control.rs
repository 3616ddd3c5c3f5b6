//! Nodes that execute bodies: `If`, `Loop`, `Scan` and `SequenceMap`.

use super::{Call, Element, Fact, Facts, Fault, Inference, Outcome, Range, Tensor, axis_of, types};
use crate::OnnxError;
use crate::decode::Body;

/// A loop is followed one by one for at most this many iterations, and executed nodes.
const MAX_FOLLOWED: (i64, i64) = (1024, 1 << 15);

/// A state that has not settled after this many runs of a body is not known.
const MAX_ATTEMPTS: usize = 8;

/// The outputs of a node, and the facts of its bodies.
type Executed = (Outcome, Vec<Option<Facts>>);

/// A body with what it captures.
struct Captured<'a> {
    body: &'a Body,
    values: Vec<Fact>,
}

impl Inference<'_> {
    /// Infers a node that executes bodies. `None` for other nodes. `around` has the values of its graph.
    pub(super) fn control(
        &mut self,
        call: &Call<'_>,
        around: &[Fact],
    ) -> Result<Option<Executed>, OnnxError> {
        let node = call.node;
        if node.bodies.is_empty() || !node.domain.is_empty() {
            return Ok(None);
        }
        let body = |attribute: &str| {
            let (_, body) = node.body(attribute)?;
            let values = body.scope.captures.iter().map(|&(outer, _)| around[outer].clone()).collect();
            Some(Captured { body, values })
        };
        let result = match (&*node.operator, body("then_branch"), body("else_branch"), body("body")) {
            ("If", Some(then), Some(other), _) => self.branch(call, &then, &other)?,
            ("Loop", .., Some(body)) => self.repeat(call, &body)?,
            ("Scan", .., Some(body)) => self.scan(call, &body)?,
            ("SequenceMap", .., Some(body)) => self.map(call, &body)?,
            _ => return Ok(None),
        };
        Ok(Some(result))
    }

    fn run(&mut self, body: &Captured<'_>, inputs: Vec<Fact>) -> Result<Facts, OnnxError> {
        self.scope(&body.body.scope, inputs, body.values.clone())
    }

    fn branch(
        &mut self,
        call: &Call<'_>,
        then: &Captured<'_>,
        other: &Captured<'_>,
    ) -> Result<Executed, OnnxError> {
        let condition = call.elements(0).and_then(|elements| elements.first()?.truth());
        let mut executed = vec![None; call.node.bodies.len()];
        let mut outputs: Option<Vec<Fact>> = None;
        let mut failure = None;
        for (branch, is_taken) in [(then, condition != Some(false)), (other, condition != Some(true))] {
            if !is_taken {
                continue;
            }
            match self.run(branch, Vec::new()) {
                Ok(facts) => {
                    let results = results(branch, &facts);
                    outputs = Some(match outputs {
                        None => results,
                        Some(others) => hulls(&others, &results),
                    });
                    let index = call.node.body(&branch.body.attribute).map_or(0, |(index, _)| index);
                    executed[index] = Some(facts);
                }
                // A branch that contradicts the inputs is not the one that is taken for them.
                Err(error @ OnnxError::Contradiction { .. }) => failure = Some(error),
                Err(error) => return Err(error),
            }
        }
        match (outputs, failure) {
            (Some(outputs), _) => Ok((Ok(outputs), executed)),
            (None, Some(error)) => Err(error),
            (None, None) => Ok((Err(Fault::Unknown), executed)),
        }
    }

    /// Inputs: the trip count, the condition, the state. The body has the number of the iteration, the
    /// condition and the state; the condition, the new state, and results that are collected.
    fn repeat(&mut self, call: &Call<'_>, body: &Captured<'_>) -> Result<Executed, OnnxError> {
        // Without a count only the condition ends the loop.
        let mut trips = match call.has(0) {
            true => call.integer(0).unwrap_or(Range::ANY_SIZE).maximum(Range::exactly(0)),
            false => Range::exactly(i64::MAX),
        };
        if let Some(&[bound]) = self.bindings.bounds.get(&*call.node.title).map(Vec::as_slice) {
            trips.max = trips.max.min(i64::try_from(bound).unwrap_or(i64::MAX)).max(trips.min);
        }
        let starts = call.fact(1).map_or(Some(true), truth);
        match starts {
            Some(true) => {}
            Some(false) => trips = Range::exactly(0),
            None => trips.min = 0,
        }
        let state: Vec<Fact> =
            call.inputs.iter().skip(2).map(|fact| fact.cloned().unwrap_or(Fact::Unknown)).collect();
        let mut run = LoopRun::new(trips, call.has(1), &state);
        if !self.follow(body, state.clone(), &mut run)? {
            run = LoopRun::new(trips, call.has(1), &state);
            if !self.cover(body, &state, 0, &mut run)? {
                return Ok((Err(Fault::Unknown), vec![run.all]));
            }
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
                Ok(facts) => results(body, &facts).split_off((1 + states).min(body.body.scope.outputs.len())),
                Err(OnnxError::Contradiction { .. }) => Vec::new(),
                Err(error) => return Err(error),
            },
        };
        let stacks = collected.iter().map(|fact| stacked(fact, 0, run.trips));
        Ok((Ok(outputs.into_iter().chain(stacks).collect()), vec![run.all]))
    }

    /// Follows the iterations of a loop one by one. Returns `false` if there are too many, or if it is not
    /// known when they end.
    fn follow(
        &mut self,
        body: &Captured<'_>,
        mut state: Vec<Fact>,
        run: &mut LoopRun,
    ) -> Result<bool, OnnxError> {
        let nodes = i64::try_from(body.body.scope.node_count().max(1)).unwrap_or(i64::MAX);
        let followed = MAX_FOLLOWED.0.min(MAX_FOLLOWED.1 / nodes);
        let has_few = run.trips.max <= followed;
        for iteration in 0..run.trips.max.min(followed) {
            let facts = self.run(body, loop_inputs(Range::exactly(iteration), &state))?;
            let next = results(body, &facts).get(1..=state.len()).unwrap_or_default().to_vec();
            let goes_on = run.note(body, facts, state.len());
            if goes_on.is_none() && !has_few {
                return Ok(false);
            }
            if goes_on != Some(true) {
                run.trips.min = run.trips.min.min(iteration + 1);
            }
            if goes_on == Some(false) {
                run.trips.max = iteration + 1;
            }
            if iteration + 1 >= run.trips.min {
                run.end_with(&next);
            }
            // Without a change the rest is alike, but for the number of the iteration.
            let is_last = goes_on == Some(false) || iteration + 1 == run.trips.max;
            if is_last || next == state && self.cover(body, &state, iteration + 1, run)? {
                return Ok(true);
            }
            state = next;
        }
        Ok(run.trips.max == 0)
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
        let number = Range { min: from, max: run.trips.max.saturating_sub(1).max(from) };
        let mut settled = None;
        let mut state = state.to_vec();
        for attempt in 0..MAX_ATTEMPTS {
            let facts = self.run(body, loop_inputs(number, &state))?;
            let results = results(body, &facts);
            let next = results.get(1..=state.len()).unwrap_or_default();
            let joined = hulls(&state, next);
            if joined == state {
                settled = Some(facts);
                break;
            }
            state = if attempt < 2 { joined } else { joined.iter().zip(&state).map(widened).collect() };
        }
        let Some(facts) = settled else { return Ok(false) };
        let goes_on = run.note(body, facts, state.len());
        if goes_on != Some(true) {
            run.trips.min = run.trips.min.min(from + 1);
        }
        run.end_with(&state);
        Ok(true)
    }

    /// Inputs: the state, and tensors that are cut into slices. Outputs: the state, and slices that are put
    /// together. Version 8 has lengths in front, and a batch.
    fn scan(&mut self, call: &Call<'_>, body: &Captured<'_>) -> Result<Executed, OnnxError> {
        let has_batch = call.node.version < 9;
        let (first, batch_axes) = if has_batch { (1, 1) } else { (0, 0) };
        let scanned = usize::try_from(call.int_or("num_scan_inputs", 1)).unwrap_or(1);
        let inputs = call.inputs.get(first..).unwrap_or_default();
        let states = inputs.len().saturating_sub(scanned);
        let axes = |name: &str| call.ints(name).unwrap_or_default().to_vec();
        let (input_axes, output_axes) = (axes("scan_input_axes"), axes("scan_output_axes"));
        let mut length = Range::ANY_SIZE;
        let mut slices = Vec::new();
        for (index, fact) in inputs[states..].iter().enumerate() {
            let axis = input_axes.get(index).copied().unwrap_or(0);
            match fact.map(|fact| slice(fact, axis, batch_axes)) {
                Some(Ok((slice, size))) => {
                    length = length.intersection(size).unwrap_or(size);
                    slices.push(slice);
                }
                _ => return Ok((Err(Fault::Unknown), vec![None])),
            }
        }
        let batch = call.shape(1).ok().and_then(|shape| shape.first().copied()).filter(|_| has_batch);
        let without_batch = |fact: &Fact| match batch {
            Some(_) => slice(fact, 0, 0).map_or(Fact::Unknown, |(fact, _)| fact),
            None => fact.clone(),
        };
        let mut state: Vec<Fact> =
            inputs[..states].iter().map(|fact| fact.map_or(Fact::Unknown, without_batch)).collect();
        for attempt in 0..MAX_ATTEMPTS {
            let facts = self.run(body, state.iter().chain(&slices).cloned().collect())?;
            let results = results(body, &facts);
            let joined = hulls(&state, results.get(..states).unwrap_or_default());
            if joined != state {
                state = if attempt < 2 { joined } else { joined.iter().zip(&state).map(widened).collect() };
                continue;
            }
            let with_batch =
                |fact: &Fact| batch.map_or_else(|| fact.clone(), |batch| stacked(fact, 0, batch));
            let last = state.iter().map(with_batch);
            let stacks = results.iter().skip(states).enumerate().map(|(index, fact)| {
                with_batch(&stacked(fact, output_axes.get(index).copied().unwrap_or(0), length))
            });
            return Ok((Ok(last.chain(stacks).collect()), vec![Some(facts)]));
        }
        Ok((Err(Fault::Unknown), vec![None]))
    }

    /// Applies the body to each element of sequences; other inputs are the same each time.
    fn map(&mut self, call: &Call<'_>, body: &Captured<'_>) -> Result<Executed, OnnxError> {
        let mut length = Range::ANY_SIZE;
        let mut elements = Vec::new();
        for fact in call.inputs.iter().map(|fact| fact.unwrap_or(&Fact::Unknown)) {
            elements.push(match fact {
                Fact::Sequence { element, length: own } => {
                    length = length.intersection(*own).unwrap_or(*own);
                    (**element).clone()
                }
                other => other.clone(),
            });
        }
        let facts = self.run(body, elements)?;
        let sequence = |element: Fact| Fact::Sequence { element: Box::new(element), length };
        let outputs = results(body, &facts).into_iter().map(sequence).collect();
        Ok((Ok(outputs), vec![Some(facts)]))
    }
}

/// What is known about the iterations of a loop so far.
struct LoopRun {
    /// The number of iterations.
    trips: Range,
    /// Without a condition at its start, a loop may ignore the one that its body gives.
    has_condition: bool,
    /// The state, wherever the loop may end.
    ends: Option<Vec<Fact>>,
    /// What holds in all iterations.
    all: Option<Facts>,
    /// What each iteration adds to the results that are collected.
    collected: Option<Vec<Fact>>,
}

impl LoopRun {
    fn new(trips: Range, has_condition: bool, state: &[Fact]) -> Self {
        let ends = (trips.min == 0).then(|| state.to_vec());
        Self { trips, has_condition, ends, all: None, collected: None }
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
        results.first().and_then(truth).filter(|&goes_on| goes_on || self.has_condition)
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

/// Returns the outputs of a body.
fn results(body: &Captured<'_>, facts: &Facts) -> Vec<Fact> {
    body.body.scope.outputs.iter().map(|&output| facts.values[output].clone()).collect()
}

fn hulls(left: &[Fact], right: &[Fact]) -> Vec<Fact> {
    left.iter().zip(right).map(|(left, right)| left.hull(right)).collect()
}

fn truth(fact: &Fact) -> Option<bool> {
    fact.tensor()?.elements.as_ref()?.first()?.truth()
}

/// Takes the bounds from sizes that still grow, and the elements, so that a state settles.
fn widened((joined, before): (&Fact, &Fact)) -> Fact {
    match (joined, before) {
        (Fact::Tensor(joined), Fact::Tensor(before)) if joined != before => {
            let shape = match (&joined.shape, &before.shape) {
                (Some(joined), Some(before)) => Some(joined.iter().zip(before).map(wider).collect()),
                _ => None,
            };
            Fact::Tensor(Tensor { data_type: joined.data_type, shape, elements: None })
        }
        (Fact::Sequence { element, length }, Fact::Sequence { element: inner, length: before }) => {
            Fact::Sequence { element: Box::new(widened((element, inner))), length: wider((length, before)) }
        }
        (joined, _) => joined.clone(),
    }
}

fn wider((joined, before): (&Range, &Range)) -> Range {
    if joined == before { *joined } else { Range { min: joined.min.min(0), max: i64::MAX } }
}

/// Returns a tensor without an axis, which is counted without the batch, and the size of that.
fn slice(fact: &Fact, axis: i64, batch_axes: usize) -> Result<(Fact, Range), Fault> {
    let tensor = fact.tensor().ok_or(Fault::Unknown)?;
    let shape = tensor.shape.as_deref().and_then(|shape| shape.get(batch_axes..)).ok_or(Fault::Unknown)?;
    let axis = axis_of(axis, shape.len())?;
    let mut slice = shape.to_vec();
    let size = slice.remove(axis);
    Ok((Tensor::new(tensor.data_type, slice).into(), size))
}

/// Returns slices that are put together along a new axis.
fn stacked(fact: &Fact, axis: i64, count: Range) -> Fact {
    let Some(tensor) = fact.tensor() else { return Fact::Unknown };
    let stack = |shape: &Vec<Range>| {
        let mut shape = shape.clone();
        let axis = axis_of(axis, shape.len() + 1).ok()?;
        shape.insert(axis, count);
        Some(shape)
    };
    Tensor { shape: tensor.shape.as_ref().and_then(stack), elements: None, ..tensor.clone() }.into()
}
