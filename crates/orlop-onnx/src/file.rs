//! [`OnnxFile`]: a model that was decoded, to be planned for any sizes of its inputs.

use crate::OnnxError;
use crate::decode::{Scope, decode};
use crate::expression;
use crate::proto::{DimensionSize, TypeProto};
use std::collections::BTreeSet;

/// A decoded model. Its inputs may have sizes with names, or without; [`OnnxReader`](crate::OnnxReader) gives
/// them numbers.
///
/// ```
/// use orlop_onnx::{OnnxFile, OnnxReader};
///
/// let bytes = include_bytes!("../tests/data/onnx/mlp.onnx");
/// let file = OnnxFile::decode(&bytes[..])?;
/// let large = OnnxReader::new().bind("batch", 8).resolve(&file)?;
/// let small = OnnxReader::new().bind("batch", 1).resolve(&file)?;
/// assert!(large.value_bytes > small.value_bytes);
/// # Ok::<(), orlop_onnx::OnnxError>(())
/// ```
#[derive(Debug, Clone)]
pub struct OnnxFile {
    pub(crate) scope: Scope,
    /// The names in types.
    pub(crate) symbols: BTreeSet<String>,
}

/// An input of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OnnxInput {
    /// The name.
    pub name: String,
    /// The sizes of the dimensions. `None` if the file does not say how many there are, or if it is no
    /// tensor.
    pub sizes: Option<Vec<InputSize>>,
}

/// What a file says about a dimension of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputSize {
    /// A number.
    Number(u64),
    /// A name, or an expression of names.
    Symbol(String),
    /// Nothing.
    Unknown,
}

impl InputSize {
    /// Returns the names that a size is computed from: one, or those in an expression.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Symbol(text) => expression::names(text).unwrap_or_else(|| vec![text.clone()]),
            Self::Number(_) | Self::Unknown => Vec::new(),
        }
    }
}

impl OnnxFile {
    /// Decodes a model from the bytes of its file. Contents of large weights are not kept.
    ///
    /// # Errors
    ///
    /// [`OnnxError`]: it is no model, or its graph is not valid.
    pub fn decode(bytes: impl Into<Vec<u8>>) -> Result<Self, OnnxError> {
        let scope = decode(bytes.into().into())?;
        let mut symbols = BTreeSet::new();
        collect_symbols(&scope, &mut symbols);
        Ok(Self { scope, symbols })
    }

    /// Returns the inputs in their order, without weights.
    #[must_use]
    pub fn inputs(&self) -> Vec<OnnxInput> {
        self.scope.inputs.iter().map(|&value| self.input(value)).collect()
    }

    pub(crate) fn input(&self, value: usize) -> OnnxInput {
        let value = &self.scope.values[value];
        OnnxInput { name: value.name.to_string(), sizes: value.claim.as_ref().and_then(input_sizes) }
    }
}

fn input_sizes(claim: &TypeProto) -> Option<Vec<InputSize>> {
    let shape = claim.tensor_type.as_ref()?.shape.as_ref()?;
    Some(shape.dim.iter().map(|dimension| size_of(dimension.size.as_ref())).collect())
}

/// Exporters write several things for a size that they do not know.
fn size_of(size: Option<&DimensionSize>) -> InputSize {
    match size {
        Some(DimensionSize::Value(size)) => {
            u64::try_from(*size).map_or(InputSize::Unknown, InputSize::Number)
        }
        Some(DimensionSize::Symbol(name)) if !matches!(&**name, "" | "?" | "None" | "-1") => {
            InputSize::Symbol(name.clone())
        }
        _ => InputSize::Unknown,
    }
}

fn collect_symbols(scope: &Scope, symbols: &mut BTreeSet<String>) {
    for claim in scope.values.iter().filter_map(|value| value.claim.as_ref()) {
        for size in input_sizes(claim).unwrap_or_default() {
            if let InputSize::Symbol(name) = size {
                symbols.extend(expression::names(&name).unwrap_or_default());
                symbols.insert(name);
            }
        }
    }
    for body in scope.nodes.iter().flat_map(|node| &node.bodies) {
        collect_symbols(&body.scope, symbols);
    }
}
