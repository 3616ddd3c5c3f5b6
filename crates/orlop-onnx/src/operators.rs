//! What the operators of ONNX's own domain do with the memory of their inputs.

/// How the first output of an operator uses the memory of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryUse {
    /// It has memory of its own.
    Own,
    /// It has the bytes of the first input, under another shape.
    View,
    /// It may be written over the first input.
    OverFirst,
    /// It may be written over any input of its size.
    OverAny,
}

/// Returns `true` for the names of ONNX's own domain.
pub(crate) fn is_standard(domain: &str) -> bool {
    matches!(domain, "" | "ai.onnx")
}

/// Returns how an operator uses memory. What is not known to be safe has memory of its own.
pub(crate) fn memory_use(domain: &str, operator: &str) -> MemoryUse {
    if !is_standard(domain) {
        return MemoryUse::Own;
    }
    match operator {
        "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" | "Identity" => MemoryUse::View,
        // Element by element, from one tensor.
        "Abs" | "Acos" | "Acosh" | "Asin" | "Asinh" | "Atan" | "Atanh" | "BitwiseNot" | "Cast" | "Ceil"
        | "Celu" | "Clip" | "Cos" | "Cosh" | "Dropout" | "Elu" | "Erf" | "Exp" | "Floor" | "Gelu"
        | "HardSigmoid" | "HardSwish" | "LeakyRelu" | "Log" | "Mish" | "Neg" | "Not" | "Reciprocal"
        | "Relu" | "Round" | "Selu" | "Shrink" | "Sigmoid" | "Sign" | "Sin" | "Sinh" | "Softplus"
        | "Softsign" | "Sqrt" | "Tan" | "Tanh" | "ThresholdedRelu" => MemoryUse::OverFirst,
        // Each element, or each row, is read before it is written.
        "BatchNormalization" | "LogSoftmax" | "PRelu" | "Softmax" => MemoryUse::OverFirst,
        "Add" | "And" | "BitShift" | "BitwiseAnd" | "BitwiseOr" | "BitwiseXor" | "Div" | "Max" | "Mean"
        | "Min" | "Mod" | "Mul" | "Or" | "Pow" | "Sub" | "Sum" | "Where" | "Xor" => MemoryUse::OverAny,
        _ => MemoryUse::Own,
    }
}
