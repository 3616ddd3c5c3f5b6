//! [`GraphBuilder`].

use super::parts::Part;
use super::{Graph, GraphError, Node, NodeId, Source, Value, ValueId};
use orlop_core::Alignment;

/// Builds a [`Graph`]. Values are added before the nodes that read them, so a graph has no cycles.
#[derive(Debug, Clone, Default)]
pub struct GraphBuilder {
    graph: Graph,
}

impl GraphBuilder {
    /// Creates a builder of a graph without nodes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an input or a weight in the memory of the caller. It gets no planned memory.
    pub fn input(&mut self, name: &str, bytes: u64) -> ValueId {
        self.add_value(name, bytes, Source::Caller)
    }

    /// Adds an input with planned memory, which the caller fills before the first step. It is live until it
    /// was read last, or to the end if no node reads it.
    pub fn planned_input(&mut self, name: &str, bytes: u64) -> ValueId {
        self.add_value(name, bytes, Source::PlannedInput)
    }

    /// Adds a node that reads `inputs`.
    ///
    /// # Errors
    ///
    /// [`GraphError::UnknownValue`]
    pub fn node(&mut self, name: &str, inputs: &[ValueId]) -> Result<NodeId, GraphError> {
        inputs.iter().try_for_each(|&input| self.check_value(input))?;
        let node = NodeId(self.graph.nodes.len());
        let mut unique = inputs.to_vec();
        unique.sort_unstable();
        unique.dedup();
        for input in &unique {
            self.graph.values[input.0].readers.push(node);
        }
        self.graph.nodes.push(Node {
            name: name.into(),
            inputs: unique,
            outputs: Vec::new(),
            scratch: 0,
            parts: Vec::new(),
        });
        Ok(node)
    }

    /// Adds a value that a node writes.
    ///
    /// # Errors
    ///
    /// [`GraphError::UnknownNode`]
    pub fn output(&mut self, node: NodeId, name: &str, bytes: u64) -> Result<ValueId, GraphError> {
        self.check_node(node)?;
        let value = self.add_value(name, bytes, Source::Output { node, over: Vec::new() });
        self.graph.nodes[node.0].outputs.push(value);
        Ok(value)
    }

    /// Allows the node that writes `output` to write it over `input`, which it reads: the output then takes
    /// the memory of the input, if that is planned, of the same size (rounded up to the alignment), and not
    /// read afterwards. Of several inputs the first that fits is taken. A smaller output gets memory of its
    /// own: it would keep the bytes that it does not need.
    ///
    /// # Errors
    ///
    /// [`GraphError::UnknownValue`], [`GraphError::NotThrough`], [`GraphError::TwoSources`]
    pub fn in_place(&mut self, input: ValueId, output: ValueId) -> Result<(), GraphError> {
        self.check_pair(input, output)?;
        match &mut self.graph.values[output.0].source {
            Source::Output { over, .. } if !over.contains(&input) => over.push(input),
            Source::Output { .. } => {}
            _ => return Err(GraphError::TwoSources { output }),
        }
        Ok(())
    }

    /// Makes `output` a view of `input`: it has no memory of its own, and the input's stays while one of them
    /// is read.
    ///
    /// # Errors
    ///
    /// [`GraphError::UnknownValue`], [`GraphError::NotThrough`], [`GraphError::TwoSources`],
    /// [`GraphError::LargerView`]
    pub fn view(&mut self, input: ValueId, output: ValueId) -> Result<(), GraphError> {
        self.check_pair(input, output)?;
        if self.graph.values[output.0].size > self.graph.values[input.0].size {
            return Err(GraphError::LargerView { input, output });
        }
        let value = &mut self.graph.values[output.0];
        match &value.source {
            Source::Output { node, over } if over.is_empty() => {
                value.source = Source::View { node: *node, of: input };
                Ok(())
            }
            Source::View { of, .. } if *of == input => Ok(()),
            _ => Err(GraphError::TwoSources { output }),
        }
    }

    /// Allows a node to have an input as a part of an output, `offset` bytes from its start, as a
    /// concatenation has its operands, or an output as a part of an input, as a split has its results. The
    /// part is then where the whole has it, and the node does not copy it.
    ///
    /// It is in place if the offset is aligned, if the node has no buffer both as a part and as a whole, if
    /// no value is written over one of both while the other is read, and if memory for the whole from the
    /// first part to the last one does not make the load higher.
    /// [`Problem::part_of`](crate::Problem::part_of) of the buffers says so.
    ///
    /// ```
    /// use orlop_plan::GraphBuilder;
    ///
    /// let mut graph = GraphBuilder::new();
    /// let input = graph.input("input", 8);
    /// let branch = graph.node("branch", &[input])?;
    /// let left = graph.output(branch, "left", 1024)?;
    /// let right = graph.output(branch, "right", 1024)?;
    /// let concat = graph.node("concat", &[left, right])?;
    /// let both = graph.output(concat, "both", 2048)?;
    /// graph.part(left, both, 0)?;
    /// graph.part(right, both, 1024)?;
    /// let graph = graph.finish();
    /// let lifetimes = graph.lifetimes(&graph.given_order())?;
    /// let buffer = |value| lifetimes.buffer(value).unwrap_or_default();
    /// assert_eq!(lifetimes.problem().part_of(buffer(right)), Some((buffer(both), 1024)));
    /// assert_eq!(lifetimes.problem().lower_bound(), 2048);
    /// # Ok::<(), orlop_plan::GraphError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`GraphError::UnknownValue`], [`GraphError::NotThrough`]; [`GraphError::PartOutside`] also if the part
    /// does not begin after the parts of the same whole that were added before.
    pub fn part(&mut self, part: ValueId, whole: ValueId, offset: u64) -> Result<(), GraphError> {
        let node = match self.check_pair(part, whole) {
            Ok(node) => node,
            Err(_) => self.check_pair(whole, part)?,
        };
        let size = |value: ValueId| self.graph.values[value.0].size;
        let parts = &self.graph.nodes[node.0].parts;
        let before = parts.iter().rev().find(|before| before.whole == whole);
        let free = before.map_or(0, |before| before.offset + size(before.part));
        let end = offset.checked_add(size(part));
        if offset < free || end.is_none_or(|end| end > size(whole)) {
            return Err(GraphError::PartOutside { part, whole, offset });
        }
        self.graph.nodes[node.0].parts.push(Part { part, whole, offset });
        Ok(())
    }

    /// Keeps a value until the end: it is a result of the graph.
    ///
    /// # Errors
    ///
    /// [`GraphError::UnknownValue`]
    pub fn keep(&mut self, value: ValueId) -> Result<(), GraphError> {
        self.check_value(value)?;
        self.graph.values[value.0].is_kept = true;
        Ok(())
    }

    /// Sets the alignment of a value, [`Alignment::PLANNED`] otherwise. Memory that several values share has
    /// the largest of theirs.
    ///
    /// # Errors
    ///
    /// [`GraphError::UnknownValue`]
    pub fn align(&mut self, value: ValueId, alignment: Alignment) -> Result<(), GraphError> {
        self.check_value(value)?;
        self.graph.values[value.0].alignment = alignment;
        Ok(())
    }

    /// Sets the bytes that a node needs during its step only.
    ///
    /// # Errors
    ///
    /// [`GraphError::UnknownNode`]
    pub fn scratch(&mut self, node: NodeId, bytes: u64) -> Result<(), GraphError> {
        self.check_node(node)?;
        self.graph.nodes[node.0].scratch = bytes;
        Ok(())
    }

    /// Returns the graph.
    #[must_use]
    pub fn finish(mut self) -> Graph {
        let values = &mut self.graph.values;
        for index in 0..values.len() {
            // What a view is one of was added before it, and has its base.
            if let Source::View { of, .. } = values[index].source {
                values[index].base = values[of.0].base;
            }
        }
        self.graph
    }

    fn add_value(&mut self, name: &str, size: u64, source: Source) -> ValueId {
        let value = ValueId(self.graph.values.len());
        self.graph.values.push(Value {
            name: name.into(),
            size,
            alignment: Alignment::PLANNED,
            source,
            base: value,
            readers: Vec::new(),
            is_kept: false,
        });
        value
    }

    fn check_value(&self, value: ValueId) -> Result<(), GraphError> {
        if value.0 < self.graph.values.len() { Ok(()) } else { Err(GraphError::UnknownValue { value }) }
    }

    fn check_node(&self, node: NodeId) -> Result<(), GraphError> {
        if node.0 < self.graph.nodes.len() { Ok(()) } else { Err(GraphError::UnknownNode { node }) }
    }

    /// Returns the node that writes `output`, after a check that it reads `input`.
    fn check_pair(&self, input: ValueId, output: ValueId) -> Result<NodeId, GraphError> {
        self.check_value(input)?;
        self.check_value(output)?;
        let node = match &self.graph.values[output.0].source {
            Source::Output { node, .. } | Source::View { node, .. } => Some(*node),
            Source::Caller | Source::PlannedInput => None,
        };
        let reads = |node: &NodeId| self.graph.nodes[node.0].inputs.binary_search(&input).is_ok();
        node.filter(reads).ok_or(GraphError::NotThrough { input, output })
    }
}
