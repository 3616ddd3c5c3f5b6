//! From a file to a graph.

use crate::OnnxError;
use crate::operators::{MemoryUse, memory_use};
use crate::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};
use crate::shapes::{Sizes, weight_bytes};
use orlop_plan::{Graph, GraphBuilder, ValueId};
use prost::Message;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

/// Reads ONNX files.
#[derive(Debug, Clone, Default)]
pub struct OnnxReader {
    bindings: BTreeMap<String, u64>,
}

impl OnnxReader {
    /// Creates a reader.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives a size to a name in shapes, such as `batch`.
    #[must_use]
    pub fn bind(mut self, symbol: &str, size: u64) -> Self {
        self.bindings.insert(symbol.to_owned(), size);
        self
    }

    /// Reads a model from the bytes of its file. Files with the weights, if there are any, are not read.
    ///
    /// # Errors
    ///
    /// [`OnnxError`]
    pub fn read(&self, bytes: &[u8]) -> Result<OnnxModel, OnnxError> {
        let graph = ModelProto::decode(bytes)?.graph.ok_or(OnnxError::NoGraph)?;
        Reading::new(&graph, &self.bindings)?.run()
    }
}

/// A model: its graph, for planning, and the bytes of its weights.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OnnxModel {
    /// The graph. Its results are kept; its inputs and weights are in the memory of the caller.
    pub graph: Graph,
    /// The bytes of all weights.
    pub weight_bytes: u64,
    /// The bytes of all values that nodes write, views not counted: what a program without a plan would have
    /// if it freed nothing.
    pub value_bytes: u64,
    /// The names that were given a number, and that no shape has.
    pub unused_bindings: Vec<String>,
}

/// A graph that is being read.
struct Reading<'a> {
    proto: &'a GraphProto,
    bindings: &'a BTreeMap<String, u64>,
    types: HashMap<&'a str, &'a ValueInfoProto>,
    sizes: Sizes<'a>,
    unknown: Vec<String>,
    values: HashMap<&'a str, ValueId>,
    bytes: HashMap<ValueId, u64>,
    builder: GraphBuilder,
    weight_bytes: u64,
    value_bytes: u64,
}

impl<'a> Reading<'a> {
    fn new(proto: &'a GraphProto, bindings: &'a BTreeMap<String, u64>) -> Result<Self, OnnxError> {
        let with_types = proto.value_info.iter().chain(&proto.input).chain(&proto.output);
        let mut reading = Self {
            proto,
            bindings,
            types: with_types.map(|info| (&*info.name, info)).collect(),
            sizes: Sizes::new(bindings),
            unknown: Vec::new(),
            values: HashMap::new(),
            bytes: HashMap::new(),
            builder: GraphBuilder::new(),
            weight_bytes: 0,
            value_bytes: 0,
        };
        let sparse = proto.sparse_initializer.iter().filter_map(|sparse| sparse.values.as_ref());
        for weight in proto.initializer.iter().chain(sparse) {
            let bytes = weight_bytes(weight)?;
            reading.weight_bytes = reading.weight_bytes.saturating_add(bytes);
            reading.add_input(&weight.name, bytes);
        }
        for input in &proto.input {
            if !reading.values.contains_key(&*input.name) {
                let bytes = reading.sizes.bytes(&input.name, input.r#type.as_ref())?.unwrap_or(0);
                reading.add_input(&input.name, bytes);
            }
        }
        Ok(reading)
    }

    fn run(mut self) -> Result<OnnxModel, OnnxError> {
        for index in sorted(self.proto)? {
            self.add(&self.proto.node[index])?;
        }
        if !self.sizes.unbound.is_empty() {
            let symbols = self.sizes.unbound.into_iter().collect();
            return Err(OnnxError::UnboundSymbols { symbols });
        }
        if !self.unknown.is_empty() {
            return Err(OnnxError::UnknownShapes { values: self.unknown });
        }
        for output in &self.proto.output {
            let Some(&value) = self.values.get(&*output.name) else {
                let node = "the model's outputs".to_owned();
                return Err(OnnxError::MissingValue { node, value: output.name.clone() });
            };
            self.builder.keep(value)?;
        }
        let is_unused = |name: &&String| !self.sizes.used.contains(name.as_str());
        Ok(OnnxModel {
            unused_bindings: self.bindings.keys().filter(is_unused).cloned().collect(),
            graph: self.builder.finish(),
            weight_bytes: self.weight_bytes,
            value_bytes: self.value_bytes,
        })
    }

    fn add(&mut self, node: &'a NodeProto) -> Result<(), OnnxError> {
        if node.attribute.iter().any(|attribute| attribute.graph.is_some() || !attribute.graphs.is_empty()) {
            let (node, operator) = (title(node), node.op_type.clone());
            return Err(OnnxError::ControlFlow { node, operator });
        }
        if node.op_type == "Constant" {
            // A weight with a node around it.
            for output in written(node) {
                let bytes = self.known_bytes(output)?.unwrap_or(0);
                self.weight_bytes = self.weight_bytes.saturating_add(bytes);
                self.add_input(output, bytes);
            }
            return Ok(());
        }
        let inputs: Vec<ValueId> = read(node).filter_map(|input| self.values.get(input).copied()).collect();
        let id = self.builder.node(&title(node), &inputs)?;
        let first = node.output.first().filter(|name| !name.is_empty());
        for output in written(node) {
            let bytes = self.known_bytes(output)?;
            if bytes.is_none() && !self.is_named(output) {
                self.unknown.push(output.to_owned());
            }
            let bytes = bytes.unwrap_or(0);
            let value = self.builder.output(id, output, bytes)?;
            self.values.insert(output, value);
            self.bytes.insert(value, bytes);
            let uses = memory_use(&node.domain, &node.op_type);
            let first_input = node.input.first().and_then(|input| self.values.get(&**input).copied());
            // A file may claim a shape that is none of a view.
            let is_whole = first_input.and_then(|input| self.bytes.get(&input)) == Some(&bytes);
            let uses = match uses {
                _ if first.is_none_or(|first| first != output) => MemoryUse::Own,
                MemoryUse::View if !is_whole => MemoryUse::Own,
                uses => uses,
            };
            match (uses, first_input) {
                (MemoryUse::View, Some(input)) => self.builder.view(input, value)?,
                (MemoryUse::OverFirst, Some(input)) => self.builder.in_place(input, value)?,
                (MemoryUse::OverAny, _) => {
                    inputs.iter().try_for_each(|&input| self.builder.in_place(input, value))?;
                }
                _ => {}
            }
            if uses != MemoryUse::View {
                self.value_bytes = self.value_bytes.saturating_add(bytes);
            }
        }
        Ok(())
    }

    fn add_input(&mut self, name: &'a str, bytes: u64) {
        let value = self.builder.input(name, bytes);
        self.values.insert(name, value);
        self.bytes.insert(value, bytes);
    }

    fn known_bytes(&mut self, value: &str) -> Result<Option<u64>, OnnxError> {
        let of = self.types.get(value).and_then(|info| info.r#type.as_ref());
        self.sizes.bytes(value, of)
    }

    /// Returns `true` if a shape is unknown only because names in it have no number.
    fn is_named(&self, value: &str) -> bool {
        use crate::proto::DimensionSize;
        let of = self.types.get(value).and_then(|info| info.r#type.as_ref());
        let shape = of.and_then(|of| of.tensor_type.as_ref()).and_then(|tensor| tensor.shape.as_ref());
        shape.is_some_and(|shape| {
            let is_named = |size: &Option<DimensionSize>| match size {
                Some(DimensionSize::Symbol(name)) => !name.is_empty(),
                size => size.is_some(),
            };
            shape.dim.iter().all(|dim| is_named(&dim.size))
        })
    }
}

/// Returns the name of a node, or that of its first output.
fn title(node: &NodeProto) -> String {
    if !node.name.is_empty() {
        return node.name.clone();
    }
    node.output.first().unwrap_or(&node.op_type).clone()
}

/// The values that a node reads. Optional ones that are left out have empty names.
fn read(node: &NodeProto) -> impl Iterator<Item = &str> {
    node.input.iter().map(|name| &**name).filter(|name| !name.is_empty())
}

fn written(node: &NodeProto) -> impl Iterator<Item = &str> {
    node.output.iter().map(|name| &**name).filter(|name| !name.is_empty())
}

/// Returns the nodes in an order in which they can be executed: the file's, if it is one, as ONNX requires.
fn sorted(graph: &GraphProto) -> Result<Vec<usize>, OnnxError> {
    let mut writers: HashMap<&str, Option<usize>> = HashMap::new();
    let sparse = graph.sparse_initializer.iter().filter_map(|sparse| sparse.values.as_ref());
    let weights = graph.initializer.iter().chain(sparse).map(|weight| &*weight.name);
    writers.extend(graph.input.iter().map(|input| &*input.name).chain(weights).map(|name| (name, None)));
    for (index, node) in graph.node.iter().enumerate() {
        for output in written(node) {
            if writers.insert(output, Some(index)).is_some() {
                return Err(OnnxError::WrittenTwice { value: output.to_owned() });
            }
        }
    }
    let mut waits_for = vec![0_usize; graph.node.len()];
    let mut followers = vec![Vec::new(); graph.node.len()];
    for (index, node) in graph.node.iter().enumerate() {
        for input in read(node) {
            match writers.get(input) {
                Some(Some(writer)) => {
                    waits_for[index] += 1;
                    followers[*writer].push(index);
                }
                Some(None) => {}
                None => {
                    return Err(OnnxError::MissingValue { node: title(node), value: input.to_owned() });
                }
            }
        }
    }
    let first = (0..waits_for.len()).filter(|&node| waits_for[node] == 0).map(Reverse);
    let mut ready: BinaryHeap<_> = first.collect();
    let mut order = Vec::with_capacity(waits_for.len());
    while let Some(Reverse(node)) = ready.pop() {
        order.push(node);
        for &follower in &followers[node] {
            waits_for[follower] -= 1;
            if waits_for[follower] == 0 {
                ready.push(Reverse(follower));
            }
        }
    }
    match waits_for.iter().position(|&left| left > 0) {
        None => Ok(order),
        Some(node) => Err(OnnxError::Circle { node: title(&graph.node[node]) }),
    }
}
