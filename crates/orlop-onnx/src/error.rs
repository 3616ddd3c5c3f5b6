//! [`OnnxError`].

use crate::file::{InputSize, OnnxInput};
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
    /// The sizes of inputs are open, and no numbers were given for them.
    #[error("sizes of inputs are missing: {}", Inputs(inputs))]
    MissingSizes {
        /// The inputs.
        inputs: Vec<OnnxInput>,
    },
    /// Sizes or elements were given for an input that the model does not have.
    #[error("the model has no input {name:?}: its inputs are {}", Names(inputs))]
    UnknownInput {
        /// The name.
        name: String,
        /// The names of the inputs.
        inputs: Vec<String>,
    },
    /// Sizes were given for more inputs than the model has.
    #[error("the model has only {inputs} inputs")]
    TooManyInputs {
        /// The number of inputs.
        inputs: usize,
    },
    /// What was given for an input contradicts the file.
    #[error("the input {input:?} {conflict}")]
    InputConflict {
        /// The name of the input.
        input: String,
        /// The contradiction.
        conflict: InputConflict,
    },
    /// The inputs have sizes with which an operator cannot be executed.
    #[error("the node {node:?} ({operator}) does not fit the sizes of the inputs: {reason}")]
    Contradiction {
        /// The name of the node.
        node: String,
        /// Its operator.
        operator: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// Sizes depend on what is computed, and have no bound.
    #[error("the largest sizes are not known of {}", Unknown(values))]
    UnknownSizes {
        /// The values, each with what could bound it.
        values: Vec<UnknownSize>,
    },
    /// The functions or the loops of the model are nested too deeply.
    #[error("the functions and loops around the node {node:?} are too many to be followed")]
    TooComplex {
        /// The name of the node.
        node: String,
    },
    /// A weight has no shape in the file, and is to have a buffer.
    #[error("the file does not say which shape these have: {}", Names(values))]
    UnknownShapes {
        /// The names of the values.
        values: Vec<String>,
    },
    /// A value has elements of a type that is not known.
    #[error("the value {value:?} has elements of an unknown type (ONNX's number {data_type})")]
    UnsupportedType {
        /// The name of the value.
        value: String,
        /// ONNX's number for the type.
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

/// How what was given for an input contradicts the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputConflict {
    /// It has another number of dimensions.
    #[error("has {in_file} dimensions, not {given}")]
    Rank {
        /// The number of sizes that were given.
        given: usize,
        /// The number of dimensions in the file.
        in_file: usize,
    },
    /// A dimension has another size in the file, or by another input.
    #[error("has the size {known} in dimension {dimension}, not {given}")]
    Size {
        /// The position of the dimension.
        dimension: usize,
        /// The size that was given.
        given: u64,
        /// The size that it has.
        known: u64,
    },
    /// It has another number of elements, or too many for sizes to be computed from them.
    #[error("has not {given} elements, or too many to be given")]
    Elements {
        /// The number of elements that were given.
        given: usize,
    },
}

/// A value whose size has no bound.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownSize {
    /// The name of the value.
    pub value: String,
    /// The name of the node that writes it.
    pub node: String,
    /// The operator of that node.
    pub operator: String,
    /// The inputs of the model whose elements may decide it, at most 64:
    /// [`OnnxReader::value`](crate::OnnxReader::value).
    pub inputs: Vec<String>,
}

/// The number of values that a message has.
const SHOWN: usize = 8;

/// Inputs with their sizes.
struct Inputs<'a>(&'a [OnnxInput]);

impl fmt::Display for Inputs<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, input) in self.0.iter().enumerate() {
            write!(f, "{}{:?} ", if index == 0 { "" } else { ", " }, input.name)?;
            let Some(sizes) = &input.sizes else {
                f.write_str("of any shape")?;
                continue;
            };
            f.write_str("[")?;
            for (index, size) in sizes.iter().enumerate() {
                f.write_str(if index == 0 { "" } else { ", " })?;
                match size {
                    InputSize::Number(number) => write!(f, "{number}")?,
                    InputSize::Symbol(name) => f.write_str(name)?,
                    InputSize::Unknown => f.write_str("?")?,
                }
            }
            f.write_str("]")?;
        }
        Ok(())
    }
}

/// The first values, with their operators.
struct Unknown<'a>(&'a [UnknownSize]);

impl fmt::Display for Unknown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, unknown) in self.0.iter().take(SHOWN).enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{:?} ({})", unknown.value, unknown.operator)?;
        }
        rest(f, self.0.len())
    }
}

fn rest(f: &mut fmt::Formatter<'_>, count: usize) -> fmt::Result {
    if count > SHOWN { write!(f, " and {} more", count - SHOWN) } else { Ok(()) }
}

/// The first names, in quotes.
struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{name:?}", if index == 0 { "" } else { ", " })?;
        }
        rest(f, self.0.len())
    }
}
