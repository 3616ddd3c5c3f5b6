//! The operators: what the outputs of each are, and how they use the memory of its inputs.
//!
//! | file | operators |
//! |---|---|
//! | `elementwise` | element by element, from one tensor or from several that are broadcast |
//! | `normalize` | normalisations and activations with outputs of the input's shape |
//! | `shape` | sizes as values, constants, and the same elements under another shape |
//! | `layout` | the same elements in other places: Transpose, Concat, Slice, Pad, … |
//! | `gather` | elements by index: Gather, Scatter, TopK, OneHot, … |
//! | `reduce` | along axes to one element |
//! | `matmul` | products of matrices, Einsum, attention |
//! | `conv`, `pool` | with a window over spatial dimensions |
//! | `resize` | images: Resize, GridSample, … |
//! | `recurrent` | RNN, GRU, LSTM |
//! | `signal` | windows, DFT, STFT |
//! | `random` | random values |
//! | `quantize` | to and from quantized types |
//! | `sequence` | sequences, optional values, strings |
//! | `bounded` | results whose number depends on data: NonZero, NonMaxSuppression, … |
//! | `learn` | `ai.onnx.ml`, losses and optimizers |
//! | `contrib`, `transformer` | `com.microsoft` |
//! | `nchwc` | `com.microsoft.nchwc` |
//! | `retired` | experimental operators of versions up to 9 |
//! | `qonnx` | QONNX |
//! | `tensorrt` | plugins of TensorRT |

mod bounded;
mod contrib;
mod conv;
mod elementwise;
mod gather;
mod layout;
mod learn;
mod matmul;
mod nchwc;
mod normalize;
mod pool;
mod qonnx;
mod quantize;
mod random;
mod recurrent;
mod reduce;
mod resize;
mod retired;
mod sequence;
mod shape;
mod signal;
mod tensorrt;
mod transformer;
mod window;

use crate::infer::{Call, Outcome};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Computes what is known about the outputs of a node.
pub(crate) type Rule = fn(&Call<'_>) -> Outcome;

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
    /// It has the inputs side by side, along an axis.
    Concat,
    /// The first input has it and the other outputs side by side, along an axis.
    Split,
}

/// An operator.
#[derive(Debug)]
pub(crate) struct Operator {
    name: &'static str,
    pub(crate) rule: Rule,
    pub(crate) memory: MemoryUse,
}

const fn own(name: &'static str, rule: Rule) -> Operator {
    Operator { name, rule, memory: MemoryUse::Own }
}

const fn view(name: &'static str, rule: Rule) -> Operator {
    Operator { name, rule, memory: MemoryUse::View }
}

const fn over_first(name: &'static str, rule: Rule) -> Operator {
    Operator { name, rule, memory: MemoryUse::OverFirst }
}

const fn over_any(name: &'static str, rule: Rule) -> Operator {
    Operator { name, rule, memory: MemoryUse::OverAny }
}

type Table = HashMap<&'static str, &'static Operator>;

fn table(families: &[&'static [Operator]]) -> Table {
    families.iter().flat_map(|family| family.iter()).map(|operator| (operator.name, operator)).collect()
}

static STANDARD: LazyLock<Table> = LazyLock::new(|| {
    table(&[
        elementwise::OPERATORS,
        normalize::OPERATORS,
        shape::OPERATORS,
        layout::OPERATORS,
        gather::OPERATORS,
        reduce::OPERATORS,
        matmul::OPERATORS,
        conv::OPERATORS,
        pool::OPERATORS,
        resize::OPERATORS,
        recurrent::OPERATORS,
        signal::OPERATORS,
        random::OPERATORS,
        quantize::OPERATORS,
        sequence::OPERATORS,
        bounded::OPERATORS,
        learn::LOSSES,
        retired::OPERATORS,
        tensorrt::OPERATORS,
    ])
});

static LEARNING: LazyLock<Table> = LazyLock::new(|| table(&[learn::OPERATORS]));

static CONTRIB: LazyLock<Table> = LazyLock::new(|| table(&[contrib::OPERATORS, transformer::OPERATORS]));

static BLOCKED: LazyLock<Table> = LazyLock::new(|| table(&[nchwc::OPERATORS]));

static QONNX: LazyLock<Table> = LazyLock::new(|| table(&[qonnx::OPERATORS]));

static TENSORRT: LazyLock<Table> = LazyLock::new(|| table(&[tensorrt::OPERATORS]));

/// Returns `true` for the names of ONNX's own domain.
pub(crate) fn is_standard(domain: &str) -> bool {
    matches!(domain, "" | "ai.onnx")
}

/// Returns an operator. `None` if its outputs have no rule.
pub(crate) fn find(domain: &str, name: &str) -> Option<&'static Operator> {
    let table = match domain {
        "" | "ai.onnx" | "ai.onnx.preview" => &STANDARD,
        "ai.onnx.ml" | "ai.onnx.preview.training" => &LEARNING,
        "com.microsoft" => &CONTRIB,
        "com.microsoft.nchwc" => &BLOCKED,
        "onnx.brevitas" | "qonnx.custom_op.general" | "finn.custom_op.general" => &QONNX,
        "TRT" => &TENSORRT,
        _ => return None,
    };
    table.get(name).copied()
}
