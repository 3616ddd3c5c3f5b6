//! The errors of graphs.

use super::{NodeId, ValueId};
use crate::ProblemError;

/// Why a part is not added to a graph, or a graph has no lifetimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// The graph has no such value.
    #[error("the graph has no value {}", value.index())]
    UnknownValue {
        /// The value.
        value: ValueId,
    },
    /// The graph has no such node.
    #[error("the graph has no node {}", node.index())]
    UnknownNode {
        /// The node.
        node: NodeId,
    },
    /// A value was to be a view of another, or to take its memory, and is not an output of a node that reads
    /// that.
    #[error("value {} is not written by a node that reads value {}", output.index(), input.index())]
    NotThrough {
        /// The value that is read.
        input: ValueId,
        /// The value that is written.
        output: ValueId,
    },
    /// A value is a view already, or was to be one after it could take the memory of an input.
    #[error("value {} can be a view of one value, and then takes no other memory", output.index())]
    TwoSources {
        /// The value.
        output: ValueId,
    },
    /// A view was to be larger than what it is a view of.
    #[error("value {} is larger than value {}, and cannot be a view of it", output.index(), input.index())]
    LargerView {
        /// The value that is read.
        input: ValueId,
        /// The value that was to be a view.
        output: ValueId,
    },
    /// A part was to be beyond the end of its whole, or to overlap another part, or to be added after one
    /// behind it.
    #[error("value {} is not inside of value {} at byte {offset}", part.index(), whole.index())]
    PartOutside {
        /// The value that was to be a part.
        part: ValueId,
        /// The value that was to have it.
        whole: ValueId,
        /// The first byte of the part.
        offset: u64,
    },
    /// An order does not have each node once, after the nodes whose outputs it reads.
    #[error("node {} is missing in the order, or twice in it, or before one that it reads", node.index())]
    InvalidOrder {
        /// A node out of place.
        node: NodeId,
    },
    /// The sizes exceed what a problem may have.
    #[error(transparent)]
    Problem(#[from] ProblemError),
}
