//! Convolutions.

use super::window::{Window, image};
use super::{Operator, own};
use crate::infer::{Call, Fault, Outcome, Range, Tensor, one, types};

pub(super) const OPERATORS: &[Operator] = &[
    own("Conv", |call| convolution(call, 1, call.data_type(0))),
    own("ConvInteger", |call| convolution(call, 1, types::INT32)),
    own("QLinearConv", |call| convolution(call, 3, call.data_type(7))),
    own("DeformConv", |call| convolution(call, 1, call.data_type(0))),
    own("ConvTranspose", transposed),
    own("CausalConvWithState", causal_with_state),
];

/// A convolution whose weights, `[out channels, in channels / group, …]`, are this input.
pub(super) fn convolution(call: &Call<'_>, weights: usize, data_type: i32) -> Outcome {
    one(data_type, convolved(call, call.shape(0)?, weights)?)
}

/// Returns the shape of the convolution of an image of this shape.
pub(super) fn convolved(call: &Call<'_>, shape: &[Range], weights: usize) -> Result<Vec<Range>, Fault> {
    let (batch, channels, spatial) = image(shape)?;
    let (outputs, inputs, kernel) = image(call.shape(weights)?)?;
    let group = Range::exactly(call.int_or("group", 1));
    if channels.intersection(inputs.multiply(group)).is_none() {
        return Err(Fault::Invalid("its weights are for another number of channels"));
    }
    let places = Window::new(call, kernel.to_vec())?.places(spatial)?;
    Ok([&[batch, outputs][..], &places].concat())
}

fn transposed(call: &Call<'_>) -> Outcome {
    let (batch, _, spatial) = image(call.shape(0)?)?;
    let (_, outputs, kernel) = image(call.shape(1)?)?;
    let channels = outputs.multiply(Range::exactly(call.int_or("group", 1)));
    let given = call.ints("output_shape").filter(|sizes| !sizes.is_empty());
    let sizes = match given {
        // It may have batch and channels in front.
        Some(sizes) if sizes.len() >= spatial.len() => {
            sizes[sizes.len() - spatial.len()..].iter().map(|&size| Range::exactly(size)).collect()
        }
        Some(_) => return Err(Fault::Invalid("its output shape has too few dimensions")),
        None => {
            let extra = call.ints("output_padding").unwrap_or_default();
            Window::new(call, kernel.to_vec())?.origin(spatial, extra)?
        }
    };
    one(call.data_type(0), [&[batch, channels][..], &sizes].concat())
}

/// The state holds what the kernel reaches back to.
fn causal_with_state(call: &Call<'_>) -> Outcome {
    let (batch, channels, _) = image(call.shape(0)?)?;
    let kernel = *call.shape(1)?.last().ok_or(Fault::Invalid("its weights are no tensor"))?;
    let output = Tensor::new(call.data_type(0), call.shape(0)?.to_vec());
    let state = vec![batch, channels, kernel.subtract(Range::exactly(1)).maximum(Range::exactly(0))];
    Ok(vec![output.into(), Tensor::new(call.data_type(0), state).into()])
}
