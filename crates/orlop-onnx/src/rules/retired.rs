//! Experimental operators that ONNX retired with version 10. Old files have them, and ONNX Runtime executes
//! them.

use super::elementwise::same;
use super::layout::slice;
use super::window::image;
use super::{Operator, over_first, own};
use crate::infer::{Call, Fault, Outcome, Range, one};

pub(super) const OPERATORS: &[Operator] = &[
    over_first("Affine", same),
    over_first("ImageScaler", same),
    over_first("ParametricSoftplus", same),
    over_first("Scale", same),
    over_first("ScaledTanh", same),
    own("Crop", crop),
    own("DynamicSlice", slice),
];

/// An image without its border (left, top, right, bottom), or as much of it as `scale` says.
fn crop(call: &Call<'_>) -> Outcome {
    let (batch, channels, &[height, width]) = image(call.shape(0)?)? else {
        return Err(Fault::Invalid("its input is not an image"));
    };
    let sizes = match (call.ints("scale"), call.ints("border")) {
        (Some(&[height, width]), _) => [height, width].map(Range::exactly),
        (_, Some(&[left, top, right, bottom])) => {
            let inside = |size: Range, before: i64, after: i64| {
                size.subtract(Range::exactly(before.saturating_add(after))).maximum(Range::exactly(0))
            };
            [inside(height, top, bottom), inside(width, left, right)]
        }
        _ => return Err(Fault::Invalid("its border has not four sizes")),
    };
    one(call.data_type(0), [&[batch, channels][..], &sizes].concat())
}
