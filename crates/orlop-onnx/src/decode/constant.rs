//! Weights and constants.

use super::node::attribute;
use crate::infer::{Element, MAX_ELEMENTS, Range, Tensor, types};
use crate::proto::{NodeProto, SparseTensorProto, TensorProto};
use crate::shapes::{TensorSize, of_weight};
use crate::{OnnxError, ValueOrigin};
use half::{bf16, f16};

/// A value with contents that are the same in each run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Constant {
    pub(crate) value: usize,
    pub(crate) origin: ValueOrigin,
    /// `None` if the file does not say.
    pub(crate) size: Option<TensorSize>,
    pub(crate) tensor: Option<Tensor>,
}

impl Constant {
    pub(crate) fn dense(value: usize, name: &str, tensor: &TensorProto) -> Result<Self, OnnxError> {
        Ok(Self {
            value,
            origin: ValueOrigin::Weight,
            size: Some(of_weight(name, tensor)?),
            tensor: Some(tensor_of(tensor)),
        })
    }

    /// Its size is that of the stored elements, its shape that of the whole.
    pub(crate) fn sparse(value: usize, name: &str, sparse: &SparseTensorProto) -> Result<Self, OnnxError> {
        let stored = sparse.values.as_ref();
        let data_type = stored.map_or(0, |values| values.data_type);
        let shape = sparse.dims.iter().map(|&size| Range::exactly(size)).collect();
        Ok(Self {
            value,
            origin: ValueOrigin::SparseWeight,
            size: stored.map(|values| of_weight(name, values)).transpose()?,
            tensor: (!sparse.dims.is_empty()).then(|| Tensor::new(data_type, shape)),
        })
    }

    /// Reads the contents of a node `Constant`.
    pub(crate) fn of_node(value: usize, name: &str, node: &NodeProto) -> Result<Self, OnnxError> {
        if let Some(tensor) = attribute(node, "value").and_then(|attribute| attribute.t.as_ref()) {
            return Self::dense(value, name, tensor);
        }
        if let Some(sparse) = attribute(node, "sparse_value").and_then(|value| value.sparse_tensor.as_ref()) {
            return Self { origin: ValueOrigin::Weight, ..Self::sparse(value, name, sparse)? }.whole(name);
        }
        let tensor = node.attribute.iter().find_map(|attribute| {
            let ints = attribute.ints.iter().map(|&number| Element::exact(number));
            let floats = attribute.floats.iter().map(|&number| Element::exact_real(f64::from(number)));
            let row = |data_type, elements: Vec<_>| {
                Some(Tensor::with_elements(data_type, &[elements.len()], elements))
            };
            let scalar = |data_type, element| Some(Tensor::with_elements(data_type, &[], vec![element]));
            match &*attribute.name {
                "value_int" => scalar(types::INT64, Element::exact(attribute.i?)),
                "value_float" => scalar(types::FLOAT, Element::exact_real(f64::from(attribute.f?))),
                "value_ints" => row(types::INT64, ints.collect()),
                "value_floats" => row(types::FLOAT, floats.collect()),
                "value_string" => Some(Tensor::new(types::STRING, Vec::new())),
                "value_strings" => {
                    let count = i64::try_from(attribute.strings.len()).unwrap_or(i64::MAX);
                    Some(Tensor::new(types::STRING, vec![Range::exactly(count)]))
                }
                _ => None,
            }
        });
        Self { value, origin: ValueOrigin::Weight, size: None, tensor }.whole(name)
    }

    /// Takes the size from the shape.
    fn whole(self, name: &str) -> Result<Self, OnnxError> {
        let size =
            self.tensor.as_ref().map(|tensor| TensorSize::of_tensor(name, tensor)).transpose()?.flatten();
        Ok(Self { size, ..self })
    }
}

/// Returns the shape of a weight, with the elements if they are few.
pub(crate) fn tensor_of(proto: &TensorProto) -> Tensor {
    let shape = proto.dims.iter().map(|&size| Range::exactly(size)).collect();
    let tensor = Tensor::new(proto.data_type, shape);
    let elements = tensor.small_sizes().and_then(|sizes| elements_of(proto, sizes.iter().product()));
    Tensor { elements, ..tensor }
}

fn elements_of(proto: &TensorProto, count: usize) -> Option<Vec<Element>> {
    let elements: Vec<Element> = match proto.raw_data.is_empty() {
        false => raw_elements(proto)?,
        true => typed_elements(proto)?,
    };
    (elements.len() == count && count <= MAX_ELEMENTS).then_some(elements)
}

fn raw_elements(proto: &TensorProto) -> Option<Vec<Element>> {
    let raw = &*proto.raw_data;
    macro_rules! numbers {
        ($type:ty, $element:expr) => {
            raw.chunks_exact(size_of::<$type>())
                .map(|bytes| bytes.try_into().ok().map(<$type>::from_le_bytes).map($element))
                .collect()
        };
    }
    match proto.data_type {
        types::FLOAT => numbers!(f32, |number| Element::exact_real(f64::from(number))),
        types::DOUBLE => numbers!(f64, Element::exact_real),
        types::UINT8 | types::BOOL => numbers!(u8, |number| Element::exact(i64::from(number))),
        types::INT8 => numbers!(i8, |number| Element::exact(i64::from(number))),
        4 => numbers!(u16, |number| Element::exact(i64::from(number))),
        5 => numbers!(i16, |number| Element::exact(i64::from(number))),
        types::INT32 => numbers!(i32, |number| Element::exact(i64::from(number))),
        types::INT64 => numbers!(i64, Element::exact),
        12 => numbers!(u32, |number| Element::exact(i64::from(number))),
        13 => numbers!(u64, |number| Element::exact(i64::try_from(number).unwrap_or(i64::MAX))),
        types::FLOAT16 => numbers!(u16, |bits| Element::exact_real(f16::from_bits(bits).to_f64())),
        types::BFLOAT16 => numbers!(u16, |bits| Element::exact_real(bf16::from_bits(bits).to_f64())),
        _ => None,
    }
}

fn typed_elements(proto: &TensorProto) -> Option<Vec<Element>> {
    let ints = |numbers: &[i64]| Some(numbers.iter().map(|&number| Element::exact(number)).collect());
    match proto.data_type {
        types::FLOAT => {
            Some(proto.float_data.iter().map(|&number| Element::exact_real(f64::from(number))).collect())
        }
        types::DOUBLE => Some(proto.double_data.iter().map(|&number| Element::exact_real(number)).collect()),
        types::INT64 => ints(&proto.int64_data),
        types::UINT8 | types::INT8 | 4 | 5 | types::INT32 | types::BOOL => {
            Some(proto.int32_data.iter().map(|&number| Element::exact(i64::from(number))).collect())
        }
        12 | 13 => {
            let number = |&number: &u64| Element::exact(i64::try_from(number).unwrap_or(i64::MAX));
            Some(proto.uint64_data.iter().map(number).collect())
        }
        types::FLOAT16 => {
            let element = |bits| Element::exact_real(f16::from_bits(bits).to_f64());
            proto.int32_data.iter().map(|&bits| u16::try_from(bits).ok().map(element)).collect()
        }
        _ => None,
    }
}
