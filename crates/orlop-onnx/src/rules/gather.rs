//! Operators that take or put elements by index.

use super::elementwise::{same, tracked_sizes};
use super::layout::flat;
use super::{Operator, own};
use crate::infer::{
    Call, Element, Fault, Outcome, Range, Tensor, axis_of, one, row_major, to_integer, types,
};

pub(super) const OPERATORS: &[Operator] = &[
    own("Gather", gather),
    own("GatherElements", gather_elements),
    own("GatherND", gather_nd),
    own("Scatter", same),
    own("ScatterElements", same),
    own("ScatterND", scatter_nd),
    own("TensorScatter", same),
    own("OneHot", one_hot),
    own("TopK", top_k),
    own("ArgMax", arg),
    own("ArgMin", arg),
];

fn gather(call: &Call<'_>) -> Outcome {
    let input = call.tensor(0)?;
    let (shape, indices) = (call.shape(0)?, call.shape(1)?);
    let axis = axis_of(call.int_or("axis", 0), shape.len())?;
    let result = Tensor::new(input.data_type, [&shape[..axis], indices, &shape[axis + 1..]].concat());
    let elements = || {
        let (from, to) = (tracked_sizes(input)?, result.small_sizes()?);
        let (elements, indices) = (input.elements.as_ref()?, call.integers(1).ok()?);
        let indices_sizes = call.tensor(1).ok()?.small_sizes()?;
        let end = axis + indices_sizes.len();
        let source = |place: Vec<usize>| {
            let at = flat(&indices_sizes, &place[axis..end]);
            let position = axis_of(*indices.get(at)?, from[axis]).ok()?;
            let index = [&place[..axis], &[position], &place[end..]].concat();
            elements.get(flat(&from, &index)).copied()
        };
        row_major(&to).map(source).collect::<Option<Vec<_>>>()
    };
    Ok(vec![Tensor { elements: elements(), ..result.clone() }.into()])
}

fn gather_elements(call: &Call<'_>) -> Outcome {
    let (input, shape) = (call.tensor(0)?, call.shape(1)?);
    let axis = axis_of(call.int_or("axis", 0), shape.len())?;
    let result = Tensor::new(input.data_type, shape.to_vec());
    let elements = || {
        let (from, to) = (tracked_sizes(input)?, result.small_sizes()?);
        let (elements, indices) = (input.elements.as_ref()?, call.integers(1).ok()?);
        let source = |mut place: Vec<usize>| {
            place[axis] = axis_of(*indices.get(flat(&to, &place))?, *from.get(axis)?).ok()?;
            elements.get(flat(&from, &place)).copied()
        };
        row_major(&to).map(source).collect::<Option<Vec<_>>>()
    };
    Ok(vec![Tensor { elements: elements(), ..result.clone() }.into()])
}

fn gather_nd(call: &Call<'_>) -> Outcome {
    let (input, shape, indices) = (call.tensor(0)?, call.shape(0)?, call.shape(1)?);
    let batch = usize::try_from(call.int_or("batch_dims", 0)).map_err(|_| Fault::Unknown)?;
    let (last, outer) = indices.split_last().ok_or(Fault::Invalid("its indices have no dimension"))?;
    let depth = usize::try_from(last.exact().ok_or(Fault::Unknown)?).map_err(|_| Fault::Unknown)?;
    let rest = batch.checked_add(depth).and_then(|start| shape.get(start..));
    let rest = rest.ok_or(Fault::Invalid("its indices have too many positions"))?;
    let result = Tensor::new(input.data_type, [outer, rest].concat());
    let elements = || {
        let (from, to) = (tracked_sizes(input)?, result.small_sizes()?);
        let (elements, indices) = (input.elements.as_ref()?, call.integers(1).ok()?);
        let source = |place: Vec<usize>| {
            let outer_sizes = &to[..outer.len()];
            let start = flat(outer_sizes, &place[..outer.len()]) * depth;
            let positions = indices.get(start..start + depth)?.iter().zip(&from[batch..]);
            let positions: Option<Vec<_>> =
                positions.map(|(&position, &size)| axis_of(position, size).ok()).collect();
            let index = [place.get(..batch)?, &positions?, &place[outer.len()..]].concat();
            elements.get(flat(&from, &index)).copied()
        };
        row_major(&to).map(source).collect::<Option<Vec<_>>>()
    };
    Ok(vec![Tensor { elements: elements(), ..result.clone() }.into()])
}

/// Puts updates over elements, in a copy of the first input.
fn scatter_nd(call: &Call<'_>) -> Outcome {
    let input = call.tensor(0)?;
    let elements = || {
        let sizes = tracked_sizes(input)?;
        let mut elements = input.elements.clone()?;
        let (indices, updates) = (call.integers(1).ok()?, call.elements(2)?);
        let depth = usize::try_from(call.shape(1).ok()?.last()?.exact()?).ok()?;
        let row: usize = sizes.get(depth..)?.iter().product();
        // Sums and the like of updates are not tracked.
        let replaces = call.text("reduction").is_none_or(|reduction| reduction == "none");
        if depth == 0 || !replaces {
            return None;
        }
        for (positions, updates) in indices.chunks(depth).zip(updates.chunks(row.max(1))) {
            let positions = positions.iter().zip(&sizes);
            let positions: Option<Vec<_>> =
                positions.map(|(&position, &size)| axis_of(position, size).ok()).collect();
            let start = flat(&sizes[..depth], &positions?) * row;
            elements.get_mut(start..start + row)?.copy_from_slice(updates.get(..row)?);
        }
        Some(elements)
    };
    Ok(vec![Tensor { elements: elements(), ..input.clone() }.into()])
}

fn one_hot(call: &Call<'_>) -> Outcome {
    let mut shape = call.shape(0)?.to_vec();
    let axis = axis_of(call.int_or("axis", -1), shape.len() + 1)?;
    let depth = match call.elements(1).and_then(|elements| elements.first().copied()) {
        Some(Element::Int(depth)) => depth,
        Some(Element::Real(min, max)) if min == max => Range::exactly(to_integer(min)),
        _ => return Err(Fault::Unknown),
    };
    shape.insert(axis, depth.intersection(Range::ANY_SIZE).ok_or(Fault::Invalid("its depth is negative"))?);
    one(call.data_type(2), shape)
}

fn top_k(call: &Call<'_>) -> Outcome {
    let mut shape = call.shape(0)?.to_vec();
    let axis = axis_of(call.int_or("axis", -1), shape.len())?;
    let count = match call.int("k") {
        Some(count) => Range::exactly(count),
        None => call.integer(1)?,
    };
    let count = count.intersection(Range::ANY_SIZE).ok_or(Fault::Invalid("it takes a negative number"))?;
    // More than there are is an error when it is executed.
    shape[axis] = if count.exact().is_some() { count } else { count.minimum(shape[axis]) };
    let indices = Tensor::new(types::INT64, shape.clone());
    Ok(vec![Tensor::new(call.data_type(0), shape).into(), indices.into()])
}

fn arg(call: &Call<'_>) -> Outcome {
    let mut shape = call.shape(0)?.to_vec();
    let axis = axis_of(call.int_or("axis", 0), shape.len())?;
    if call.int_or("keepdims", 1) != 0 {
        shape[axis] = Range::exactly(1);
    } else {
        shape.remove(axis);
    }
    one(types::INT64, shape)
}
