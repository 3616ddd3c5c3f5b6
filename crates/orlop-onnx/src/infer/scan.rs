//! `Scan` and `SequenceMap`: a body for each slice of tensors, for each element of sequences.

use super::control::{Captured, ExecutedBody, hulls, results};
use super::loops::MAX_ATTEMPTS;
use super::widen::widened;
use super::{Call, Fact, Fault, Inference, Range, Tensor, axis_of};
use crate::OnnxError;

impl Inference<'_> {
    /// Inputs: the state, and tensors that are cut into slices. Outputs: the state, and slices that are put
    /// together. Version 8 has lengths in front, and a batch.
    pub(super) fn scan(&mut self, call: &Call<'_>, body: &Captured<'_>) -> Result<ExecutedBody, OnnxError> {
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
                _ => return Ok((Err(Fault::Unknown), None)),
            }
        }
        let batch = call.shape(1).ok().and_then(|shape| shape.first().copied()).filter(|_| has_batch);
        let without_batch = |fact: &Fact| match batch {
            Some(_) => slice(fact, 0, 0).map_or(Fact::Unknown, |(fact, _)| fact),
            None => fact.clone(),
        };
        let mut state: Vec<Fact> =
            inputs[..states].iter().map(|fact| fact.map_or(Fact::Unknown, without_batch)).collect();
        // A size is not the same one in all iterations.
        state.iter_mut().for_each(Fact::forget_factors);
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
            return Ok((Ok(last.chain(stacks).collect()), Some(facts)));
        }
        Ok((Err(Fault::Unknown), None))
    }

    /// Applies the body to each element of sequences; other inputs are the same each time.
    pub(super) fn map(&mut self, call: &Call<'_>, body: &Captured<'_>) -> Result<ExecutedBody, OnnxError> {
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
        Ok((Ok(outputs), Some(facts)))
    }
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
pub(super) fn stacked(fact: &Fact, axis: i64, count: Range) -> Fact {
    let Some(tensor) = fact.tensor() else { return Fact::Unknown };
    let stack = |shape: &Vec<Range>| {
        let mut shape = shape.clone();
        let axis = axis_of(axis, shape.len() + 1).ok()?;
        shape.insert(axis, count);
        Some(shape)
    };
    Tensor { shape: tensor.shape.as_ref().and_then(stack), elements: None, ..tensor.clone() }.into()
}
