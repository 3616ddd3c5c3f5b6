//! Pooling.

use super::reduce::global;
use super::window::{Window, image};
use super::{Operator, own};
use crate::infer::{Call, Fault, Outcome, Range, Tensor, one, types};

pub(super) const OPERATORS: &[Operator] = &[
    own("MaxPool", pool),
    own("AveragePool", pool),
    own("LpPool", pool),
    own("MaxUnpool", unpool),
    own("GlobalAveragePool", global),
    own("GlobalMaxPool", global),
    own("GlobalLpPool", global),
    own("MaxRoiPool", roi_pool),
    own("RoiAlign", roi_align),
];

fn kernel(call: &Call<'_>) -> Result<Vec<Range>, Fault> {
    let kernel = call.ints("kernel_shape").ok_or(Fault::Invalid("it has no window"))?;
    Ok(kernel.iter().map(|&size| Range::exactly(size)).collect())
}

/// Returns the shape of what the window of a node over an image of this shape gives.
pub(super) fn pooled(call: &Call<'_>, shape: &[Range]) -> Result<Vec<Range>, Fault> {
    let (batch, channels, spatial) = image(shape)?;
    let places = Window::pooling(call, kernel(call)?)?.places(spatial)?;
    Ok([&[batch, channels][..], &places].concat())
}

/// MaxPool may give indices, too.
fn pool(call: &Call<'_>) -> Outcome {
    let shape = pooled(call, call.shape(0)?)?;
    let indices = Tensor::new(types::INT64, shape.clone());
    Ok(vec![Tensor::new(call.data_type(0), shape).into(), indices.into()])
}

fn unpool(call: &Call<'_>) -> Outcome {
    if call.has(2) {
        return one(call.data_type(0), super::shape::sizes(call.ranges(2)?)?);
    }
    let (batch, channels, spatial) = image(call.shape(0)?)?;
    let sizes = Window::new(call, kernel(call)?)?.origin(spatial, &[])?;
    one(call.data_type(0), [&[batch, channels][..], &sizes].concat())
}

fn roi_pool(call: &Call<'_>) -> Outcome {
    let pooled = call.ints("pooled_shape").ok_or(Fault::Invalid("it has no output size"))?;
    let sizes: Vec<_> = pooled.iter().map(|&size| Range::exactly(size)).collect();
    one(call.data_type(0), [&[call.size(1, 0)?, call.size(0, 1)?][..], &sizes].concat())
}

fn roi_align(call: &Call<'_>) -> Outcome {
    let size = |name| Range::exactly(call.int_or(name, 1));
    let sizes = [call.size(1, 0)?, call.size(0, 1)?, size("output_height"), size("output_width")];
    one(call.data_type(0), sizes.to_vec())
}
