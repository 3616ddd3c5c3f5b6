//! Models and their inputs, for the examples.

use orlop::prelude::*;
use ort::session::Session;
use ort::value::{DynValue, Tensor as Value, TensorElementType, ValueType};
use std::error::Error;
use std::io::Read;

/// Reads a model; one whose name ends in `.gz` is decompressed.
pub(crate) fn read_model(path: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let file = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
    if !path.ends_with(".gz") {
        return Ok(file);
    }
    let mut model = Vec::new();
    flate2::read::GzDecoder::new(&*file).read_to_end(&mut model)?;
    Ok(model)
}

/// Returns inputs for a session, with their names. `given` has entries such as `image=1,3,640,640`.
pub(crate) fn of_session(
    session: &Session,
    given: &[String],
) -> Result<Vec<(String, Tensor)>, Box<dyn Error>> {
    let mut inputs = Vec::new();
    for input in session.inputs() {
        let ValueType::Tensor { ty, shape, .. } = input.dtype() else {
            return Err(format!("the input {} is not a tensor", input.name()).into());
        };
        let sizes = match given.iter().find_map(|entry| entry.strip_prefix(input.name())?.strip_prefix('=')) {
            Some(sizes) => sizes.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?,
            None => shape.iter().map(|&size| usize::try_from(size).unwrap_or(1)).collect(),
        };
        let tensor = match ty {
            TensorElementType::Float32 => Tensor::full(&*sizes, 0.5, DType::F32)?,
            TensorElementType::Int64 => Tensor::full(&*sizes, 16_000, DType::I64)?,
            TensorElementType::Int32 => Tensor::full(&*sizes, 1, DType::I32)?,
            other => return Err(format!("the input {} has elements of {other}", input.name()).into()),
        };
        inputs.push((input.name().to_owned(), tensor));
    }
    Ok(inputs)
}

/// Returns an input as a value of ONNX Runtime, with a copy of its elements.
#[allow(dead_code)] // Not every example needs it.
pub(crate) fn value((name, tensor): &(String, Tensor)) -> Result<(String, DynValue), Box<dyn Error>> {
    let sizes = tensor.sizes().to_vec();
    let value = match tensor.dtype() {
        DType::F32 => Value::from_array((sizes, tensor.to_vec::<f32>()?))?.into_dyn(),
        DType::I64 => Value::from_array((sizes, tensor.to_vec::<i64>()?))?.into_dyn(),
        DType::I32 => Value::from_array((sizes, tensor.to_vec::<i32>()?))?.into_dyn(),
        other => return Err(format!("the input {name} has elements of {other}").into()),
    };
    Ok((name.clone(), value))
}
