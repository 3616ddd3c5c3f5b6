//! ONNX graphs as problems of static memory planning.
//!
//! A model's file has its operators, and the shapes of the values between them. That is enough for a plan:
//! the weights may be missing, and no operator is executed.
//!
//! | step | with |
//! |---|---|
//! | give sizes to the symbols in shapes | [`OnnxReader::bind`] |
//! | read a file | [`OnnxReader::read`] |
//! | plan the memory of the values | [`OnnxModel::graph`], [`orlop_plan`] |
//!
//! Weights and inputs are in the memory of the caller. Outputs of reshaping operators are views; outputs of
//! operators that work element by element may be written over an input of the same size.
#![forbid(unsafe_code)]

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod error;
mod operators;
mod proto;
mod reader;
mod shapes;
#[cfg(test)]
mod tests;

pub use self::error::OnnxError;
pub use self::reader::{OnnxModel, OnnxReader};
