//! Operators that move elements to other places.

use super::elementwise::tracked_sizes;
use super::{MemoryUse, Operator, own};
use crate::infer::{Call, Element, Fact, Fault, Outcome, Range, Tensor, axis_of, one, row_major};

pub(super) const OPERATORS: &[Operator] = &[
    own("Transpose", transpose),
    Operator { name: "Concat", rule: concat, memory: MemoryUse::Concat },
    Operator { name: "Split", rule: split, memory: MemoryUse::Split },
    own("Slice", slice),
    own("Pad", pad),
    own("Tile", tile),
    own("DepthToSpace", depth_to_space),
    own("SpaceToDepth", space_to_depth),
    own("CenterCropPad", center_crop_pad),
    own("Col2Im", col2im),
];

fn transpose(call: &Call<'_>) -> Outcome {
    let input = call.tensor(0)?;
    let shape = call.shape(0)?;
    let rank = shape.len();
    let permutation: Vec<usize> = match call.ints("perm") {
        Some(axes) => axes.iter().map(|&axis| axis_of(axis, rank)).collect::<Result<_, _>>()?,
        None => (0..rank).rev().collect(),
    };
    if permutation.len() != rank {
        return Err(Fault::Invalid("its permutation has another number of axes than its input"));
    }
    let result = Tensor::new(input.data_type, permutation.iter().map(|&axis| shape[axis]).collect());
    let elements = || {
        let (from, to) = (tracked_sizes(input)?, result.small_sizes()?);
        let elements = input.elements.as_ref()?;
        let source = |place: Vec<usize>| {
            let mut index = vec![0; rank];
            for (axis, position) in permutation.iter().zip(place) {
                index[*axis] = position;
            }
            elements.get(flat(&from, &index)).copied()
        };
        row_major(&to).map(source).collect::<Option<Vec<_>>>()
    };
    Ok(vec![Tensor { elements: elements(), ..result.clone() }.into()])
}

/// Returns the index of an element in row-major order.
pub(super) fn flat(sizes: &[usize], index: &[usize]) -> usize {
    sizes.iter().zip(index).fold(0, |place, (size, index)| place * size + index)
}

fn concat(call: &Call<'_>) -> Outcome {
    let mut shape = call.shape(0)?.to_vec();
    let axis = axis_of(call.int_or("axis", 1), shape.len())?;
    for index in 1..call.inputs.len() {
        let other = call.shape(index)?;
        if other.len() != shape.len() {
            return Err(Fault::Invalid("its inputs have different numbers of dimensions"));
        }
        for (at, (size, &other)) in shape.iter_mut().zip(other).enumerate() {
            *size = match at == axis {
                true => size.add(other),
                false => size.intersection(other).ok_or(Fault::Invalid("its inputs have different sizes"))?,
            };
        }
    }
    let result = Tensor::new(call.data_type(0), shape);
    let elements = || {
        let sizes = result.small_sizes()?;
        let outer: usize = sizes[..axis].iter().product();
        let parts: Vec<Vec<Element>> =
            (0..call.inputs.len()).map(|index| call.elements(index)).collect::<Option<_>>()?;
        let mut elements = Vec::new();
        for row in 0..outer {
            for part in &parts {
                let length = part.len() / outer;
                elements.extend_from_slice(part.get(row * length..(row + 1) * length)?);
            }
        }
        Some(elements)
    };
    let is_tracked = call.tensors().any(|tensor| tensor.elements.is_some());
    let elements = is_tracked.then(elements).flatten();
    Ok(vec![Tensor { elements, ..result.clone() }.into()])
}

fn split(call: &Call<'_>) -> Outcome {
    let input = call.tensor(0)?;
    let shape = call.shape(0)?;
    let axis = axis_of(call.int_or("axis", 0), shape.len())?;
    let lengths: Vec<Range> = match (call.has(1), call.ints("split")) {
        (true, _) => super::shape::sizes(call.ranges(1)?)?,
        (_, Some(lengths)) => lengths.iter().map(|&length| Range::exactly(length)).collect(),
        (false, None) => even_parts(shape[axis], call.node.outputs.len()),
    };
    let part = |length: Range| {
        let shape = shape.iter().enumerate().map(|(at, &size)| if at == axis { length } else { size });
        Tensor::new(input.data_type, shape.collect())
    };
    let mut start = Some(0);
    let parts = lengths.into_iter().map(|length| {
        let result = part(length);
        let elements = start.and_then(|start| cut(input, &[(axis, start, 1)], &result));
        start = length.exact().and_then(|length| start?.checked_add(length));
        Fact::from(Tensor { elements, ..result })
    });
    Ok(parts.collect())
}

/// The last part is smaller where the parts are not even.
fn even_parts(size: Range, count: usize) -> Vec<Range> {
    let count = i64::try_from(count.max(1)).unwrap_or(i64::MAX);
    let part = |index: i64| {
        size.map_increasing(|size| {
            let (count, index) = (i128::from(count), i128::from(index));
            let length = (size + count - 1) / count;
            (size - index * length).clamp(0, length)
        })
    };
    let first = part(0);
    (0..count).map(|index| if size.exact().is_some() { part(index) } else { first.with_min(0) }).collect()
}

/// Returns the elements of a part of a tensor that begins at these positions of axes, with these steps.
fn cut(input: &Tensor, starts: &[(usize, i64, i64)], result: &Tensor) -> Option<Vec<Element>> {
    let (from, to) = (tracked_sizes(input)?, result.small_sizes()?);
    let elements = input.elements.as_ref()?;
    let source = |mut index: Vec<usize>| {
        for &(axis, start, step) in starts {
            let position = i64::try_from(index[axis]).ok()?.checked_mul(step)?.checked_add(start)?;
            index[axis] = usize::try_from(position).ok()?;
        }
        elements.get(flat(&from, &index)).copied()
    };
    row_major(&to).map(source).collect()
}

pub(super) fn slice(call: &Call<'_>) -> Outcome {
    let input = call.tensor(0)?;
    let (starts, ends) = match call.has(1) {
        true => (call.ranges(1)?, call.ranges(2)?),
        false => {
            let exact = |name| {
                let ints = call.ints(name).ok_or(Fault::Unknown)?;
                Ok::<_, Fault>(ints.iter().map(|&end| Range::exactly(end)).collect::<Vec<_>>())
            };
            (exact("starts")?, exact("ends")?)
        }
    };
    let mut shape = call.shape(0)?.to_vec();
    let count = i64::try_from(starts.len()).unwrap_or(0);
    let axes = call.axes(3)?.unwrap_or_else(|| (0..count).collect());
    let steps = if call.has(4) { call.integers(4)? } else { vec![1; axes.len()] };
    if [starts.len(), ends.len(), steps.len()] != [axes.len(); 3] {
        return Err(Fault::Invalid("its starts, ends, axes and steps are not equally many"));
    }
    let mut places = Vec::new();
    for (at, &axis) in axes.iter().enumerate() {
        let axis = axis_of(axis, shape.len())?;
        let (first, length) = sliced(shape[axis], starts[at], ends[at], steps[at])?;
        shape[axis] = length;
        places.push((axis, first, steps[at]));
    }
    let result = Tensor::new(input.data_type, shape);
    let places: Option<Vec<_>> =
        places.into_iter().map(|(axis, first, step)| Some((axis, first?, step))).collect();
    let elements = places.and_then(|places| cut(input, &places, &result));
    Ok(vec![Tensor { elements, ..result }.into()])
}

/// Returns the first position of a slice, if it is known, and its length.
fn sliced(size: Range, start: Range, end: Range, step: i64) -> Result<(Option<i64>, Range), Fault> {
    if step == 0 {
        return Err(Fault::Invalid("its step is 0"));
    }
    if let (Some(size), Some(start), Some(end)) = (size.exact(), start.exact(), end.exact()) {
        let from_end = |position: i64| if position < 0 { position.saturating_add(size) } else { position };
        let (start, end) = (from_end(start), from_end(end));
        let (start, end) = match step > 0 {
            true => (start.clamp(0, size), end.clamp(0, size)),
            // A start before the first element is that element.
            false if size > 0 => (start.clamp(0, size - 1), end.clamp(-1, size - 1)),
            false => (0, 0),
        };
        let distance = i128::from(end) - i128::from(start);
        let step = i128::from(step);
        let length = (distance + step - step.signum()) / step;
        return Ok((Some(start), Range::exactly(i64::try_from(length.max(0)).unwrap_or(i64::MAX))));
    }
    if step == 1 && start.is_exactly(0) && end.min() >= 0 {
        return Ok((Some(0), size.minimum(end)));
    }
    let step_size = Range::exactly(step.checked_abs().unwrap_or(i64::MAX));
    let covered = bounded_slice(size, start, end, step).unwrap_or(size);
    let length =
        covered.add(step_size.subtract(Range::exactly(1))).divide(step_size).ok_or(Fault::Unknown)?;
    Ok((start.exact().filter(|&start| start >= 0 && step > 0), length.with_min(0)))
}

/// Returns the length that a slice covers where a side is not known exactly. `None`: all of the dimension.
fn bounded_slice(size: Range, start: Range, end: Range, step: i64) -> Option<Range> {
    if step < 0 {
        return None;
    }
    // Both from the start, or both from the end: their distance. Otherwise what is left of the dimension.
    let sides_agree = start.min() >= 0 && end.min() >= 0 || start.max() < 0 && end.max() < 0;
    let by_distance = sides_agree.then(|| end.subtract(start));
    let from_start = (start.min() >= 0).then(|| size.subtract(start));
    let before_end = (start.min() >= 0 && end.max() < 0).then(|| size.add(end).subtract(start));
    let limit = [by_distance, from_start, before_end].into_iter().flatten().map(|range| range.max()).min()?;
    Some(Range::up_to(limit.clamp(0, size.max())))
}

fn pad(call: &Call<'_>) -> Outcome {
    let shape = call.shape(0)?;
    let pads = match (call.has(1), call.ints("pads").or_else(|| call.ints("paddings"))) {
        (true, _) => call.ranges(1)?,
        (false, pads) => pads.ok_or(Fault::Unknown)?.iter().map(|&pad| Range::exactly(pad)).collect(),
    };
    let axes = match call.has(3) {
        true => call.integers(3)?,
        false => (0..i64::try_from(shape.len()).unwrap_or(0)).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Err(Fault::Invalid("it has not two pads for each axis"));
    }
    let mut padded = shape.to_vec();
    for (at, &axis) in axes.iter().enumerate() {
        let size = &mut padded[axis_of(axis, shape.len())?];
        *size = size.add(pads[at]).add(pads[at + axes.len()]).maximum(Range::exactly(0));
    }
    one(call.data_type(0), padded)
}

fn tile(call: &Call<'_>) -> Outcome {
    let input = call.tensor(0)?;
    let shape = call.shape(0)?;
    // In version 1 there is one number of tiles, and an axis.
    let repeats = super::shape::sizes(call.ranges(1)?)?;
    if repeats.len() != shape.len() {
        return Err(Fault::Invalid("it has not one number of repeats for each dimension"));
    }
    let tiled = shape.iter().zip(&repeats).map(|(size, repeats)| size.multiply(*repeats)).collect();
    let result = Tensor::new(input.data_type, tiled);
    let elements = || {
        let (from, to) = (tracked_sizes(input)?, result.small_sizes()?);
        let elements = input.elements.as_ref()?;
        let source = |index: Vec<usize>| {
            let index: Vec<_> = index.iter().zip(&from).map(|(index, size)| index % size).collect();
            elements.get(flat(&from, &index)).copied()
        };
        row_major(&to).map(source).collect::<Option<Vec<_>>>()
    };
    Ok(vec![Tensor { elements: elements(), ..result.clone() }.into()])
}

fn depth_to_space(call: &Call<'_>) -> Outcome {
    let &[batch, channels, height, width] = call.shape(0)? else {
        return Err(Fault::Invalid("its input is no image"));
    };
    let block = Range::exactly(call.int_or("blocksize", 1));
    let depth = channels.divide(block.multiply(block)).ok_or(Fault::Invalid("its block has no size"))?;
    one(call.data_type(0), vec![batch, depth, height.multiply(block), width.multiply(block)])
}

fn space_to_depth(call: &Call<'_>) -> Outcome {
    let &[batch, channels, height, width] = call.shape(0)? else {
        return Err(Fault::Invalid("its input is no image"));
    };
    let block = Range::exactly(call.int_or("blocksize", 1));
    let divided = |size: Range| size.divide(block).ok_or(Fault::Invalid("its block has no size"));
    let depth = channels.multiply(block).multiply(block);
    one(call.data_type(0), vec![batch, depth, divided(height)?, divided(width)?])
}

fn center_crop_pad(call: &Call<'_>) -> Outcome {
    let mut shape = call.shape(0)?.to_vec();
    let target = super::shape::sizes(call.ranges(1)?)?;
    let count = i64::try_from(target.len()).unwrap_or(0);
    let axes = call.ints("axes").map_or_else(|| (0..count).collect(), <[i64]>::to_vec);
    for (axis, size) in axes.into_iter().zip(target) {
        let axis = axis_of(axis, shape.len())?;
        shape[axis] = size;
    }
    one(call.data_type(0), shape)
}

fn col2im(call: &Call<'_>) -> Outcome {
    let &[batch, rows, _] = call.shape(0)? else {
        return Err(Fault::Invalid("its input has not three dimensions"));
    };
    let image = super::shape::sizes(call.ranges(1)?)?;
    let block = Range::product(&super::shape::sizes(call.ranges(2)?)?);
    let channels = rows.divide(block).ok_or(Fault::Invalid("its block has no size"))?;
    one(call.data_type(0), [&[batch, channels][..], &image].concat())
}
