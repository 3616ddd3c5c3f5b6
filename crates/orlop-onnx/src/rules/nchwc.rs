//! Operators of ONNX Runtime's domain `com.microsoft.nchwc`, which it writes into models that it optimized
//! for a CPU: images whose channels are in blocks of 8 or 16, as the CPU has it.

use super::pool::pooled;
use super::reduce::global;
use super::window::{Window, image};
use super::{Operator, own};
use crate::infer::{Call, Fault, Outcome, Range, one};

/// The sizes of the blocks of channels.
const BLOCKS: [i64; 2] = [8, 16];

pub(super) const OPERATORS: &[Operator] = &[
    own("ReorderInput", into_blocks),
    own("ReorderOutput", out_of_blocks),
    own("Conv", convolution),
    own("MaxPool", |call| one(call.data_type(0), pooled(call, call.shape(0)?)?)),
    own("AveragePool", |call| one(call.data_type(0), pooled(call, call.shape(0)?)?)),
    own("GlobalMaxPool", global),
    own("GlobalAveragePool", global),
    own("Upsample", upsample),
];

/// The block's size is in no attribute: channels are rounded up to one of the sizes.
fn into_blocks(call: &Call<'_>) -> Outcome {
    let mut shape = call.shape(0)?.to_vec();
    let channels = match call.flag("channels_last") {
        true => shape.pop(),
        false => (shape.len() > 1).then(|| shape.remove(1)),
    };
    let channels =
        channels.filter(|_| !shape.is_empty()).ok_or(Fault::Invalid("its input has no channels"))?;
    let [least, most] = BLOCKS.map(|block| {
        channels.map_increasing(|size| (size + i128::from(block) - 1) / i128::from(block) * i128::from(block))
    });
    shape.insert(1, least.hull(most));
    one(call.data_type(0), shape)
}

fn out_of_blocks(call: &Call<'_>) -> Outcome {
    let (batch, _, spatial) = image(call.shape(0)?)?;
    let channels = Range::exactly(call.int("channels").ok_or(Fault::Invalid("it has no channels"))?);
    one(
        call.data_type(0),
        match call.flag("channels_last") {
            true => [&[batch][..], spatial, &[channels]].concat(),
            false => [&[batch, channels][..], spatial].concat(),
        },
    )
}

/// The weights are padded to whole blocks, as the image is.
fn convolution(call: &Call<'_>) -> Outcome {
    let (batch, _, spatial) = image(call.shape(0)?)?;
    let (outputs, _, kernel) = image(call.shape(1)?)?;
    let places = Window::new(call, kernel.to_vec())?.places(spatial)?;
    one(call.data_type(0), [&[batch, outputs][..], &places].concat())
}

fn upsample(call: &Call<'_>) -> Outcome {
    let (shape, scales) = (call.shape(0)?, call.ints("scales").unwrap_or_default());
    if shape.len() != scales.len() {
        return Err(Fault::Invalid("it has not one scale for each dimension"));
    }
    let scaled = shape.iter().zip(scales).map(|(&size, &scale)| size.multiply(Range::exactly(scale)));
    one(call.data_type(0), scaled.collect())
}
