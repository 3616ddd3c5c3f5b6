//! Results whose number depends on data. The inputs bound it.

use super::{Operator, own};
use crate::infer::{Call, Fault, Outcome, Range, Tensor, axis_of, one, types};

pub(super) const OPERATORS: &[Operator] = &[
    own("NonZero", non_zero),
    own("Compress", compress),
    own("Unique", unique),
    own("NonMaxSuppression", non_max_suppression),
];

fn non_zero(call: &Call<'_>) -> Outcome {
    let input = call.tensor(0)?;
    let shape = call.shape(0)?;
    let rank = Range::exactly(i64::try_from(shape.len()).unwrap_or(i64::MAX));
    let truths = input.elements.as_ref().map(|elements| elements.iter().map(|element| element.truth()));
    let count = match truths.and_then(|truths| truths.collect::<Option<Vec<bool>>>()) {
        Some(truths) => Range::exactly(i64::try_from(truths.iter().filter(|&&is| is).count()).unwrap_or(0)),
        None => Range::up_to(Range::product(shape).max()),
    };
    one(types::INT64, vec![rank, count])
}

fn compress(call: &Call<'_>) -> Outcome {
    let shape = call.shape(0)?;
    let truths = call
        .elements(1)
        .and_then(|elements| elements.iter().map(|element| element.truth()).collect::<Option<Vec<bool>>>());
    let kept = truths
        .map(|truths| Range::exactly(i64::try_from(truths.iter().filter(|&&is| is).count()).unwrap_or(0)));
    let Some(axis) = call.int("axis") else {
        return one(call.data_type(0), vec![kept.unwrap_or(Range::up_to(Range::product(shape).max()))]);
    };
    let mut shape = shape.to_vec();
    let axis = axis_of(axis, shape.len())?;
    shape[axis] = kept.unwrap_or(Range::up_to(shape[axis].max()));
    one(call.data_type(0), shape)
}

fn unique(call: &Call<'_>) -> Outcome {
    let mut shape = call.shape(0)?.to_vec();
    let (count, inverse) = match call.int("axis") {
        Some(axis) => {
            let axis = axis_of(axis, shape.len())?;
            let all = shape[axis];
            shape[axis] = Range::up_to(all.max());
            (shape[axis], all)
        }
        None => {
            let all = Range::product(&shape);
            shape = vec![Range::up_to(all.max())];
            (shape[0], all)
        }
    };
    let row = |size: Range| Tensor::new(types::INT64, vec![size]).into();
    Ok(vec![Tensor::new(call.data_type(0), shape).into(), row(count), row(inverse), row(count)])
}

/// Boxes `[batch, boxes, 4]`, scores `[batch, classes, boxes]`.
fn non_max_suppression(call: &Call<'_>) -> Outcome {
    let &[batch, classes, boxes] = call.shape(1)? else {
        return Err(Fault::Invalid("its scores have not three dimensions"));
    };
    let limit = if call.has(2) { call.integer(2).unwrap_or(Range::ANY_SIZE) } else { Range::exactly(0) };
    let chosen = boxes.minimum(limit.maximum(Range::exactly(0)));
    let all = batch.multiply(classes).multiply(chosen);
    one(types::INT64, vec![Range::up_to(all.max()), Range::exactly(3)])
}
