//! [`Node`].

use super::constant::tensor_of;
use super::{Scope, Versions};
use crate::OnnxError;
use crate::infer::Tensor;
use crate::proto::{AttributeProto, NodeProto};
use crate::rules::{Operator, find};
use std::collections::HashMap;

/// A node of a graph. Values are numbers of its scope.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// The name of the node, that of its first output, or its operator.
    pub(crate) title: String,
    pub(crate) operator: String,
    pub(crate) domain: String,
    /// The version of the domain's operators.
    pub(crate) version: i64,
    /// `None`: left out.
    pub(crate) inputs: Vec<Option<usize>>,
    pub(crate) outputs: Vec<Option<usize>>,
    /// Without graphs and tensors.
    attributes: Vec<AttributeProto>,
    tensors: Vec<(String, Tensor)>,
    pub(crate) bodies: Vec<Body>,
    /// `None` if there is no rule for its outputs.
    pub(crate) rule: Option<&'static Operator>,
}

/// A graph that a node executes.
#[derive(Debug, Clone)]
pub(crate) struct Body {
    /// The name of the attribute.
    pub(crate) attribute: String,
    pub(crate) scope: Scope,
}

impl Node {
    /// Decodes a node, whose inputs and outputs have numbers in `names`.
    pub(super) fn decode(
        node: NodeProto,
        versions: &Versions,
        names: &HashMap<String, usize>,
    ) -> Result<Self, OnnxError> {
        let numbers = |list: &[String]| list.iter().map(|name| names.get(name).copied()).collect();
        let (inputs, outputs) = (numbers(&node.input), numbers(&node.output));
        let title = title(&node);
        let domain = if node.domain == "ai.onnx" { String::new() } else { node.domain };
        let mut decoded = Self {
            title,
            inputs,
            outputs,
            rule: find(&domain, &node.op_type),
            operator: node.op_type,
            // Files without versions are older than the first that counts.
            version: versions.get(&domain).copied().unwrap_or(1),
            domain,
            attributes: Vec::with_capacity(node.attribute.len()),
            tensors: Vec::new(),
            bodies: Vec::new(),
        };
        for mut attribute in node.attribute {
            if let Some(tensor) = attribute.t.take() {
                decoded.tensors.push((attribute.name.clone(), tensor_of(&tensor)));
            }
            for graph in attribute.g.take().into_iter().chain(std::mem::take(&mut attribute.graphs)) {
                let scope = Scope::decode(graph, versions, names)?;
                decoded.bodies.push(Body { attribute: attribute.name.clone(), scope });
            }
            attribute.sparse_tensor = None;
            decoded.attributes.push(attribute);
        }
        Ok(decoded)
    }

    pub(crate) fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }

    /// Returns a tensor that an attribute has.
    pub(crate) fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|(attribute, _)| attribute == name).map(|(_, tensor)| tensor)
    }

    pub(crate) fn body(&self, attribute: &str) -> Option<(usize, &Body)> {
        self.bodies.iter().enumerate().find(|(_, body)| body.attribute == attribute)
    }

    /// Returns the values that are read: inputs, and what bodies capture.
    pub(crate) fn reads(&self) -> impl Iterator<Item = usize> {
        let captured =
            self.bodies.iter().flat_map(|body| body.scope.captures.iter().map(|&(outer, _)| outer));
        self.inputs.iter().copied().flatten().chain(captured)
    }
}

pub(super) fn attribute<'a>(node: &'a NodeProto, name: &str) -> Option<&'a AttributeProto> {
    node.attribute.iter().find(|attribute| attribute.name == name)
}

/// Returns the name of a node, that of its first output, or its operator.
pub(super) fn title(node: &NodeProto) -> String {
    if !node.name.is_empty() {
        return node.name.clone();
    }
    let first = node.output.iter().find(|name| !name.is_empty());
    first.unwrap_or(&node.op_type).to_owned()
}
