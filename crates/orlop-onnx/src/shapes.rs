//! The bytes of values.

use crate::OnnxError;
use crate::proto::{DimensionSize, TensorProto, TypeProto};
use std::collections::{BTreeMap, BTreeSet};

/// Computes bytes, and collects the names that no number was given for.
#[derive(Debug)]
pub(crate) struct Sizes<'a> {
    bindings: &'a BTreeMap<String, u64>,
    pub(crate) unbound: BTreeSet<String>,
    /// The names of which the number was used.
    pub(crate) used: BTreeSet<&'a str>,
}

impl<'a> Sizes<'a> {
    pub(crate) fn new(bindings: &'a BTreeMap<String, u64>) -> Self {
        Self { bindings, unbound: BTreeSet::new(), used: BTreeSet::new() }
    }

    /// Returns the bytes of a value. `None` if its shape is not known, or has names without a number.
    pub(crate) fn bytes(&mut self, value: &str, of: Option<&TypeProto>) -> Result<Option<u64>, OnnxError> {
        let Some(of) = of else { return Ok(None) };
        let Some(tensor) = &of.tensor_type else {
            return Err(OnnxError::UnsupportedType { value: value.to_owned(), data_type: 0 });
        };
        let Some(shape) = &tensor.shape else { return Ok(None) };
        let mut sizes = Vec::with_capacity(shape.dim.len());
        let mut is_known = true;
        for dim in &shape.dim {
            match &dim.size {
                Some(DimensionSize::Value(size)) => sizes.push(natural(value, *size)?),
                Some(DimensionSize::Symbol(name)) if !name.is_empty() => {
                    match self.bindings.get_key_value(name) {
                        Some((bound, size)) => {
                            self.used.insert(bound);
                            sizes.push(*size);
                        }
                        None => {
                            self.unbound.insert(name.clone());
                            is_known = false;
                        }
                    }
                }
                _ => is_known = false,
            }
        }
        if is_known { total(value, tensor.elem_type, &sizes).map(Some) } else { Ok(None) }
    }
}

/// Returns the bytes of a weight.
pub(crate) fn weight_bytes(tensor: &TensorProto) -> Result<u64, OnnxError> {
    let sizes: Result<Vec<u64>, _> = tensor.dims.iter().map(|&size| natural(&tensor.name, size)).collect();
    total(&tensor.name, tensor.data_type, &sizes?)
}

fn natural(value: &str, size: i64) -> Result<u64, OnnxError> {
    u64::try_from(size).map_err(|_| OnnxError::InvalidSize { value: value.to_owned() })
}

fn total(value: &str, data_type: i32, sizes: &[u64]) -> Result<u64, OnnxError> {
    let Some(bits) = element_bits(data_type) else {
        return Err(OnnxError::UnsupportedType { value: value.to_owned(), data_type });
    };
    if sizes.contains(&0) {
        return Ok(0);
    }
    let elements = sizes.iter().try_fold(1_u64, |product, &size| product.checked_mul(size));
    // Elements of four bits are packed.
    let bits = elements.and_then(|elements| u128::from(elements).checked_mul(bits));
    let bytes = bits.and_then(|bits| u64::try_from(bits.div_ceil(8)).ok());
    bytes.ok_or_else(|| OnnxError::InvalidSize { value: value.to_owned() })
}

/// Returns the bits of an element, by ONNX's number of its type (`TensorProto.DataType`). `None` for strings
/// and unknown types.
const fn element_bits(data_type: i32) -> Option<u128> {
    Some(match data_type {
        21..=23 => 4,
        2 | 3 | 9 | 17..=20 | 24 => 8,
        4 | 5 | 10 | 16 => 16,
        1 | 6 | 12 => 32,
        7 | 11 | 13 | 14 => 64,
        15 => 128,
        _ => return None,
    })
}
