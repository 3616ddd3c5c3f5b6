//! Graphs: nodes that read and write values. The lifetimes of a planning problem follow from them.
//!
//! | file | what it holds |
//! |---|---|
//! | `builder` | [`GraphBuilder`], which checks each part when it is added |
//! | `lifetimes` | from a graph and an order of its nodes to a [`Problem`](crate::Problem) |
//! | `parts` | which concatenations and splits are in place |
//! | `order`, `exhaustive` | orders with a small peak: a beam search, and one through all sets of nodes |

mod builder;
mod error;
mod exhaustive;
mod lifetimes;
mod order;
mod parts;

pub use self::builder::GraphBuilder;
pub use self::error::GraphError;
pub use self::lifetimes::GraphProblem;
pub use self::order::{FoundOrder, MinPeak};

use self::parts::Part;
use crate::buffer::alignment_bytes;
use orlop_core::Alignment;

/// A value of a graph, such as a tensor: the number that [`GraphBuilder`] gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub(crate) usize);

impl ValueId {
    /// Returns the number of values that were added before this one.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

/// A node of a graph, such as an operator: the number that [`GraphBuilder`] gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) usize);

impl NodeId {
    /// Returns the number of nodes that were added before this one.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0
    }
}

/// Nodes that read and write values.
///
/// A node reads its inputs and writes its outputs in one step. An output needs memory from the step of its
/// node to the last step that reads it, or to the end if it is kept ([`GraphBuilder::keep`]). Inputs of the
/// graph are in the memory of the caller, or planned from the first step on.
///
/// ```
/// use orlop_plan::{GraphBuilder, Planner};
///
/// let mut graph = GraphBuilder::new();
/// let image = graph.input("image", 1000);
/// let conv = graph.node("conv", &[image])?;
/// let hidden = graph.output(conv, "hidden", 4096)?;
/// let relu = graph.node("relu", &[hidden])?;
/// let active = graph.output(relu, "active", 4096)?;
/// graph.in_place(hidden, active)?;
/// let pool = graph.node("pool", &[active])?;
/// let result = graph.output(pool, "result", 1024)?;
/// graph.keep(result)?;
///
/// let graph = graph.finish();
/// let lifetimes = graph.lifetimes(&graph.given_order())?;
/// // `active` takes the bytes of `hidden`, which nothing reads afterwards; the image is the caller's.
/// assert_eq!(lifetimes.buffer(active), lifetimes.buffer(hidden));
/// assert_eq!(lifetimes.buffer(image), None);
/// assert_eq!(Planner::new().plan(lifetimes.problem()).height(), 4096 + 1024);
/// # Ok::<(), orlop_plan::GraphError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Graph {
    nodes: Vec<Node>,
    values: Vec<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    name: Box<str>,
    /// Each value once.
    inputs: Vec<ValueId>,
    outputs: Vec<ValueId>,
    /// Bytes that the node needs during its step only.
    scratch: u64,
    /// Its inputs in its outputs, and its outputs in its inputs.
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Value {
    name: Box<str>,
    size: u64,
    alignment: Alignment,
    source: Source,
    /// The value that it is a view of, through all views between, or itself.
    base: ValueId,
    /// The nodes that read it, each once.
    readers: Vec<NodeId>,
    is_kept: bool,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    /// Memory of the caller, which is not planned.
    Caller,
    /// Planned memory that the caller fills before the first step.
    PlannedInput,
    /// A node, which writes it to memory of its own, or over one of these inputs.
    Output { node: NodeId, over: Vec<ValueId> },
    /// A node, which makes it a view of an input.
    View { node: NodeId, of: ValueId },
}

impl Graph {
    /// Returns the number of nodes.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the number of values.
    #[must_use]
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// Returns the values in the order in which they were added.
    pub fn values(&self) -> impl Iterator<Item = ValueId> + use<> {
        (0..self.values.len()).map(ValueId)
    }

    /// Returns the nodes in the order in which they were added: one in which they can be executed, because a
    /// node reads values that were there before.
    #[must_use]
    pub fn given_order(&self) -> Vec<NodeId> {
        (0..self.nodes.len()).map(NodeId).collect()
    }

    /// Returns the name of a node. `None` for a node of another graph.
    #[must_use]
    pub fn node_name(&self, node: NodeId) -> Option<&str> {
        self.nodes.get(node.0).map(|node| &*node.name)
    }

    /// Returns the name of a value. `None` for a value of another graph.
    #[must_use]
    pub fn value_name(&self, value: ValueId) -> Option<&str> {
        self.values.get(value.0).map(|value| &*value.name)
    }

    /// Returns the bytes of a value. `None` for a value of another graph.
    #[must_use]
    pub fn value_size(&self, value: ValueId) -> Option<u64> {
        self.values.get(value.0).map(|value| value.size)
    }

    /// Returns the values that a node reads, each once. `None` for a node of another graph.
    #[must_use]
    pub fn inputs(&self, node: NodeId) -> Option<&[ValueId]> {
        self.nodes.get(node.0).map(|node| &*node.inputs)
    }

    /// Returns the values that a node writes. `None` for a node of another graph.
    #[must_use]
    pub fn outputs(&self, node: NodeId) -> Option<&[ValueId]> {
        self.nodes.get(node.0).map(|node| &*node.outputs)
    }

    /// Returns the node that writes a value. `None` for inputs of the graph and values of another one.
    #[must_use]
    pub fn producer(&self, value: ValueId) -> Option<NodeId> {
        match self.values.get(value.0)?.source {
            Source::Output { node, .. } | Source::View { node, .. } => Some(node),
            Source::Caller | Source::PlannedInput => None,
        }
    }

    /// Returns the value that a value is a view of, through all views between, or itself if it is no view.
    /// `None` for a value of another graph.
    #[must_use]
    pub fn view_base(&self, value: ValueId) -> Option<ValueId> {
        (value.0 < self.values.len()).then(|| self.base(value))
    }

    /// Returns the value that a value is directly a view of. `None` if it is no view, and for a value of
    /// another graph.
    #[must_use]
    pub fn view_source(&self, value: ValueId) -> Option<ValueId> {
        match self.values.get(value.0)?.source {
            Source::View { of, .. } => Some(of),
            Source::Caller | Source::PlannedInput | Source::Output { .. } => None,
        }
    }

    /// Returns the inputs of its node that a value may be written over. Empty for a value of another graph.
    #[must_use]
    pub fn in_place_sources(&self, value: ValueId) -> &[ValueId] {
        match self.values.get(value.0).map(|value| &value.source) {
            Some(Source::Output { over, .. }) => over,
            _ => &[],
        }
    }

    /// Returns what a node may have in place ([`GraphBuilder::part`]): the part, the whole, and the offset in
    /// bytes. Nothing for a node of another graph.
    pub fn parts(&self, node: NodeId) -> impl Iterator<Item = (ValueId, ValueId, u64)> {
        let parts = self.nodes.get(node.0).map_or(&[][..], |node| &node.parts);
        parts.iter().map(|part| (part.part, part.whole, part.offset))
    }

    /// Returns `true` if a value has planned memory, and `false` if it, or what it is a view of, is in the
    /// memory of the caller, or of another graph.
    #[must_use]
    pub fn is_planned(&self, value: ValueId) -> bool {
        let base = self.values.get(value.0).map(|value| value.base);
        base.is_some_and(|base| !matches!(self.values[base.0].source, Source::Caller))
    }

    /// Returns the base of a value of this graph.
    fn base(&self, value: ValueId) -> ValueId {
        self.values[value.0].base
    }
}

/// Rounds a size up to an alignment. A sum that no problem can have saturates.
fn rounded(size: u64, alignment: Alignment) -> u64 {
    size.checked_next_multiple_of(alignment_bytes(alignment)).unwrap_or(u64::MAX)
}
