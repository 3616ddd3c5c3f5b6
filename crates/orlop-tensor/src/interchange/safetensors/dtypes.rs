//! Conversion between the format's dtypes and [`DType`].

use orlop_core::DType;
use safetensors::Dtype;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as Unknown, StrDeserializer};

/// Returns the dtype with this name in the format. `None` for unknown names, and for dtypes that [`DType`]
/// does not have: floats of four and six bits, and other eight-bit floats.
pub(super) fn named(name: &str) -> Option<DType> {
    let name: StrDeserializer<'_, Unknown> = name.into_deserializer();
    Some(match Dtype::deserialize(name).ok()? {
        Dtype::BOOL => DType::Bool,
        Dtype::U8 => DType::U8,
        Dtype::U16 => DType::U16,
        Dtype::U32 => DType::U32,
        Dtype::U64 => DType::U64,
        Dtype::I8 => DType::I8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::F8_E4M3 => DType::F8E4M3,
        Dtype::F8_E5M2 => DType::F8E5M2,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        Dtype::C64 => DType::C64,
        _ => return None,
    })
}

/// Returns the format's dtype, whose order is the order of tensors in a file. `None` for dtypes that the
/// format does not have.
pub(super) fn written(dtype: DType) -> Option<Dtype> {
    Some(match dtype {
        DType::Bool => Dtype::BOOL,
        DType::U8 => Dtype::U8,
        DType::U16 => Dtype::U16,
        DType::U32 => Dtype::U32,
        DType::U64 => Dtype::U64,
        DType::I8 => Dtype::I8,
        DType::I16 => Dtype::I16,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::F8E4M3 => Dtype::F8_E4M3,
        DType::F8E5M2 => Dtype::F8_E5M2,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        DType::C64 => Dtype::C64,
        DType::C128 => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for dtype in DType::ALL {
            let Some(there) = written(dtype) else {
                assert_eq!(dtype, DType::C128);
                continue;
            };
            assert_eq!(named(&there.to_string()), Some(dtype));
            assert_eq!(there.bitsize(), dtype.size() * 8);
        }
    }

    #[test]
    fn what_is_not_here() {
        for name in ["F4", "F6_E2M3", "F8_E8M0", "F8_E4M3FNUZ", "f32", "F33", ""] {
            assert_eq!(named(name), None, "{name}");
        }
    }
}
