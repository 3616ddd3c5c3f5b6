//! The types, sizes and bytes of values.

use crate::OnnxError;
use crate::infer::Tensor;
use crate::proto::{DimensionSize, TensorProto, TypeProto};
use orlop_core::DType;

/// The type and the sizes of a value, with its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TensorSize {
    /// ONNX's number for the type of the elements.
    pub(crate) data_type: i32,
    pub(crate) sizes: Vec<u64>,
    /// None for strings, which are elsewhere.
    pub(crate) bytes: u64,
}

impl TensorSize {
    fn new(value: &str, data_type: i32, sizes: Vec<u64>) -> Result<Self, OnnxError> {
        let bytes = total(value, data_type, &sizes)?;
        Ok(Self { data_type, sizes, bytes })
    }

    /// Returns the size that a tensor can have at most. `None` if its type is unknown, or if a dimension has
    /// no bound.
    pub(crate) fn of_tensor(value: &str, tensor: &Tensor) -> Result<Option<Self>, OnnxError> {
        let Some(shape) = tensor.shape.as_ref().filter(|_| tensor.data_type != UNDEFINED) else {
            return Ok(None);
        };
        if !shape.iter().all(|size| size.is_bounded()) {
            return Ok(None);
        }
        let sizes: Result<Vec<u64>, _> = shape.iter().map(|size| natural(value, size.max())).collect();
        Self::new(value, tensor.data_type, sizes?).map(Some)
    }

    /// Returns `true` if the elements are strings, whose bytes are not known in advance.
    pub(crate) fn is_strings(&self) -> bool {
        self.data_type == STRING
    }

    /// Returns `true` if the bytes of this value are those of the other one, under another shape.
    pub(crate) fn is_view_of(&self, other: &Self) -> bool {
        (self.data_type, self.bytes) == (other.data_type, other.bytes)
    }

    /// Returns `true` if no byte of the value is used in part, as the last one of packed elements may be.
    pub(crate) fn ends_on_byte(&self) -> bool {
        let elements = self.sizes.iter().try_fold(1_u128, |product, &size| product.checked_mul(size.into()));
        let bits = elements.zip(element_bits(self.data_type));
        bits.is_some_and(|(elements, bits)| (elements % 8 * bits).is_multiple_of(8))
    }

    /// Returns `true` if each element of this value has the place of one of the other's: they are as many,
    /// and as large. A value that is broadcast has fewer.
    pub(crate) fn fits_over(&self, other: &Self) -> bool {
        let bits = element_bits(self.data_type);
        self.bytes == other.bytes && bits == element_bits(other.data_type)
    }
}

/// The number of a tensor's type that the file does not say.
const UNDEFINED: i32 = 0;

/// The number of the type of strings.
pub(crate) const STRING: i32 = 8;

/// What a type says about the least known size of a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Precision {
    Nothing,
    Names,
    Numbers,
}

/// Returns the size of a weight with this name.
pub(crate) fn of_weight(name: &str, tensor: &TensorProto) -> Result<TensorSize, OnnxError> {
    let sizes: Result<Vec<u64>, _> = tensor.dims.iter().map(|&size| natural(name, size)).collect();
    TensorSize::new(name, tensor.data_type, sizes?)
}

/// Returns how much a type says about the size of a value.
pub(crate) fn precision(of: Option<&TypeProto>) -> Precision {
    let Some(of) = of else { return Precision::Nothing };
    let Some(tensor) = &of.tensor_type else { return Precision::Numbers };
    let Some(shape) = tensor.shape.as_ref().filter(|_| tensor.elem_type != UNDEFINED) else {
        return Precision::Nothing;
    };
    let of_dim = |size: &Option<DimensionSize>| match size {
        Some(DimensionSize::Value(_)) => Precision::Numbers,
        Some(DimensionSize::Symbol(name)) if !name.is_empty() => Precision::Names,
        _ => Precision::Nothing,
    };
    shape.dim.iter().map(|dim| of_dim(&dim.size)).min().unwrap_or(Precision::Numbers)
}

fn natural(value: &str, size: i64) -> Result<u64, OnnxError> {
    u64::try_from(size).map_err(|_| OnnxError::InvalidSize { value: value.to_owned() })
}

fn total(value: &str, data_type: i32, sizes: &[u64]) -> Result<u64, OnnxError> {
    if data_type == STRING {
        return Ok(0);
    }
    let Some(bits) = element_bits(data_type) else {
        return Err(OnnxError::UnsupportedType { value: value.to_owned(), data_type });
    };
    if sizes.contains(&0) {
        return Ok(0);
    }
    let elements = sizes.iter().try_fold(1_u64, |product, &size| product.checked_mul(size));
    // Elements of less than a byte are packed.
    let bits = elements.and_then(|elements| u128::from(elements).checked_mul(bits));
    let bytes = bits.and_then(|bits| u64::try_from(bits.div_ceil(8)).ok());
    bytes.ok_or_else(|| OnnxError::InvalidSize { value: value.to_owned() })
}

/// Returns the bits of an element, by ONNX's number of its type (`TensorProto.DataType`). `None` for strings
/// and unknown types.
const fn element_bits(data_type: i32) -> Option<u128> {
    Some(match data_type {
        25 | 26 => 2,
        21..=23 => 4,
        27 | 28 => 6,
        2 | 3 | 9 | 17..=20 | 24 => 8,
        4 | 5 | 10 | 16 => 16,
        1 | 6 | 12 => 32,
        7 | 11 | 13 | 14 => 64,
        15 => 128,
        _ => return None,
    })
}

/// Returns the dtype for ONNX's number of a type. `None` for types without one: strings, elements of less
/// than a byte, and three formats of eight bits.
pub(crate) const fn dtype(data_type: i32) -> Option<DType> {
    Some(match data_type {
        1 => DType::F32,
        2 => DType::U8,
        3 => DType::I8,
        4 => DType::U16,
        5 => DType::I16,
        6 => DType::I32,
        7 => DType::I64,
        9 => DType::Bool,
        10 => DType::F16,
        11 => DType::F64,
        12 => DType::U32,
        13 => DType::U64,
        14 => DType::C64,
        15 => DType::C128,
        16 => DType::BF16,
        17 => DType::F8E4M3,
        19 => DType::F8E5M2,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dtypes_have_the_size_of_their_elements() {
        let known = (-1..40).filter_map(|number| Some((number, dtype(number)?)));
        let known: Vec<_> = known.collect();
        for &(number, dtype) in &known {
            assert_eq!(element_bits(number), Some(8 * dtype.size() as u128), "{number}: {dtype}");
        }
        for dtype in DType::ALL {
            assert_eq!(known.iter().filter(|(_, known)| *known == dtype).count(), 1, "{dtype}");
        }
    }
}
