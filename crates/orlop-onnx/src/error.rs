//! [`OnnxError`].

use crate::shapes::{NO_TENSOR, STRING};
use orlop_plan::GraphError;
use std::fmt;

/// Why a file cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// It is no ONNX model, or it was cut off.
    #[error("this is no ONNX model: {0}")]
    NotOnnx(#[from] prost::DecodeError),
    /// The model has no graph.
    #[error("the model has no graph")]
    NoGraph,
    /// Sizes in shapes have names, and no number was given for them.
    #[error("sizes have names: bind {}", Names(symbols))]
    UnboundSymbols {
        /// The names, each once.
        symbols: Vec<String>,
    },
    /// The file does not say which shape values have.
    #[error("without a shape: {}; run ONNX's shape inference first", Names(values))]
    UnknownShapes {
        /// The names of the values.
        values: Vec<String>,
    },
    /// A value is no tensor of a type whose elements have a fixed size.
    #[error("the value {value:?} {}", Unsupported(*data_type))]
    UnsupportedType {
        /// The name of the value.
        value: String,
        /// ONNX's number for the type; 0 for values that are no tensors.
        data_type: i32,
    },
    /// A dimension is negative, or the bytes of a value exceed 64 bits.
    #[error(
        "the value {value:?} has a negative dimension, or over 2^64 bytes: change its shape or a binding"
    )]
    InvalidSize {
        /// The name of the value.
        value: String,
    },
    /// The values that nodes write have more than 2^64 bytes together.
    #[error("the values up to {value:?} exceed 2^64 bytes together: change its shape or a binding")]
    TotalOverflow {
        /// The name of the value that exceeds them.
        value: String,
    },
    /// An operator executes a graph of its own, for as long as its inputs say.
    #[error("the node {node:?} ({operator}) has a graph of its own: control flow cannot be planned")]
    ControlFlow {
        /// The name of the node.
        node: String,
        /// Its operator.
        operator: String,
    },
    /// A node reads a value that nothing writes.
    #[error("the node {node:?} reads {value:?}, which nothing writes")]
    MissingValue {
        /// The name of the node.
        node: String,
        /// The name of the value.
        value: String,
    },
    /// A result of the model is no input, and no node writes it.
    #[error("the model's output {value:?} is no input, and no node writes it")]
    MissingOutput {
        /// The name of the value.
        value: String,
    },
    /// A value is written twice.
    #[error("the value {value:?} is written twice")]
    WrittenTwice {
        /// The name of the value.
        value: String,
    },
    /// Nodes read each other's outputs in a circle.
    #[error("the node {node:?} is in a circle: it needs its own output, directly or through other nodes")]
    Circle {
        /// The name of a node of it.
        node: String,
    },
    /// All sizes together exceed what a problem may have.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// What is unsupported about a type.
struct Unsupported(i32);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            NO_TENSOR => {
                f.write_str("is no tensor, or has no type of elements: its bytes are not known in advance")
            }
            STRING => {
                f.write_str("is written by a node, and has strings: their bytes are not known in advance")
            }
            other => write!(f, "has elements of an unknown type (ONNX's number {other})"),
        }
    }
}

/// The first names, in quotes.
struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        for (index, name) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{name:?}", if index == 0 { "" } else { ", " })?;
        }
        if self.0.len() > SHOWN { write!(f, " and {} more", self.0.len() - SHOWN) } else { Ok(()) }
    }
}
