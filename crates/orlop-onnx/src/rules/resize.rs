//! Images of other sizes.

use super::{Operator, own};
use crate::infer::{Call, Fault, Outcome, Range, axis_of, one, to_integer, to_single, types};

pub(super) const OPERATORS: &[Operator] = &[
    own("Resize", resize),
    own("Upsample", |call| scaled(call, 1)),
    own("GridSample", grid_sample),
    own("AffineGrid", affine_grid),
    own("ImageDecoder", |_| one(types::UINT8, vec![Range::ANY_SIZE, Range::ANY_SIZE, Range::up_to(3)])),
];

fn resize(call: &Call<'_>) -> Outcome {
    if call.node.version < 11 {
        return scaled(call, 1);
    }
    let is_given =
        |index: usize| call.shape(index).is_ok_and(|shape| !matches!(shape, [size] if size.max() == 0));
    if !call.has(3) || !is_given(3) {
        return scaled(call, 2);
    }
    let sizes = super::shape::sizes(call.ranges(3)?)?;
    let axes = axes(call, sizes.len())?;
    let shape = call.shape(0)?;
    let policy = call.text("keep_aspect_ratio_policy").unwrap_or("stretch");
    let mut resized = shape.to_vec();
    for (&axis, &size) in axes.iter().zip(&sizes) {
        resized[axis] = size;
    }
    if policy != "stretch" {
        let ratio = |(&axis, size): (&usize, &Range)| {
            Some(size.exact()? as f64 / shape[axis].exact().filter(|&size| size > 0)? as f64)
        };
        let ratios: Vec<f64> =
            axes.iter().zip(&sizes).map(ratio).collect::<Option<_>>().ok_or(Fault::Unknown)?;
        let least = policy == "not_larger";
        let ratio =
            ratios.into_iter().reduce(|one, other| if least { one.min(other) } else { one.max(other) });
        let ratio = ratio.ok_or(Fault::Unknown)?;
        for &axis in &axes {
            let size = shape[axis].exact().ok_or(Fault::Unknown)?;
            resized[axis] = Range::exactly(to_integer(size as f64 * ratio + 0.5));
        }
    }
    one(call.data_type(0), resized)
}

/// Returns the axes that sizes or scales are for.
fn axes(call: &Call<'_>, count: usize) -> Result<Vec<usize>, Fault> {
    let rank = call.rank(0)?;
    let axes: Vec<usize> = match call.ints("axes").filter(|axes| !axes.is_empty()) {
        Some(axes) => axes.iter().map(|&axis| axis_of(axis, rank)).collect::<Result<_, _>>()?,
        None => (0..rank).collect(),
    };
    if axes.len() == count { Ok(axes) } else { Err(Fault::Invalid("it has not one size for each dimension")) }
}

/// Multiplies sizes by the scales in an input, or in an attribute.
fn scaled(call: &Call<'_>, scales: usize) -> Outcome {
    let scales: Vec<(f64, f64)> = match call.has(scales) {
        true => call.elements(scales).ok_or(Fault::Unknown)?.iter().map(|element| element.span()).collect(),
        false => {
            let scales = call.floats("scales").ok_or(Fault::Unknown)?;
            scales.iter().map(|&scale| (f64::from(scale), f64::from(scale))).collect()
        }
    };
    let mut shape = call.shape(0)?.to_vec();
    for (axis, (min, max)) in axes(call, scales.len())?.into_iter().zip(scales) {
        if !max.is_finite() || min < 0.0 {
            return Err(Fault::Unknown);
        }
        // As in single precision.
        let size = |size: i64, scale: f64| to_integer(f64::from(size as f32 * to_single(scale)));
        let size = Range::between(size(shape[axis].min(), min), size(shape[axis].max(), max));
        shape[axis] = if shape[axis].is_bounded() { size } else { size.with_max(i64::MAX) };
    }
    one(call.data_type(0), shape)
}

pub(super) fn grid_sample(call: &Call<'_>) -> Outcome {
    let (shape, grid) = (call.shape(0)?, call.shape(1)?);
    let inner = grid.get(1..grid.len().saturating_sub(1)).filter(|_| grid.len() == shape.len());
    let inner = inner.ok_or(Fault::Invalid("its grid has other dimensions than its input"))?;
    let front = shape.get(..2).ok_or(Fault::Invalid("its input has no channels"))?;
    one(call.data_type(0), [front, inner].concat())
}

fn affine_grid(call: &Call<'_>) -> Outcome {
    let sizes = super::shape::sizes(call.ranges(1)?)?;
    let (Some(&batch), Some(spatial)) = (sizes.first(), sizes.get(2..)) else {
        return Err(Fault::Invalid("its size has no channels"));
    };
    let dimensions = Range::exactly(i64::try_from(spatial.len()).unwrap_or(i64::MAX));
    one(call.data_type(0), [&[batch][..], spatial, &[dimensions]].concat())
}
