//! Operators that reduce elements along axes.

use super::elementwise::tracked_sizes;
use super::layout::flat;
use super::{Operator, own};
use crate::infer::{Binary, Call, Element, Fault, Outcome, Range, Tensor, axis_of, row_major};

pub(super) const OPERATORS: &[Operator] = &[
    own("ReduceSum", |call| reduce(call, Some(Binary::Add))),
    own("ReduceProd", |call| reduce(call, Some(Binary::Multiply))),
    own("ReduceMax", |call| reduce(call, Some(Binary::Maximum))),
    own("ReduceMin", |call| reduce(call, Some(Binary::Minimum))),
    own("ReduceMean", |call| reduce(call, None)),
    own("ReduceL1", |call| reduce(call, None)),
    own("ReduceL2", |call| reduce(call, None)),
    own("ReduceLogSum", |call| reduce(call, None)),
    own("ReduceLogSumExp", |call| reduce(call, None)),
    own("ReduceSumSquare", |call| reduce(call, None)),
];

fn reduce(call: &Call<'_>, operator: Option<Binary>) -> Outcome {
    let input = call.tensor(0)?;
    let shape = call.shape(0)?;
    let axes = call.axes(1)?.unwrap_or_default();
    if axes.is_empty() && call.flag("noop_with_empty_axes") {
        // Logarithms and squares are still computed.
        let elements = input.elements.clone().filter(|_| operator.is_some());
        return Ok(vec![Tensor { elements, ..input.clone() }.into()]);
    }
    let mut is_reduced = vec![axes.is_empty(); shape.len()];
    for axis in axes {
        is_reduced[axis_of(axis, shape.len())?] = true;
    }
    let keeps = call.int_or("keepdims", 1) != 0;
    let kept = shape.iter().zip(&is_reduced).filter_map(|(&size, &is_reduced)| match is_reduced {
        false => Some(size),
        true => keeps.then_some(Range::exactly(1)),
    });
    let result = Tensor::new(input.data_type, kept.collect());
    let elements = operator.and_then(|operator| reduced(input, &is_reduced, operator));
    match elements {
        Some(elements) => Ok(vec![Tensor { elements: Some(elements), ..result }.into()]),
        None => Ok(vec![result.into()]),
    }
}

fn reduced(input: &Tensor, is_reduced: &[bool], operator: Binary) -> Option<Vec<Element>> {
    let from = tracked_sizes(input)?;
    let elements = input.elements.as_ref()?;
    // Without elements the result is the neutral one, which is not tracked.
    let to: Vec<usize> =
        from.iter().zip(is_reduced).map(|(&size, &is_reduced)| if is_reduced { 1 } else { size }).collect();
    let mut result: Vec<Option<Element>> = vec![None; to.iter().product()];
    for (index, &element) in row_major(&from).zip(elements) {
        let place: Vec<_> = index
            .iter()
            .zip(is_reduced)
            .map(|(&index, &is_reduced)| if is_reduced { 0 } else { index })
            .collect();
        let sum = result.get_mut(flat(&to, &place))?;
        *sum = Some(match *sum {
            None => element,
            Some(sum) => operator.apply(sum, element, input.data_type)?,
        });
    }
    result.into_iter().collect()
}

/// Returns the sizes that are left when all spatial dimensions are reduced to one element.
pub(super) fn global(call: &Call<'_>) -> Outcome {
    let shape = call.shape(0)?;
    let (Some(batch), Some(channels)) = (shape.first(), shape.get(1)) else {
        return Err(Fault::Invalid("its input has no channels"));
    };
    let ones = vec![Range::exactly(1); shape.len() - 2];
    Ok(vec![Tensor::new(call.data_type(0), [&[*batch, *channels][..], &ones].concat()).into()])
}
