//! [`OnnxModel`]: what a file says about a graph and its values.

use crate::bindings::Bindings;
use crate::shapes::{TensorSize, dtype};
use orlop_core::DType;
use orlop_plan::{Graph, GraphProblem, NodeId, Plan, ValueId};
use std::collections::HashMap;

/// A model: its graph, for planning, with the types and the sizes of its values.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OnnxModel {
    /// The graph. Its results are kept; its inputs and weights are in the memory of the caller.
    pub graph: Graph,
    /// The bytes of all weights, except for those with strings.
    pub weight_bytes: u64,
    /// The bytes of all values that nodes write, views not counted: what a program without a plan would have
    /// if it freed nothing. Of the graphs that a node executes, the largest counts, once.
    pub value_bytes: u64,
    /// The number of values that nodes write and that are not in one piece of memory: sequences, maps,
    /// strings, and values that may be missing. They have no place in a plan.
    pub unplanned_values: usize,
    /// The names that were given a number or a bound, and that nothing in the file has.
    pub unused_bindings: Vec<String>,
    /// The inputs without weights, in their order.
    pub inputs: Vec<ValueId>,
    /// The results, in their order.
    pub outputs: Vec<ValueId>,
    /// By number.
    pub(crate) values: Vec<OnnxValue>,
    pub(crate) names: HashMap<Box<str>, ValueId>,
    pub(crate) bodies: HashMap<NodeId, Vec<OnnxBody>>,
    /// By number of the node.
    pub(crate) operators: Vec<Box<str>>,
    /// What was given for the inputs.
    pub(crate) bindings: Bindings,
}

/// A graph that a node executes, with its plan. The bytes of the plan are in the workspace of the node: its
/// inputs are copied there before each run, and its results from there after it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct OnnxBody {
    /// The attribute that it is: `then_branch`, `else_branch` or `body`.
    pub attribute: String,
    /// The graph, with sizes that are enough for each run. What it reads of the graph around is among its
    /// inputs, in the memory of the caller.
    pub model: OnnxModel,
    /// The problem of its nodes in their given order.
    pub lifetimes: GraphProblem,
    /// The plan.
    pub plan: Plan,
}

impl OnnxModel {
    /// Returns what the file says about a value. `None` for a value of another graph.
    #[must_use]
    pub fn value(&self, value: ValueId) -> Option<&OnnxValue> {
        self.values.get(value.index())
    }

    /// Returns the operator of a node. `None` for a node of another graph.
    #[must_use]
    pub fn operator(&self, node: NodeId) -> Option<&str> {
        self.operators.get(node.index()).map(|operator| &**operator)
    }

    /// Returns the graphs that a node executes, if there are any. A branch that is not taken is not among
    /// them.
    #[must_use]
    pub fn bodies(&self, node: NodeId) -> &[OnnxBody] {
        self.bodies.get(&node).map_or(&[], Vec::as_slice)
    }

    /// Returns `true` if a value, and what it is a view of, has a place in a plan: it is a tensor without
    /// strings in memory that is planned.
    #[must_use]
    pub fn is_placed(&self, value: ValueId) -> bool {
        let size = self.value(value).and_then(|value| value.size.as_ref());
        self.graph.is_planned(value) && size.is_some_and(|size| !size.is_strings())
    }

    /// Returns the value with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<ValueId> {
        self.names.get(name).copied()
    }
}

/// What the file of a model says about a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnnxValue {
    pub(crate) origin: ValueOrigin,
    pub(crate) size: Option<TensorSize>,
    pub(crate) is_bound: bool,
}

/// Where a value of a model comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueOrigin {
    /// The caller, who gives it to each run.
    Input,
    /// The file, or one beside it: it is the same in each run.
    Weight,
    /// The file: a weight that is stored without its zeros. Its sizes are those of the stored elements.
    SparseWeight,
    /// A node of the graph.
    Node,
}

impl OnnxValue {
    /// Returns where the value comes from.
    #[must_use]
    pub fn origin(&self) -> ValueOrigin {
        self.origin
    }

    /// Returns the sizes of the dimensions, with numbers for all names; the largest ones if they [depend on
    /// data](Self::is_bound). `None` if the value is no tensor, and for constants whose contents and sizes
    /// the file does not have.
    #[must_use]
    pub fn sizes(&self) -> Option<&[u64]> {
        self.size.as_ref().map(|size| &*size.sizes)
    }

    /// Returns `true` if the sizes are the largest that the value can have, and not those of each run.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.is_bound
    }

    /// Returns ONNX's number for the type of the elements (`TensorProto.DataType`). `None` if the sizes are
    /// unknown.
    #[must_use]
    pub fn data_type(&self) -> Option<i32> {
        self.size.as_ref().map(|size| size.data_type)
    }

    /// Returns the dtype of the elements. `None` if the sizes are unknown, or if there is no dtype for them:
    /// strings, elements of two, four or six bits, which are packed, and ONNX's `FLOAT8E4M3FNUZ`,
    /// `FLOAT8E5M2FNUZ` and `FLOAT8E8M0`.
    #[must_use]
    pub fn dtype(&self) -> Option<DType> {
        dtype(self.data_type()?)
    }
}
