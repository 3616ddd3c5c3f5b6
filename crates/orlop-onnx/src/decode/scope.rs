//! [`Scope`]: a graph whose values have numbers.

use super::node::title;
use super::order::sorted;
use super::{Constant, Node, Versions};
use crate::OnnxError;
use crate::proto::{GraphProto, NodeProto, TypeProto, ValueInfoProto};
use crate::rules::is_standard;
use crate::shapes::precision;
use std::collections::{HashMap, HashSet};

/// A graph: the model's, or one that a node executes.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub(crate) values: Vec<Value>,
    /// Those that the caller gives.
    pub(crate) inputs: Vec<usize>,
    pub(crate) outputs: Vec<usize>,
    pub(crate) constants: Vec<Constant>,
    /// In an order in which they can be executed.
    pub(crate) nodes: Vec<Node>,
    /// Values of the graph around, and their numbers in this one.
    pub(crate) captures: Vec<(usize, usize)>,
}

/// A value of a graph.
#[derive(Debug, Clone)]
pub(crate) struct Value {
    pub(crate) name: Box<str>,
    /// The type that the file says it has.
    pub(crate) claim: Option<TypeProto>,
}

impl Scope {
    /// Decodes a graph, which may read values of the one around.
    pub(super) fn decode(
        mut graph: GraphProto,
        versions: &Versions,
        outer: &HashMap<String, usize>,
    ) -> Result<Self, OnnxError> {
        let mut scope = Self {
            values: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            constants: Vec::new(),
            nodes: Vec::with_capacity(graph.node.len()),
            captures: Vec::new(),
        };
        let mut claims = claims(&graph);
        let mut names: HashMap<String, usize> = HashMap::new();
        let mut add = |name: &str, names: &mut HashMap<String, usize>| {
            names.insert(name.to_owned(), scope.values.len());
            scope.values.push(Value { name: name.into(), claim: claims.remove(name) });
            scope.values.len() - 1
        };
        for weight in &graph.initializer {
            refuse_second(&weight.name, &names)?;
            let value = add(&weight.name, &mut names);
            scope.constants.push(Constant::dense(value, &weight.name, weight)?);
        }
        for sparse in &graph.sparse_initializer {
            let Some(values) = &sparse.values else { continue };
            refuse_second(&values.name, &names)?;
            let value = add(&values.name, &mut names);
            scope.constants.push(Constant::sparse(value, &values.name, sparse)?);
        }
        for input in &graph.input {
            if !names.contains_key(&input.name) {
                let value = add(&input.name, &mut names);
                scope.inputs.push(value);
            }
        }
        let reads: Vec<Vec<&str>> = graph.node.iter().map(reads).collect();
        let mut writers: HashMap<&str, usize> = HashMap::new();
        for (index, node) in graph.node.iter().enumerate() {
            for output in written(node) {
                if names.contains_key(output) || writers.insert(output, index).is_some() {
                    return Err(OnnxError::WrittenTwice { value: output.to_owned() });
                }
            }
        }
        let results = graph.output.iter().map(|output| (None, &*output.name));
        let read = reads
            .iter()
            .zip(&graph.node)
            .flat_map(|(names, node)| names.iter().map(move |&name| (Some(node), name)));
        for (node, name) in read.chain(results) {
            if names.contains_key(name) || writers.contains_key(name) {
                continue;
            }
            let Some(&around) = outer.get(name) else {
                let value = name.to_owned();
                return Err(match node {
                    Some(node) => OnnxError::MissingValue { node: title(node), value },
                    None => OnnxError::MissingOutput { value },
                });
            };
            let value = add(name, &mut names);
            scope.captures.push((around, value));
        }
        let order = sorted(&graph.node, &reads, &writers)?;
        for &index in &order {
            for output in written(&graph.node[index]) {
                add(output, &mut names);
            }
        }
        for index in order {
            let node = std::mem::take(&mut graph.node[index]);
            if is_standard(&node.domain) && node.op_type == "Constant" {
                // A weight with a node around it.
                for output in written(&node) {
                    scope.constants.push(Constant::of_node(names[output], output, &node)?);
                }
            } else {
                scope.nodes.push(Node::decode(node, versions, &names)?);
            }
        }
        scope.outputs = graph.output.iter().filter_map(|output| names.get(&output.name).copied()).collect();
        Ok(scope)
    }

    /// Returns the number of nodes, values and results, with those of bodies.
    pub(crate) fn work(&self) -> usize {
        let bodies = self.nodes.iter().flat_map(|node| &node.bodies);
        let own = self.nodes.len() + self.values.len() + self.outputs.len();
        bodies.fold(own, |work, body| work + body.scope.work())
    }

    /// Returns `true` if a value or a node has this name, here or in a body.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        let bodies = || self.nodes.iter().flat_map(|node| &node.bodies);
        self.values.iter().any(|value| &*value.name == name)
            || self.nodes.iter().any(|node| node.title == name)
            || bodies().any(|body| body.scope.has_name(name))
    }

    /// Returns the name of a value.
    pub(crate) fn name(&self, value: usize) -> &str {
        &self.values[value].name
    }
}

fn refuse_second(name: &str, names: &HashMap<String, usize>) -> Result<(), OnnxError> {
    match names.contains_key(name) {
        true => Err(OnnxError::WrittenTwice { value: name.to_owned() }),
        false => Ok(()),
    }
}

/// Returns the type that the file says each value has: of several, the one that says most.
fn claims(graph: &GraphProto) -> HashMap<String, TypeProto> {
    let mut claims: HashMap<&str, &ValueInfoProto> = HashMap::new();
    for info in graph.value_info.iter().chain(&graph.input).chain(&graph.output) {
        let known = claims.entry(&*info.name).or_insert(info);
        if precision(info.r#type.as_ref()) >= precision(known.r#type.as_ref()) {
            *known = info;
        }
    }
    let claim = |(name, info): (&str, &ValueInfoProto)| Some((name.to_owned(), info.r#type.clone()?));
    claims.into_iter().filter_map(claim).collect()
}

/// Returns the values that a node and its bodies read from the graph that it is in.
fn reads(node: &NodeProto) -> Vec<&str> {
    let mut names: Vec<&str> =
        node.input.iter().map(|name| &**name).filter(|name| !name.is_empty()).collect();
    for attribute in &node.attribute {
        for graph in attribute.g.iter().chain(&attribute.graphs) {
            names.extend(free(graph));
        }
    }
    names
}

/// Returns the values that a body reads from the graphs around it.
fn free(graph: &GraphProto) -> Vec<&str> {
    let sparse = graph.sparse_initializer.iter().filter_map(|sparse| sparse.values.as_ref());
    let weights = graph.initializer.iter().chain(sparse).map(|weight| &*weight.name);
    let inputs = graph.input.iter().map(|input| &*input.name);
    let own: HashSet<&str> = weights.chain(inputs).chain(graph.node.iter().flat_map(written)).collect();
    let results = graph.output.iter().map(|output| &*output.name);
    graph.node.iter().flat_map(reads).chain(results).filter(|name| !own.contains(name)).collect()
}

/// The values that a node writes. Optional ones that are left out have empty names.
fn written(node: &NodeProto) -> impl Iterator<Item = &str> {
    node.output.iter().map(|name| &**name).filter(|name| !name.is_empty())
}
