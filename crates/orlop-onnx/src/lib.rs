//! ONNX graphs as problems of static memory planning, and as execution plans.
//!
//! A model's file has its operators, and its user knows the sizes of its inputs. That is enough for a plan:
//! the shapes of all other values follow from them, weights may be missing, and no operator is executed.
//!
//! | step | with |
//! |---|---|
//! | decode a file, once | [`OnnxFile::decode`] |
//! | give sizes to the inputs | [`OnnxReader::bind`], [`OnnxReader::input`] |
//! | infer all others | [`OnnxReader::resolve`], or [`OnnxReader::read`] from the bytes of a file |
//! | plan the memory of the values | [`OnnxModel::graph`], [`orlop_plan`] |
//! | the plans of graphs that nodes execute | [`OnnxModel::bodies`] |
//! | look up types and sizes of values | [`OnnxModel::find`], [`OnnxModel::value`] |
#![cfg_attr(
    feature = "exec",
    doc = "| make buffers of the values, to run the graph in | [`OnnxModel::execution`], [`orlop_exec`] |"
)]
//!
#![cfg_attr(feature = "plan-file", doc = "| a plan as a file, checked against its model | [`ModelPlan`] |")]
//!
//! | folder | what it holds |
//! |---|---|
//! | `decode` | from messages to graphs of numbered values; functions are inlined |
//! | `infer` | what is known about values, as ranges; control flow |
//! | `rules` | the operators, a file for each family |
//! | `assemble` | from what is known to a graph with sizes, views and in-place relations |
//!
//! Weights and inputs are in the memory of the caller. Outputs of reshaping operators are views; outputs of
//! operators that work element by element may be written over an input with as many elements of the same
//! size.
#![cfg_attr(not(test), deny(clippy::expect_used))]
#![forbid(unsafe_code)]

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod assemble;
mod bindings;
mod decode;
mod error;
#[cfg(feature = "exec")]
mod execution;
mod expression;
mod file;
mod infer;
mod model;
#[cfg(feature = "plan-file")]
mod plan_file;
mod proto;
mod reader;
mod rules;
mod shapes;
#[cfg(test)]
mod tests;
mod undecided;

pub use self::error::{InputConflict, OnnxError, UnknownSize};
#[cfg(feature = "exec")]
pub use self::execution::{OnnxBuffers, OnnxExecError, OnnxExecution};
pub use self::file::{InputSize, OnnxFile, OnnxInput};
pub use self::model::{OnnxBody, OnnxModel, OnnxValue, ValueOrigin};
#[cfg(feature = "plan-file")]
pub use self::plan_file::{
    BodyPlan, GivenSizes, GraphPlan, ModelPlan, ModelPlanError, NodePlan, SpaceBlock, TensorOrigin,
    TensorPlan, Workspace,
};
pub use self::reader::OnnxReader;
