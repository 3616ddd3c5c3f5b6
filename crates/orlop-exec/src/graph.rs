//! Buffers from a graph: values that share bytes in the plan of the graph share them here.

use crate::{BufferId, BufferSpec, ExecError, PlanBuilder, Result};
use orlop_core::DType;
use orlop_plan::{Graph, NodeId, ValueId};

/// The buffers of a graph's values.
#[derive(Debug, Clone)]
pub struct GraphBuffers {
    values: Vec<Option<BufferId>>,
    scratch: Vec<Option<BufferId>>,
}

impl GraphBuffers {
    /// Returns the buffer of a value. `None` for values in the memory of the caller, and for those of another
    /// graph.
    #[must_use]
    pub fn value(&self, value: ValueId) -> Option<BufferId> {
        *self.values.get(value.index())?
    }

    /// Returns the buffer with the scratch bytes of a node, if it has any.
    #[must_use]
    pub fn scratch(&self, node: NodeId) -> Option<BufferId> {
        *self.scratch.get(node.index())?
    }
}

impl PlanBuilder {
    /// Adds the values of a graph whose nodes are executed in this order, as `describe` describes them. The
    /// node at position `i` is executed in step `i`; results that are kept can be read in one more step after
    /// the last. Views, and outputs that are written over an input, share the bytes of their source, from its
    /// first on: a graph does not say where a smaller view begins. Parts ([`orlop_plan::GraphBuilder::part`])
    /// have bytes of their own, because what is written together is not in one tensor. Inputs of the graph
    /// in the memory of the caller are not described and get no buffer.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_exec::{BufferSpec, PlanBuilder};
    /// use orlop_plan::GraphBuilder;
    ///
    /// let mut graph = GraphBuilder::new();
    /// let image = graph.input("image", 4000);
    /// let conv = graph.node("conv", &[image])?;
    /// let hidden = graph.output(conv, "hidden", 4096)?;
    /// let relu = graph.node("relu", &[hidden])?;
    /// let active = graph.output(relu, "active", 4096)?;
    /// graph.in_place(hidden, active)?;
    /// graph.keep(active)?;
    /// let graph = graph.finish();
    ///
    /// let mut plan = PlanBuilder::new();
    /// let name = |value| graph.value_name(value).unwrap_or_default();
    /// let describe = |value| BufferSpec::new(name(value), [1024], DType::F32);
    /// let buffers = plan.graph(&graph, &graph.given_order(), describe)?;
    /// assert!(buffers.value(image).is_none() && buffers.value(active).is_some());
    /// assert_eq!(plan.finish()?.workspace_bytes(), 4096);
    /// # Ok::<(), orlop_exec::ExecError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ExecError::Graph`] for an invalid order; [`ExecError::SizeMismatch`]; [`ExecError::NotOver`] if
    /// values that share bytes are described with different devices or kinds; errors of `describe`. No buffer
    /// is added then.
    pub fn graph(
        &mut self,
        graph: &Graph,
        order: &[NodeId],
        describe: impl FnMut(ValueId) -> Result<BufferSpec>,
    ) -> Result<GraphBuffers> {
        let before = self.len();
        let added = self.add_graph(graph, order, describe);
        if added.is_err() {
            self.truncate(before);
        }
        added
    }

    fn add_graph(
        &mut self,
        graph: &Graph,
        order: &[NodeId],
        mut describe: impl FnMut(ValueId) -> Result<BufferSpec>,
    ) -> Result<GraphBuffers> {
        let lifetimes = graph.lifetimes(order)?;
        let mut described = Vec::with_capacity(graph.value_count());
        // Before the first buffer is added, because code of the caller may panic.
        for value in graph.values() {
            let (Some(planned), Some(steps)) = (lifetimes.buffer(value), lifetimes.lifetime(value)) else {
                continue;
            };
            let spec = describe(value)?;
            let bytes = graph.value_size(value).unwrap_or(0);
            if u64::try_from(spec.bytes()) != Ok(bytes) {
                let described = spec.bytes();
                return Err(ExecError::SizeMismatch { name: spec.name, bytes, described });
            }
            described.push((value, spec, planned, steps));
        }
        // The first buffer in the memory of each planned one.
        let mut memories: Vec<Option<usize>> = vec![None; lifetimes.problem().len()];
        let mut values = vec![None; graph.value_count()];
        // Of values that share bytes, the first has all of them; views and outputs in place come after it.
        for (value, spec, planned, steps) in described {
            let memory = memories[planned];
            if let Some(memory) = memory {
                self.check_over(&spec, memory)?;
            }
            let id = self.declare(spec, steps, memory);
            memories[planned].get_or_insert(id.index());
            values[value.index()] = Some(id);
        }
        let mut scratch = vec![None; graph.node_count()];
        for (step, &node) in (0..).zip(order) {
            if let Some(planned) = lifetimes.scratch(node) {
                let problem = lifetimes.problem();
                let bytes = usize::try_from(problem.buffers()[planned].size);
                let bytes =
                    bytes.map_err(|_| ExecError::TooLarge { bytes: problem.buffers()[planned].size })?;
                let mut spec =
                    BufferSpec::new(problem.name(planned).unwrap_or_default(), [bytes], DType::U8)?;
                let outputs = graph.outputs(node).unwrap_or_default();
                if let Some(id) = outputs.iter().find_map(|output| values[output.index()]) {
                    spec = spec.device(self.device_of(id));
                }
                scratch[node.index()] = Some(self.declare(spec, step..step + 1, None));
            }
        }
        Ok(GraphBuffers { values, scratch })
    }
}
