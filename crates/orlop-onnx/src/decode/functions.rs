//! Calls of the model's own functions become the nodes of these, under names of their own.

use crate::OnnxError;
use crate::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto};
use std::collections::HashMap;

/// A graph may grow to this many nodes.
const MAX_NODES: usize = 1 << 20;

/// Functions may call each other this deep.
const MAX_DEPTH: usize = 64;

/// Domain, name and overload.
type Key = (String, String, String);

/// Puts the nodes of functions into a graph.
pub(crate) fn expand(graph: &mut GraphProto, functions: &[FunctionProto]) -> Result<(), OnnxError> {
    if functions.is_empty() {
        return Ok(());
    }
    let key = |function: &FunctionProto| {
        (function.domain.clone(), function.name.clone(), function.overload.clone())
    };
    let mut expansion = Expansion {
        functions: functions.iter().map(|function| (key(function), function)).collect(),
        nodes: 0,
        calls: 0,
    };
    expansion.graph(graph, 0)
}

struct Expansion<'a> {
    functions: HashMap<Key, &'a FunctionProto>,
    nodes: usize,
    /// The number of calls, which makes names unique.
    calls: usize,
}

impl Expansion<'_> {
    fn graph(&mut self, graph: &mut GraphProto, depth: usize) -> Result<(), OnnxError> {
        graph.node = self.nodes(std::mem::take(&mut graph.node), depth)?;
        Ok(())
    }

    fn nodes(&mut self, nodes: Vec<NodeProto>, depth: usize) -> Result<Vec<NodeProto>, OnnxError> {
        let mut expanded = Vec::with_capacity(nodes.len());
        for mut node in nodes {
            self.nodes += 1;
            if self.nodes > MAX_NODES || depth > MAX_DEPTH {
                return Err(OnnxError::TooComplex { node: node.name });
            }
            let key = (node.domain.clone(), node.op_type.clone(), node.overload.clone());
            match self.functions.get(&key).copied() {
                Some(function) => {
                    let body = self.call(&node, function);
                    expanded.extend(self.nodes(body, depth + 1)?);
                }
                None => {
                    for attribute in &mut node.attribute {
                        for graph in attribute.g.iter_mut().chain(&mut attribute.graphs) {
                            self.graph(graph, depth)?;
                        }
                    }
                    expanded.push(node);
                }
            }
        }
        Ok(expanded)
    }

    /// Returns the nodes of a function, for a call of it.
    fn call(&mut self, call: &NodeProto, function: &FunctionProto) -> Vec<NodeProto> {
        self.calls += 1;
        let title = if call.name.is_empty() { &call.op_type } else { &call.name };
        let prefix = format!("{title}#{}/", self.calls);
        let actual = |names: &[String], index: usize| names.get(index).cloned().unwrap_or_default();
        let mut names: HashMap<String, String> = HashMap::new();
        for (index, input) in function.input.iter().enumerate() {
            names.insert(input.clone(), actual(&call.input, index));
        }
        let mut copies = Vec::new();
        for (index, output) in function.output.iter().enumerate() {
            let outer = actual(&call.output, index);
            match names.get(output) {
                // An input or another output of the function is an output, too.
                Some(_) if outer.is_empty() => {}
                Some(inner) => copies.push((inner.clone(), outer)),
                None if outer.is_empty() => {}
                None => {
                    names.insert(output.clone(), outer);
                }
            }
        }
        let names = Names { names, prefix };
        let mut nodes: Vec<_> = function.node.iter().map(|node| names.node(node, call, function)).collect();
        nodes.extend(copies.into_iter().map(|(inner, outer)| NodeProto {
            input: vec![inner],
            output: vec![outer],
            op_type: "Identity".to_owned(),
            ..NodeProto::default()
        }));
        nodes
    }
}

/// The names of a function's values in the graph of a call.
struct Names {
    names: HashMap<String, String>,
    prefix: String,
}

impl Names {
    fn rename(&self, name: &str) -> String {
        match self.names.get(name) {
            Some(outer) => outer.clone(),
            None if name.is_empty() => String::new(),
            None => format!("{}{name}", self.prefix),
        }
    }

    fn node(&self, node: &NodeProto, call: &NodeProto, function: &FunctionProto) -> NodeProto {
        let attributes = node.attribute.iter();
        let mut renamed = NodeProto {
            input: node.input.iter().map(|name| self.rename(name)).collect(),
            output: node.output.iter().map(|name| self.rename(name)).collect(),
            name: if node.name.is_empty() { String::new() } else { format!("{}{}", self.prefix, node.name) },
            attribute: attributes.filter_map(|attribute| resolved(attribute, call, function)).collect(),
            op_type: node.op_type.clone(),
            domain: node.domain.clone(),
            overload: node.overload.clone(),
        };
        for attribute in &mut renamed.attribute {
            for graph in attribute.g.iter_mut().chain(&mut attribute.graphs) {
                self.graph(graph, call, function);
            }
        }
        renamed
    }

    /// Renames what is in a body.
    fn graph(&self, graph: &mut GraphProto, call: &NodeProto, function: &FunctionProto) {
        graph.node = graph.node.iter().map(|node| self.node(node, call, function)).collect();
        for info in graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info) {
            info.name = self.rename(&info.name);
        }
        let sparse = graph.sparse_initializer.iter_mut().filter_map(|sparse| sparse.values.as_mut());
        for weight in graph.initializer.iter_mut().chain(sparse) {
            weight.name = self.rename(&weight.name);
        }
    }
}

/// Returns an attribute with the value that the call gives it. `None` if it has none.
fn resolved(
    attribute: &AttributeProto,
    call: &NodeProto,
    function: &FunctionProto,
) -> Option<AttributeProto> {
    if attribute.ref_attr_name.is_empty() {
        return Some(attribute.clone());
    }
    let given = call.attribute.iter().chain(&function.attribute_proto);
    let given = given.into_iter().find(|given| given.name == attribute.ref_attr_name)?;
    Some(AttributeProto { name: attribute.name.clone(), ..given.clone() })
}
