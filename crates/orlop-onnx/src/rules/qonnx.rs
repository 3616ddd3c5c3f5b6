//! Operators of QONNX, which Brevitas, FINN and hls4ml exchange: quantization that leaves a value its shape
//! and its type.

use super::elementwise::same;
use super::{Operator, over_first};

pub(super) const OPERATORS: &[Operator] = &[
    over_first("BipolarQuant", same),
    over_first("FloatQuant", same),
    over_first("IntQuant", same),
    over_first("MultiThreshold", same),
    over_first("Quant", same),
    over_first("Trunc", same),
];
