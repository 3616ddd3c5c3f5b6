//! Normalisations: outputs of the input's shape, and statistics beside them.

use super::elementwise::same;
use super::{Operator, over_first, own};
use crate::infer::{Call, Fact, Outcome, Range, Tensor, axis_of, types};

pub(super) const OPERATORS: &[Operator] = &[
    over_first("BatchNormalization", batch),
    over_first("Dropout", dropout),
    over_first("Softmax", same),
    over_first("LogSoftmax", same),
    own("Hardmax", same),
    own("InstanceNormalization", same),
    own("GroupNormalization", same),
    own("RMSNormalization", same),
    own("LpNormalization", same),
    own("MeanVarianceNormalization", same),
    own("LRN", same),
    own("LayerNormalization", layer),
    // ONNX Runtime's, in ONNX's domain.
    own("SimplifiedLayerNormalization", layer),
    own("RotaryEmbedding", same),
    own("Trilu", same),
    own("CumSum", same),
    own("CumProd", same),
    own("ReverseSequence", same),
];

/// In training, and in old versions, mean and variance follow the first output.
fn batch(call: &Call<'_>) -> Outcome {
    let mut outputs = same(call)?;
    let statistics = Tensor::new(call.data_type(3), vec![call.size(3, 0).or_else(|_| call.size(1, 0))?]);
    outputs.resize(call.node.outputs.len().max(1), statistics.into());
    Ok(outputs)
}

fn dropout(call: &Call<'_>) -> Outcome {
    let input = call.tensor(0)?;
    // Before version 10 the mask has the type of the input.
    let mask = if call.node.version < 10 { input.data_type } else { types::BOOL };
    let mask = Tensor { data_type: mask, elements: None, ..input.clone() };
    Ok(vec![Tensor { elements: None, ..input.clone() }.into(), mask.into()])
}

/// Mean and inverse deviation have one element along the axes that are normalised.
pub(super) fn layer(call: &Call<'_>) -> Outcome {
    let input = call.tensor(0)?;
    let Some(shape) = &input.shape else { return same(call) };
    let axis = axis_of(call.int_or("axis", -1), shape.len())?;
    let kept = shape.iter().enumerate().map(|(at, &size)| if at < axis { size } else { Range::exactly(1) });
    let statistics = Tensor::new(call.type_or("stash_type", types::FLOAT), kept.collect());
    let normal = Fact::from(Tensor { elements: None, ..input.clone() });
    Ok(vec![normal, statistics.clone().into(), statistics.into()])
}
