//! The element types that both sides have.

use crate::{Error, Result};
use orlop::prelude::*;
use orlop::tensor::TensorSlice;
use ort::session::SessionInputValue;
use ort::value::{TensorElementType, TensorRef};

macro_rules! element_types {
    ($($variant:ident, $rust:ty, $dtype:ident;)+) => {
        /// The borrowed elements of an input, for as long as ONNX Runtime reads them.
        pub(crate) enum BorrowedInput<'t> {
            $($variant(TensorSlice<'t, $rust>),)+
        }

        impl<'t> BorrowedInput<'t> {
            /// Borrows the elements of a contiguous tensor.
            pub(crate) fn of(tensor: &'t Tensor) -> Result<Self> {
                match tensor.dtype() {
                    $(DType::$dtype => Ok(Self::$variant(tensor.as_slice::<$rust>()?)),)+
                    dtype => Err(Error::UnsupportedDType(dtype)),
                }
            }

            /// Returns the elements as a value of this shape.
            pub(crate) fn value<'a>(&'a self, sizes: &'a [usize]) -> Result<SessionInputValue<'a>> {
                match self {
                    $(Self::$variant(elements) => {
                        let value = TensorRef::from_array_view((sizes, &**elements))?;
                        Ok(SessionInputValue::from(value))
                    })+
                }
            }
        }

        /// Returns the dtype of ONNX Runtime's elements.
        pub(crate) fn dtype(of: TensorElementType) -> Option<DType> {
            match of {
                $(TensorElementType::$variant => Some(DType::$dtype),)+
                _ => None,
            }
        }
    };
}

element_types! {
    Float32, f32, F32;
    Float64, f64, F64;
    Int8, i8, I8;
    Int16, i16, I16;
    Int32, i32, I32;
    Int64, i64, I64;
    Uint8, u8, U8;
    Uint16, u16, U16;
    Uint32, u32, U32;
    Uint64, u64, U64;
}
