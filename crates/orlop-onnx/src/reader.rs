//! From a file to a graph.

use crate::OnnxError;
use crate::model::{OnnxModel, OnnxValue, ValueOrigin};
use crate::operators::{MemoryUse, is_standard, memory_use};
use crate::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto};
use crate::shapes::{NO_TENSOR, Precision, STRING, Sizes, TensorSize, of_weight, precision};
use orlop_core::Alignment;
use orlop_plan::{GraphBuilder, ValueId};
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

/// A graph that is being read.
struct Reading<'a> {
    proto: &'a GraphProto,
    bindings: &'a BTreeMap<String, u64>,
    types: HashMap<&'a str, &'a ValueInfoProto>,
    sizes: Sizes<'a>,
    unknown: Vec<String>,
    names: HashMap<&'a str, ValueId>,
    /// By number.
    values: Vec<OnnxValue>,
    builder: GraphBuilder,
    weight_bytes: u64,
    value_bytes: u64,
    /// The same, each rounded up to its alignment.
    planned_bytes: u64,
}

impl<'a> Reading<'a> {
    fn new(proto: &'a GraphProto, bindings: &'a BTreeMap<String, u64>) -> Result<Self, OnnxError> {
        let with_types = proto.value_info.iter().chain(&proto.input).chain(&proto.output);
        let mut reading = Self {
            proto,
            bindings,
            types: HashMap::new(),
            sizes: Sizes::new(bindings),
            unknown: Vec::new(),
            names: HashMap::new(),
            values: Vec::new(),
            builder: GraphBuilder::new(),
            weight_bytes: 0,
            value_bytes: 0,
            planned_bytes: 0,
        };
        for info in with_types {
            // Of several types that a file has for a value, the one that says most.
            let known = reading.types.entry(&*info.name).or_insert(info);
            if precision(info.r#type.as_ref()) >= precision(known.r#type.as_ref()) {
                *known = info;
            }
        }
        let dense = proto.initializer.iter().map(|weight| (weight, ValueOrigin::Weight));
        let sparse = proto.sparse_initializer.iter().filter_map(|sparse| sparse.values.as_ref());
        for (weight, origin) in dense.chain(sparse.map(|weight| (weight, ValueOrigin::SparseWeight))) {
            if reading.names.contains_key(&*weight.name) {
                return Err(OnnxError::WrittenTwice { value: weight.name.clone() });
            }
            let size = of_weight(&weight.name, weight)?;
            reading.add_weight(&weight.name, origin, Some(size));
        }
        for input in &proto.input {
            if !reading.names.contains_key(&*input.name) {
                let size = reading.sizes.of(&input.name, input.r#type.as_ref())?;
                reading.add_input(&input.name, ValueOrigin::Input, size);
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
            let Some(&value) = self.names.get(&*output.name) else {
                return Err(OnnxError::MissingOutput { value: output.name.clone() });
            };
            self.builder.keep(value)?;
        }
        let is_unused = |name: &&String| !self.sizes.used.contains(name.as_str());
        Ok(OnnxModel {
            unused_bindings: self.bindings.keys().filter(is_unused).cloned().collect(),
            graph: self.builder.finish(),
            weight_bytes: self.weight_bytes,
            value_bytes: self.value_bytes,
            values: self.values,
            names: self.names.into_iter().map(|(name, value)| (name.into(), value)).collect(),
        })
    }

    fn add(&mut self, node: &'a NodeProto) -> Result<(), OnnxError> {
        if node.attribute.iter().any(|attribute| attribute.graph.is_some() || !attribute.graphs.is_empty()) {
            let (node, operator) = (title(node), node.op_type.clone());
            return Err(OnnxError::ControlFlow { node, operator });
        }
        if is_standard(&node.domain) && node.op_type == "Constant" {
            // A weight with a node around it.
            for output in written(node) {
                let contents = node.attribute.iter().find_map(|attribute| attribute.tensor.as_ref());
                let size = match contents {
                    Some(tensor) => Some(of_weight(output, tensor)?),
                    None => self.known_size(output)?,
                };
                self.add_weight(output, ValueOrigin::Weight, size);
            }
            return Ok(());
        }
        let inputs: Vec<ValueId> = read(node).filter_map(|input| self.names.get(input).copied()).collect();
        let id = self.builder.node(&title(node), &inputs)?;
        let first = node.output.first().map(|name| &**name);
        for output in written(node) {
            let size = self.planned_size(output)?;
            if size.is_none() && !self.is_named(output) {
                self.unknown.push(output.to_owned());
            }
            let bytes = size.as_ref().map_or(0, |size| size.bytes);
            let value = self.builder.output(id, output, bytes)?;
            let (view_of, over) = match first == Some(output) {
                true => self.sources(node, &inputs, size.as_ref()),
                false => (None, Vec::new()),
            };
            match view_of {
                Some(input) => self.builder.view(input, value)?,
                None => self.count(output, bytes)?,
            }
            over.iter().try_for_each(|&input| self.builder.in_place(input, value))?;
            self.note(output, value, ValueOrigin::Node, size);
        }
        Ok(())
    }

    /// Counts the bytes of a value that a node writes.
    fn count(&mut self, name: &str, bytes: u64) -> Result<(), OnnxError> {
        let planned = bytes.checked_next_multiple_of(Alignment::PLANNED.bytes() as u64);
        self.planned_bytes = planned
            .and_then(|bytes| self.planned_bytes.checked_add(bytes))
            .ok_or_else(|| OnnxError::TotalOverflow { value: name.to_owned() })?;
        self.value_bytes += bytes;
        Ok(())
    }

    fn add_weight(&mut self, name: &'a str, origin: ValueOrigin, size: Option<TensorSize>) {
        let bytes = size.as_ref().map_or(0, |size| size.bytes);
        self.weight_bytes = self.weight_bytes.saturating_add(bytes);
        self.add_input(name, origin, size);
    }

    fn add_input(&mut self, name: &'a str, origin: ValueOrigin, size: Option<TensorSize>) {
        let value = self.builder.input(name, size.as_ref().map_or(0, |size| size.bytes));
        self.note(name, value, origin, size);
    }

    /// Notes a value that was just added to the graph.
    fn note(&mut self, name: &'a str, value: ValueId, origin: ValueOrigin, size: Option<TensorSize>) {
        self.names.insert(name, value);
        self.values.push(OnnxValue { origin, size });
    }

    /// Returns the input that the first output of a node is a view of, and those that it may be written over.
    fn sources(
        &self,
        node: &NodeProto,
        inputs: &[ValueId],
        output: Option<&TensorSize>,
    ) -> (Option<ValueId>, Vec<ValueId>) {
        let first = node.input.first().filter(|name| !name.is_empty());
        let first = first.and_then(|input| self.names.get(&**input).copied());
        let with = |input: &ValueId, check: fn(&TensorSize, &TensorSize) -> bool| {
            let input = self.values.get(input.index()).and_then(|input| input.size.as_ref());
            input.zip(output).is_some_and(|(input, output)| check(output, input))
        };
        // A file may claim a shape that is none of a view. Inputs that are broadcast, or have elements of
        // another size, are read after the bytes in their places were written.
        let over = |inputs: &[ValueId]| {
            inputs.iter().copied().filter(|input| with(input, TensorSize::fits_over)).collect()
        };
        match memory_use(&node.domain, &node.op_type) {
            MemoryUse::Own => (None, Vec::new()),
            MemoryUse::View => (first.filter(|input| with(input, TensorSize::is_view_of)), Vec::new()),
            MemoryUse::OverFirst => (None, over(first.as_slice())),
            MemoryUse::OverAny => (None, over(inputs)),
        }
    }

    /// Returns the size of a value that a node writes: it is refused if its bytes are not known in advance.
    fn planned_size(&mut self, value: &str) -> Result<Option<TensorSize>, OnnxError> {
        let of = self.types.get(value).and_then(|info| info.r#type.as_ref());
        let is_tensor = of.is_none_or(|of| of.tensor_type.is_some());
        let size = self.known_size(value)?;
        let data_type = match &size {
            Some(size) if size.is_strings() => STRING,
            None if !is_tensor => NO_TENSOR,
            _ => return Ok(size),
        };
        Err(OnnxError::UnsupportedType { value: value.to_owned(), data_type })
    }

    fn known_size(&mut self, value: &str) -> Result<Option<TensorSize>, OnnxError> {
        let of = self.types.get(value).and_then(|info| info.r#type.as_ref());
        self.sizes.of(value, of)
    }

    /// Returns `true` if a shape is unknown only because names in it have no number.
    fn is_named(&self, value: &str) -> bool {
        let of = self.types.get(value).and_then(|info| info.r#type.as_ref());
        precision(of) == Precision::Names
    }
}

/// Returns the name of a node, that of its first output, or its operator.
fn title(node: &NodeProto) -> String {
    if !node.name.is_empty() {
        return node.name.clone();
    }
    written(node).next().unwrap_or(&node.op_type).to_owned()
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
    let Some(mut node) = waits_for.iter().position(|&left| left > 0) else { return Ok(order) };
    // Each node that is left waits for another: against the edges, every way ends in a circle.
    let mut is_seen = vec![false; waits_for.len()];
    while !std::mem::replace(&mut is_seen[node], true) {
        let writers = read(&graph.node[node]).filter_map(|input| writers.get(input).copied().flatten());
        node = writers.into_iter().find(|&writer| waits_for[writer] > 0).unwrap_or(node);
    }
    Err(OnnxError::Circle { node: title(&graph.node[node]) })
}
