//! Calls of the model's own functions become the nodes of these, under names of their own.

use super::node::title;
use crate::OnnxError;
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, NodeProto, SparseTensorProto, TensorProto, TypeProto,
    ValueInfoProto,
};
use prost::Message as _;
use std::collections::HashMap;

/// A graph may grow to this many nodes.
const MAX_NODES: usize = 1 << 20;

/// Calls may copy this many bytes of names and attributes, contents of weights not counted, which are shared.
const MAX_BYTES: usize = 1 << 28;

/// Calls and graphs may be nested this deep. Without functions, the decoder of messages has a lower limit.
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
        bytes: 0,
    };
    expansion.graph(graph, 0)
}

struct Expansion<'a> {
    functions: HashMap<Key, &'a FunctionProto>,
    nodes: usize,
    /// The number of calls, which makes names unique.
    calls: usize,
    /// The bytes that calls copied.
    bytes: usize,
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
                    let body = self.call(&node, function, depth)?;
                    expanded.extend(self.nodes(body, depth + 1)?);
                }
                None => {
                    for attribute in &mut node.attribute {
                        for graph in attribute.g.iter_mut().chain(&mut attribute.graphs) {
                            self.graph(graph, depth + 1)?;
                        }
                    }
                    expanded.push(node);
                }
            }
        }
        Ok(expanded)
    }

    /// Returns the nodes of a function, for a call of it.
    fn call(
        &mut self,
        call: &NodeProto,
        function: &FunctionProto,
        depth: usize,
    ) -> Result<Vec<NodeProto>, OnnxError> {
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
        let mut copy = CallCopy { call, function, names, prefix, bytes: &mut self.bytes };
        let nodes = function.node.iter().map(|node| copy.node(node, depth));
        let mut nodes = nodes.collect::<Result<Vec<_>, _>>()?;
        nodes.extend(copies.into_iter().map(|(inner, outer)| NodeProto {
            input: vec![inner],
            output: vec![outer],
            op_type: "Identity".to_owned(),
            ..NodeProto::default()
        }));
        Ok(nodes)
    }
}

/// The copy of a function's nodes for a call.
struct CallCopy<'a> {
    call: &'a NodeProto,
    function: &'a FunctionProto,
    /// The names of the function's inputs and outputs in the graph of the call.
    names: HashMap<String, String>,
    /// Before the names of its other values and nodes.
    prefix: String,
    /// The bytes that calls copied.
    bytes: &'a mut usize,
}

impl<'a> CallCopy<'a> {
    /// Counts bytes before they are copied.
    fn count(&mut self, bytes: usize) -> Result<(), OnnxError> {
        *self.bytes = self.bytes.saturating_add(bytes);
        if *self.bytes > MAX_BYTES { Err(self.too_complex()) } else { Ok(()) }
    }

    fn too_complex(&self) -> OnnxError {
        OnnxError::TooComplex { node: title(self.call) }
    }

    fn rename(&mut self, name: &str) -> Result<String, OnnxError> {
        if name.is_empty() {
            return Ok(String::new());
        }
        let length = self.names.get(name).map_or(self.prefix.len() + name.len(), String::len);
        self.count(length)?;
        Ok(self.names.get(name).cloned().unwrap_or_else(|| format!("{}{name}", self.prefix)))
    }

    fn renamed(&mut self, names: &[String]) -> Result<Vec<String>, OnnxError> {
        names.iter().map(|name| self.rename(name)).collect()
    }

    fn node(&mut self, node: &NodeProto, depth: usize) -> Result<NodeProto, OnnxError> {
        if depth > MAX_DEPTH {
            return Err(self.too_complex());
        }
        self.count(self.prefix.len() + node.name.len() + node.op_type.len() + node.domain.len())?;
        let mut attributes = Vec::with_capacity(node.attribute.len());
        for attribute in &node.attribute {
            if let Some(source) = self.source(attribute) {
                attributes.push(self.attribute(&attribute.name, source, depth)?);
            }
        }
        Ok(NodeProto {
            input: self.renamed(&node.input)?,
            output: self.renamed(&node.output)?,
            name: if node.name.is_empty() { String::new() } else { format!("{}{}", self.prefix, node.name) },
            attribute: attributes,
            op_type: node.op_type.clone(),
            domain: node.domain.clone(),
            overload: node.overload.clone(),
        })
    }

    /// Returns the attribute that has the value of one of the function's. `None` if the call gives it none.
    fn source<'b>(&self, attribute: &'b AttributeProto) -> Option<&'b AttributeProto>
    where
        'a: 'b,
    {
        if attribute.ref_attr_name.is_empty() {
            return Some(attribute);
        }
        let mut given = self.call.attribute.iter().chain(&self.function.attribute_proto);
        given.find(|given| given.name == attribute.ref_attr_name)
    }

    fn attribute(
        &mut self,
        name: &str,
        source: &AttributeProto,
        depth: usize,
    ) -> Result<AttributeProto, OnnxError> {
        let numbers = size_of_val(&*source.floats) + size_of_val(&*source.ints);
        let text = source.s.iter().chain(&source.strings).map(Vec::len).sum::<usize>();
        let of = source.tp.as_ref().map_or(0, TypeProto::encoded_len);
        self.count(name.len() + numbers + text + of)?;
        let graphs =
            source.graphs.iter().map(|graph| self.graph(graph, depth + 1)).collect::<Result<_, _>>()?;
        Ok(AttributeProto {
            name: name.to_owned(),
            f: source.f,
            i: source.i,
            s: source.s.clone(),
            t: source.t.as_ref().map(|tensor| self.tensor(tensor)).transpose()?,
            g: source.g.as_ref().map(|graph| self.graph(graph, depth + 1)).transpose()?,
            floats: source.floats.clone(),
            ints: source.ints.clone(),
            strings: source.strings.clone(),
            graphs,
            tp: source.tp.clone(),
            r#type: source.r#type,
            ref_attr_name: source.ref_attr_name.clone(),
            sparse_tensor: source.sparse_tensor.as_ref().map(|sparse| self.sparse(sparse)).transpose()?,
        })
    }

    /// Copies a graph that a node executes.
    fn graph(&mut self, graph: &GraphProto, depth: usize) -> Result<GraphProto, OnnxError> {
        let weight = |tensor: &TensorProto| {
            Ok(TensorProto { name: self.rename(&tensor.name)?, ..self.tensor(tensor)? })
        };
        let initializer = graph.initializer.iter().map(weight).collect::<Result<_, OnnxError>>()?;
        let mut sparse_initializer = Vec::with_capacity(graph.sparse_initializer.len());
        for sparse in &graph.sparse_initializer {
            let mut sparse = self.sparse(sparse)?;
            if let Some(values) = &mut sparse.values {
                values.name = self.rename(&values.name)?;
            }
            sparse_initializer.push(sparse);
        }
        Ok(GraphProto {
            node: graph.node.iter().map(|node| self.node(node, depth)).collect::<Result<_, _>>()?,
            initializer,
            input: self.infos(&graph.input)?,
            output: self.infos(&graph.output)?,
            value_info: self.infos(&graph.value_info)?,
            sparse_initializer,
        })
    }

    fn infos(&mut self, infos: &[ValueInfoProto]) -> Result<Vec<ValueInfoProto>, OnnxError> {
        let info = |info: &ValueInfoProto| {
            self.count(info.encoded_len())?;
            Ok(ValueInfoProto { name: self.rename(&info.name)?, r#type: info.r#type.clone() })
        };
        infos.iter().map(info).collect()
    }

    fn tensor(&mut self, tensor: &TensorProto) -> Result<TensorProto, OnnxError> {
        self.count(tensor.encoded_len().saturating_sub(tensor.raw_data.len()))?;
        Ok(tensor.clone())
    }

    fn sparse(&mut self, sparse: &SparseTensorProto) -> Result<SparseTensorProto, OnnxError> {
        let shared = sparse.values.as_ref().map_or(0, |values| values.raw_data.len());
        self.count(sparse.encoded_len().saturating_sub(shared))?;
        Ok(sparse.clone())
    }
}
