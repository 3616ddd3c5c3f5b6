//! [`ModelPlan`]: a plan of a model with everything that a program needs to execute it.

mod buffers;
mod check;
mod memory;
mod parts;
mod spaces;
mod write;

pub use self::check::ModelPlanError;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A plan of a model: the order of its nodes, and where each of its values is.
///
/// Offsets are bytes from the start of one block of memory. Values without an offset are in the memory of the
/// caller: inputs, weights and their views, and what is in no plan.
///
/// ```
/// use orlop_onnx::{ModelPlan, OnnxFile, OnnxReader};
/// use orlop_plan::Planner;
///
/// let bytes = include_bytes!("../../tests/data/onnx/mlp.onnx");
/// let file = OnnxFile::decode(&bytes[..])?;
/// let model = OnnxReader::new().bind("batch", 8).resolve(&file)?;
/// let order = model.graph.given_order();
/// let lifetimes = model.graph.lifetimes(&order)?;
/// let plan = ModelPlan::new(&model, &order, &lifetimes, &Planner::new().plan(lifetimes.problem()));
/// plan.check(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelPlan {
    /// What was given for the model's inputs.
    pub given: GivenSizes,
    /// The graph.
    #[serde(flatten)]
    pub graph: GraphPlan,
}

/// What was given for the inputs of a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GivenSizes {
    /// The smallest and the largest size of each dimension, by input.
    pub inputs: BTreeMap<String, Vec<[u64; 2]>>,
    /// The smallest and the largest number of each name in shapes.
    pub symbols: BTreeMap<String, [u64; 2]>,
    /// Elements of inputs.
    pub values: BTreeMap<String, Vec<f64>>,
    /// The largest sizes of values, and the largest number of iterations of loops.
    pub bounds: BTreeMap<String, Vec<u64>>,
}

/// A plan of a graph: a model's, or one that a node executes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GraphPlan {
    /// The bytes of the block of memory; of all blocks, if there are several.
    pub peak: u64,
    /// The alignment in bytes that the block must have; offsets are multiples of it.
    pub alignment: u64,
    /// The names of the graph's inputs, without weights, in their order.
    pub inputs: Vec<String>,
    /// The names of the graph's results, in their order.
    pub outputs: Vec<String>,
    /// The nodes in the order in which they are executed: one in each step.
    pub nodes: Vec<NodePlan>,
    /// The values.
    pub tensors: Vec<TensorPlan>,
    /// The memories, if values were divided among several.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub spaces: Vec<SpaceBlock>,
}

/// The block of one of several memories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SpaceBlock {
    /// The name of the memory.
    pub name: String,
    /// The bytes of the block.
    pub peak: u64,
}

/// A node of a [`GraphPlan`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodePlan {
    /// The name, that of its first output, or its operator.
    pub name: String,
    /// The operator.
    pub operator: String,
    /// Its position among the nodes of the file, in an order in which they can be executed; constants are no
    /// nodes.
    pub index: usize,
    /// The names of the values that it reads, each once, with those that its graphs read.
    pub inputs: Vec<String>,
    /// The names of the values that it writes.
    pub outputs: Vec<String>,
    /// Memory that it has in its step only, for the graphs that it executes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub workspace: Option<Workspace>,
    /// The graphs that it executes. Their offsets are from the start of the workspace.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub bodies: Vec<BodyPlan>,
}

/// The workspace of a [`NodePlan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Workspace {
    /// The index of the buffer.
    pub buffer: usize,
    /// Bytes.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// The index of its memory, if there are several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub space: Option<usize>,
}

/// A graph that a node executes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BodyPlan {
    /// The attribute: `then_branch`, `else_branch` or `body`.
    pub attribute: String,
    /// Its plan.
    #[serde(flatten)]
    pub graph: GraphPlan,
}

/// A value of a [`GraphPlan`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TensorPlan {
    /// The name.
    pub name: String,
    /// Where it comes from.
    pub origin: TensorOrigin,
    /// ONNX's number for the type of the elements. `None` for values that are no tensors.
    pub data_type: Option<i32>,
    /// The sizes of the dimensions.
    pub sizes: Option<Vec<u64>>,
    /// The sizes are the largest that the value can have: they depend on data, or a range was given.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub is_bound: bool,
    /// Bytes.
    pub bytes: u64,
    /// The index of the buffer that it is in.
    pub buffer: Option<usize>,
    /// The bytes before it.
    pub offset: Option<u64>,
    /// The index of its memory, if there are several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub space: Option<usize>,
    /// The first step in which it is used.
    pub start: u64,
    /// The first step in which it is no longer used. Results have one step after the last node.
    pub end: u64,
    /// The value whose bytes it has, under another shape.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub view_of: Option<String>,
    /// The input of its node that it is written over.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub in_place_of: Option<String>,
    /// The value in whose bytes it is: the result of a concatenation, or the input of a split. That node does
    /// not copy it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub part_of: Option<String>,
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TensorOrigin {
    /// The caller; in a graph that a node executes also the graph around.
    Input,
    /// The file.
    Weight,
    /// The file, without the zeros: sizes and bytes are those of the stored elements.
    SparseWeight,
    /// A node.
    Node,
}
