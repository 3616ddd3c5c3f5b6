//! Windows that move over spatial dimensions.

use crate::infer::{Call, Fault, Range};

/// The attributes of a window, by spatial dimension.
pub(super) struct Window {
    pub(super) kernel: Vec<Range>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    padding: Padding,
    rounds_up: bool,
    /// Whether the window may exceed its input.
    can_exceed: bool,
}

/// What is added at the ends of dimensions.
enum Padding {
    /// Before and after, by dimension.
    Explicit(Vec<i64>),
    /// So much that the strides cover the input.
    Same,
}

impl Window {
    /// Reads the attributes, for a window of this size.
    pub(super) fn new(call: &Call<'_>, kernel: Vec<Range>) -> Result<Self, Fault> {
        let rank = kernel.len();
        let row = |name: &str, length: usize, default: i64| match call.ints(name) {
            Some(row) if row.len() != length && !row.is_empty() => {
                Err(Fault::Invalid("an attribute has not one number for each spatial dimension"))
            }
            Some(row) if !row.is_empty() => Ok(row.to_vec()),
            _ => Ok(vec![default; length]),
        };
        let padding = match call.text("auto_pad").unwrap_or("NOTSET") {
            "SAME_UPPER" | "SAME_LOWER" => Padding::Same,
            "VALID" => Padding::Explicit(vec![0; 2 * rank]),
            _ => Padding::Explicit(row("pads", 2 * rank, 0)?),
        };
        let (strides, dilations) = (row("strides", rank, 1)?, row("dilations", rank, 1)?);
        if strides.iter().chain(&dilations).any(|&step| step <= 0) {
            return Err(Fault::Invalid("its window does not move"));
        }
        let rounds_up = call.flag("ceil_mode");
        Ok(Self { kernel, strides, dilations, padding, rounds_up, can_exceed: false })
    }

    /// Reads the attributes of a pooling operator: a window that exceeds its input by less than a stride has
    /// a place, and by less than two strides none, which is no fault. ONNX's shape inference and ONNX Runtime
    /// round towards zero there.
    pub(super) fn pooling(call: &Call<'_>, kernel: Vec<Range>) -> Result<Self, Fault> {
        Ok(Self { can_exceed: true, ..Self::new(call, kernel)? })
    }

    /// Returns the number of places of the window in each dimension of an input.
    pub(super) fn places(&self, input: &[Range]) -> Result<Vec<Range>, Fault> {
        if input.len() != self.kernel.len() {
            return Err(Fault::Invalid("its input has another number of spatial dimensions than its window"));
        }
        (0..input.len()).map(|axis| self.places_in(axis, input[axis])).collect()
    }

    fn places_in(&self, axis: usize, input: Range) -> Result<Range, Fault> {
        let stride = i128::from(self.strides[axis]);
        let pads = match &self.padding {
            Padding::Explicit(pads) => [pads[axis], pads[axis + self.kernel.len()]].map(i128::from),
            Padding::Same => return Ok(unbounded_as(input, input.map(|size| (size + stride - 1) / stride))),
        };
        let (dilation, rounds_up) = (i128::from(self.dilations[axis]), self.rounds_up);
        let places = input.combine(self.kernel[axis], |input, kernel| {
            let window = (kernel - 1) * dilation + 1;
            let free = input + pads[0] + pads[1] - window;
            if free < 0 {
                return if self.can_exceed { free / stride + 1 } else { -1 };
            }
            let places = (free + if rounds_up { stride - 1 } else { 0 }) / stride + 1;
            // The last window begins within the input or the padding before it.
            let is_outside = rounds_up && (places - 1) * stride >= input + pads[0];
            if is_outside { places - 1 } else { places }
        });
        if places.max() < 0 && !input.is_exactly(0) {
            return Err(Fault::Invalid("its window is larger than its input"));
        }
        Ok(unbounded_as(input, places.maximum(Range::exactly(0))))
    }

    /// Returns the size that an output must have so that this window would make the input of it.
    pub(super) fn origin(&self, input: &[Range], extra: &[i64]) -> Result<Vec<Range>, Fault> {
        if input.len() != self.kernel.len() {
            return Err(Fault::Invalid("its input has another number of spatial dimensions than its window"));
        }
        let size = |axis: usize| {
            let (stride, dilation) = (i128::from(self.strides[axis]), i128::from(self.dilations[axis]));
            let extra = i128::from(extra.get(axis).copied().unwrap_or(0));
            let size = match &self.padding {
                Padding::Same => input[axis].map(|input| input * stride),
                Padding::Explicit(pads) => {
                    let pads = i128::from(pads[axis]) + i128::from(pads[axis + self.kernel.len()]);
                    input[axis].combine(self.kernel[axis], |input, kernel| {
                        (input - 1) * stride + extra + (kernel - 1) * dilation + 1 - pads
                    })
                }
            };
            if size.max() < 0 {
                return Err(Fault::Invalid("its padding is larger than its output"));
            }
            Ok(unbounded_as(input[axis], size.maximum(Range::exactly(0))))
        };
        (0..input.len()).map(size).collect()
    }
}

/// A size that is computed from one without a bound has none.
fn unbounded_as(input: Range, output: Range) -> Range {
    if input.is_bounded() { output } else { output.with_max(i64::MAX) }
}

/// Splits a shape into batch, channels and spatial dimensions.
pub(super) fn image(shape: &[Range]) -> Result<(Range, Range, &[Range]), Fault> {
    match shape {
        [batch, channels, spatial @ ..] => Ok((*batch, *channels, spatial)),
        _ => Err(Fault::Invalid("its input has no channels")),
    }
}
