//! Sizes as values, constants, and operators that give the same elements another shape.

use super::{Operator, own, view};
use crate::infer::{
    Call, Element, Fact, Fault, Outcome, Range, Tensor, axis_of, one, rounded, to_integer, types,
};

pub(super) const OPERATORS: &[Operator] = &[
    own("Shape", shape),
    own("Size", size),
    own("ConstantOfShape", constant_of_shape),
    own("Range", range),
    own("EyeLike", eye_like),
    own("Expand", expand),
    own("BitCast", bit_cast),
    view("Identity", identity),
    view("Reshape", reshape),
    view("Flatten", flatten),
    view("Squeeze", squeeze),
    view("Unsqueeze", unsqueeze),
];

fn identity(call: &Call<'_>) -> Outcome {
    Ok(vec![call.fact(0)?.clone()])
}

fn shape(call: &Call<'_>) -> Outcome {
    let Ok(shape) = call.shape(0) else {
        return Ok(vec![Tensor::new(types::INT64, vec![Range::up_to(64)]).into()]);
    };
    let rank = i64::try_from(shape.len()).map_err(|_| Fault::Unknown)?;
    let clamped = |end: i64| {
        let end = if end < 0 { end.saturating_add(rank) } else { end };
        usize::try_from(end.clamp(0, rank)).unwrap_or(0)
    };
    let (start, end) = (clamped(call.int_or("start", 0)), clamped(call.int_or("end", rank)));
    Ok(vec![Tensor::row(shape.get(start..end).unwrap_or_default().iter().copied()).into()])
}

fn size(call: &Call<'_>) -> Outcome {
    let elements = call.shape(0).map_or(Range::ANY_SIZE, Range::product);
    Ok(vec![Tensor::with_elements(types::INT64, &[], vec![Element::Int(elements)]).into()])
}

fn constant_of_shape(call: &Call<'_>) -> Outcome {
    if !matches!(call.data_type(0), 0 | types::INT64) {
        return Err(Fault::Invalid("its shape is not of type int64"));
    }
    let value = call.node.tensor("value");
    let data_type = value.map_or(types::FLOAT, |value| value.data_type);
    let zero = if data_type == types::FLOAT { Element::exact_real(0.0) } else { Element::exact(0) };
    let value = match value {
        Some(value) => value.elements.as_ref().and_then(|elements| elements.first().copied()),
        None => Some(zero),
    };
    let result = Tensor::new(data_type, sizes(call.ranges(0)?)?);
    let elements = value.zip(result.small_sizes()).map(|(value, sizes)| vec![value; sizes.iter().product()]);
    Ok(vec![Tensor { elements, ..result }.into()])
}

/// Returns sizes: none of them is negative.
pub(super) fn sizes(ranges: Vec<Range>) -> Result<Vec<Range>, Fault> {
    let natural =
        |range: Range| range.intersection(Range::ANY_SIZE).ok_or(Fault::Invalid("a size is negative"));
    ranges.into_iter().map(natural).collect()
}

fn range(call: &Call<'_>) -> Outcome {
    let data_type = call.data_type(0);
    let scalar = |index: usize| call.elements(index).and_then(|elements| elements.first().copied());
    let (Some(start), Some(limit), Some(step)) = (scalar(0), scalar(1), scalar(2)) else {
        return Err(Fault::Unknown);
    };
    let (Some(start), Some(limit), Some(step)) = (start.range(), limit.range(), step.range()) else {
        return real_range(data_type, [start, limit, step]);
    };
    let Some(step) = step.exact() else { return one(data_type, vec![Range::ANY_SIZE]) };
    if step == 0 {
        return Err(Fault::Invalid("its step is 0"));
    }
    let distance = if step > 0 { limit.subtract(start) } else { start.subtract(limit) };
    let divisor = i128::from(step).abs();
    let count = match divisor {
        1 => distance.maximum(Range::exactly(0)),
        _ => distance.map_increasing(|distance| (distance.max(0) + divisor - 1) / divisor),
    };
    let result = Tensor::new(data_type, vec![count]);
    let elements = start.exact().zip(result.small_sizes()).map(|(start, sizes)| {
        let number = |index: usize| {
            let index = i64::try_from(index).unwrap_or(i64::MAX);
            Element::exact(index.saturating_mul(step).saturating_add(start))
        };
        (0..sizes[0]).map(number).collect()
    });
    Ok(vec![Tensor { elements, ..result }.into()])
}

fn real_range(data_type: i32, [start, limit, step]: [Element; 3]) -> Outcome {
    let exact = |element: Element| element.is_exact().then(|| element.span().0);
    let (Some(start), Some(limit), Some(step)) = (exact(start), exact(limit), exact(step)) else {
        return one(data_type, vec![Range::ANY_SIZE]);
    };
    if step == 0.0 {
        return Err(Fault::Invalid("its step is 0"));
    }
    // Runtimes compute the number in `f64`, in `f32`, or in the type of the elements; some only the distance.
    let counts = [types::DOUBLE, types::FLOAT, data_type].into_iter().flat_map(|data_type| {
        let distance = rounded(limit - start, data_type);
        [distance / step, rounded(distance / step, data_type)]
    });
    let count = |count: f64| count.is_finite().then(|| Range::exactly(to_integer(count.ceil()).max(0)));
    let counts = counts.map(count).collect::<Option<Vec<_>>>();
    let count = counts.and_then(|counts| counts.into_iter().reduce(Range::hull));
    one(data_type, vec![count.ok_or(Fault::Invalid("it has no end"))?])
}

fn eye_like(call: &Call<'_>) -> Outcome {
    one(call.type_or("dtype", call.data_type(0)), call.shape(0)?.to_vec())
}

fn expand(call: &Call<'_>) -> Outcome {
    let input = call.tensor(0)?;
    let target = sizes(call.ranges(1)?)?;
    let shape = super::elementwise::broadcast_shapes(call.shape(0)?, &target)?;
    let result = Tensor::new(input.data_type, shape);
    let sizes = input.elements.as_ref().and_then(|_| result.small_sizes());
    let elements = sizes.and_then(|sizes| super::elementwise::stretched(input, &sizes));
    Ok(vec![Tensor { elements, ..result }.into()])
}

fn bit_cast(call: &Call<'_>) -> Outcome {
    one(call.type_or("to", 0), call.shape(0)?.to_vec())
}

/// Gives the elements of the first input another shape.
fn with_shape(call: &Call<'_>, shape: Vec<Range>) -> Outcome {
    let input = call.tensor(0)?;
    Ok(vec![Fact::from(Tensor { shape: Some(shape), ..input.clone() })])
}

pub(super) fn reshape(call: &Call<'_>) -> Outcome {
    let input = call.shape(0)?;
    let target = match call.has(1) {
        true => call.ranges(1)?,
        false => call.ints("shape").ok_or(Fault::Unknown)?.iter().map(|&size| Range::exactly(size)).collect(),
    };
    let keeps_zero = !call.flag("allowzero");
    let (mut rest, mut shape) = (None, Vec::with_capacity(target.len()));
    for (axis, &size) in target.iter().enumerate() {
        shape.push(match size.exact() {
            Some(0) if keeps_zero => {
                *input.get(axis).ok_or(Fault::Invalid("it keeps a missing dimension"))?
            }
            Some(-1) => {
                if rest.replace(axis).is_some() {
                    return Err(Fault::Invalid("it computes two dimensions"));
                }
                Range::exactly(1)
            }
            // It may be one of the numbers with a meaning.
            None if size.min() <= 0 => {
                let elements = Range::product(input);
                let max = elements.max();
                Range::up_to(if elements.min() > 0 { max } else { max.max(size.max()) })
            }
            _ => size.intersection(Range::ANY_SIZE).ok_or(Fault::Invalid("a size is negative"))?,
        });
    }
    if let Some(axis) = rest {
        shape[axis] = remaining(input, &shape, &target)?;
    } else if let (Some(before), Some(after)) =
        (Range::product(input).exact(), Range::product(&shape).exact())
        && before != after
    {
        return Err(Fault::Invalid("its output has another number of elements than its input"));
    }
    with_shape(call, shape)
}

/// Returns the dimension that Reshape computes, from the other ones.
fn remaining(input: &[Range], shape: &[Range], target: &[Range]) -> Result<Range, Fault> {
    // Dimensions that are kept, and equal ones, need no numbers.
    let mut left = input.to_vec();
    let mut right = shape.to_vec();
    for axis in 0..right.len() {
        let is_kept = target[axis].is_exactly(0) && !right[axis].is_exactly(0) && axis < left.len();
        if is_kept {
            (left[axis], right[axis]) = (Range::exactly(1), Range::exactly(1));
        }
    }
    let (before, others) = (Range::product(&left), Range::product(&right));
    match (before.exact(), others.exact()) {
        (Some(0), Some(0)) => Ok(Range::exactly(0)),
        (Some(before), Some(others)) if others > 0 && before % others == 0 => {
            Ok(Range::exactly(before / others))
        }
        (Some(_), Some(_)) => Err(Fault::Invalid("its input cannot be divided into such rows")),
        _ => {
            // From rows without elements it cannot be computed.
            let others = others.intersection(Range::between(1, i64::MAX)).ok_or(Fault::Unknown)?;
            Ok(before.divide(others).ok_or(Fault::Unknown)?.maximum(Range::exactly(0)))
        }
    }
}

fn flatten(call: &Call<'_>) -> Outcome {
    let shape = call.shape(0)?;
    let axis = call.int_or("axis", 1);
    let rank = shape.len();
    let axis = if i64::try_from(rank) == Ok(axis) { rank } else { axis_of(axis, rank)? };
    with_shape(call, vec![Range::product(&shape[..axis]), Range::product(&shape[axis..])])
}

fn squeeze(call: &Call<'_>) -> Outcome {
    let shape = call.shape(0)?;
    let Some(axes) = call.axes(1)? else {
        if shape.iter().any(|size| size.exact().is_none() && size.min() <= 1) {
            return Err(Fault::Unknown);
        }
        return with_shape(call, shape.iter().copied().filter(|size| !size.is_exactly(1)).collect());
    };
    let mut is_removed = vec![false; shape.len()];
    for axis in axes {
        let axis = axis_of(axis, shape.len())?;
        if shape[axis].intersection(Range::exactly(1)).is_none() {
            return Err(Fault::Invalid("it removes a dimension whose size is not 1"));
        }
        is_removed[axis] = true;
    }
    with_shape(call, shape.iter().zip(is_removed).filter(|(_, is)| !is).map(|(&size, _)| size).collect())
}

fn unsqueeze(call: &Call<'_>) -> Outcome {
    let shape = call.shape(0)?;
    let axes = call.axes(1)?.ok_or(Fault::Invalid("it has no axes"))?;
    let rank = shape.len() + axes.len();
    let mut is_added = vec![false; rank];
    for axis in axes {
        if std::mem::replace(&mut is_added[axis_of(axis, rank)?], true) {
            return Err(Fault::Invalid("it adds a dimension twice"));
        }
    }
    let mut rest = shape.iter();
    let size = |&is_added: &bool| if is_added { Some(Range::exactly(1)) } else { rest.next().copied() };
    let shape = is_added.iter().map(size).collect::<Option<_>>();
    with_shape(call, shape.ok_or(Fault::Invalid("it adds a dimension twice"))?)
}
