//! Signals: windows, spectra.

use super::{Operator, own};
use crate::infer::{Call, Fault, Outcome, Range, axis_of, one, types};

pub(super) const OPERATORS: &[Operator] = &[
    own("HannWindow", window),
    own("HammingWindow", window),
    own("BlackmanWindow", window),
    own("MelWeightMatrix", mel_weights),
    own("DFT", dft),
    own("STFT", stft),
];

fn window(call: &Call<'_>) -> Outcome {
    one(call.type_or("output_datatype", types::FLOAT), vec![call.integer(0)?.maximum(Range::exactly(0))])
}

fn mel_weights(call: &Call<'_>) -> Outcome {
    let bins = half(call.integer(1)?);
    one(call.type_or("output_datatype", types::FLOAT), vec![bins, call.integer(0)?])
}

/// A real signal has half of its spectrum twice.
pub(super) fn half(length: Range) -> Range {
    length.map_increasing(|length| length / 2 + 1)
}

fn dft(call: &Call<'_>) -> Outcome {
    let mut shape = call.shape(0)?.to_vec();
    let axis = match (call.has(2), call.int("axis")) {
        (true, _) => call.integer(2)?.exact().ok_or(Fault::Unknown)?,
        (false, Some(axis)) => axis,
        // Before version 20 the default was the first axis after the batch.
        (false, None) => {
            if call.node.version < 20 {
                1
            } else {
                -2
            }
        }
    };
    let axis = axis_of(axis, shape.len())?;
    let last = shape.len() - 1;
    if axis == last {
        return Err(Fault::Invalid("its axis is that of real and imaginary parts"));
    }
    let (is_half, is_inverse) = (call.flag("onesided"), call.flag("inverse"));
    let length = match call.has(1) {
        true => call.integer(1)?,
        false if is_half && is_inverse => {
            shape[axis].subtract(Range::exactly(1)).multiply(Range::exactly(2)).maximum(Range::exactly(0))
        }
        false => shape[axis],
    };
    shape[axis] = if is_half && !is_inverse { half(length) } else { length };
    shape[last] = Range::exactly(if is_half && is_inverse { 1 } else { 2 });
    one(call.data_type(0), shape)
}

fn stft(call: &Call<'_>) -> Outcome {
    let shape = call.shape(0)?;
    let (Some(&batch), Some(&length)) = (shape.first(), shape.get(1)) else {
        return Err(Fault::Invalid("its input is no signal"));
    };
    let step = call.integer(1)?;
    let frame = match (call.has(3), call.has(2)) {
        (true, _) => call.integer(3)?,
        (false, true) => call.size(2, 0)?,
        (false, false) => return Err(Fault::Invalid("it has neither a window nor a frame length")),
    };
    let free = length.subtract(frame);
    if free.max() < 0 {
        return Err(Fault::Invalid("its frame is longer than its signal"));
    }
    let frames = free.maximum(Range::exactly(0)).divide(step).ok_or(Fault::Unknown)?.add(Range::exactly(1));
    let bins = if call.int_or("onesided", 1) != 0 { half(frame) } else { frame };
    one(call.data_type(0), vec![batch, frames, bins, Range::exactly(2)])
}
