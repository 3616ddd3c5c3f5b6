//! From the messages of a file to a graph that can be inferred and planned many times.
//!
//! | file | what it holds |
//! |---|---|
//! | `functions` | calls of the model's own functions become the nodes of these |
//! | `scope` | graphs: names become numbers, nodes are in an order in which they can be executed |
//! | `order` | that order |
//! | `node` | nodes, their attributes and their bodies |
//! | `constant` | weights and constants: their sizes, and the elements of small ones |

mod constant;
mod functions;
mod node;
mod order;
mod scope;

pub(crate) use self::constant::Constant;
pub(crate) use self::node::{Body, Node};
pub(crate) use self::scope::Scope;

use crate::OnnxError;
use crate::proto::ModelProto;
use prost::Message as _;
use prost::bytes::Bytes;
use std::collections::HashMap;

/// The versions of operators, by domain.
pub(crate) type Versions = HashMap<String, i64>;

/// Decodes a model.
pub(crate) fn decode(bytes: Bytes) -> Result<Scope, OnnxError> {
    let model = ModelProto::decode(bytes)?;
    let mut versions = Versions::new();
    for import in
        model.functions.iter().flat_map(|function| &function.opset_import).chain(&model.opset_import)
    {
        let domain = if import.domain == "ai.onnx" { "" } else { &*import.domain };
        versions.insert(domain.to_owned(), import.version);
    }
    let mut graph = model.graph.ok_or(OnnxError::NoGraph)?;
    functions::expand(&mut graph, &model.functions)?;
    Scope::decode(graph, &versions, &HashMap::new())
}
