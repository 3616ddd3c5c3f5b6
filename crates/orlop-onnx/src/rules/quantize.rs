//! To quantized types and back.

use super::{Operator, own};
use crate::infer::{Call, Outcome, Tensor, one, types};

pub(super) const OPERATORS: &[Operator] = &[
    own("QuantizeLinear", quantize),
    own("DequantizeLinear", dequantize),
    own("DynamicQuantizeLinear", dynamic),
];

/// The type is that of the zero point, or else of an attribute.
pub(super) fn quantize(call: &Call<'_>) -> Outcome {
    let by_attribute = call.type_or("output_dtype", 0);
    let data_type = match (call.has(2), by_attribute) {
        (true, _) => call.data_type(2),
        (false, 0) => types::UINT8,
        (false, data_type) => data_type,
    };
    one(data_type, call.shape(0)?.to_vec())
}

pub(super) fn dequantize(call: &Call<'_>) -> Outcome {
    let data_type = match call.type_or("output_dtype", 0) {
        0 => call.data_type(1),
        data_type => data_type,
    };
    one(data_type, call.shape(0)?.to_vec())
}

fn dynamic(call: &Call<'_>) -> Outcome {
    let scalar = |data_type| Tensor::new(data_type, Vec::new()).into();
    let output = Tensor::new(types::UINT8, call.shape(0)?.to_vec());
    Ok(vec![output.into(), scalar(types::FLOAT), scalar(types::UINT8)])
}
