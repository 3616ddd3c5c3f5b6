//! From a model to the buffers of an execution plan.

use crate::shapes::{TensorSize, dtype};
use crate::{OnnxError, OnnxModel, OnnxValue, ValueOrigin};
use orlop_core::{DType, Device, Shape};
use orlop_exec::{BufferId, BufferSpec, ExecError, PlanBuilder};
use orlop_plan::{NodeId, ValueId};
use std::collections::HashMap;

/// Why a model cannot become an execution plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxExecError {
    /// The file does not say which shape weights have, and they are to have buffers.
    #[error(transparent)]
    Model(#[from] OnnxError),
    /// A value is larger than a tensor can be.
    #[error("the value {value:?} cannot be a tensor: {source}")]
    Size {
        /// The name of the value.
        value: String,
        /// What is wrong with its sizes.
        source: orlop_core::Error,
    },
    /// The order of the nodes is none of the graph, or the buffers cannot be planned.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

impl OnnxExecError {
    /// Returns `true` if the same call may succeed after memory is freed.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Exec(error) if error.is_out_of_memory())
    }
}

/// How the values of a model become buffers of an execution plan: see [`OnnxModel::execution`].
#[derive(Debug, Clone)]
#[must_use]
pub struct OnnxExecution<'a> {
    model: &'a OnnxModel,
    order: Vec<NodeId>,
    device: Device,
    has_weights: bool,
}

impl OnnxModel {
    /// Describes the values of the model as buffers of an execution plan.
    ///
    /// * What nodes write is [`Workspace`](orlop_core::MemoryKind::Workspace), planned as `orlop plan` does,
    ///   but for parts: views and outputs in place share bytes, operands of a concatenation and results of a
    ///   split do not. Results are kept for one step after the last node.
    /// * Inputs stay in the memory of the caller, and so do weights, unless
    ///   [`with_weights`](OnnxExecution::with_weights) gives them
    ///   [`Persistent`](orlop_core::MemoryKind::Persistent) memory. Views of either are where these are.
    /// * Values with strings, or that are no tensors, stay with the caller.
    /// * A node that executes graphs of its own has a [workspace](OnnxBuffers::workspace) for their values;
    ///   [`OnnxBody::plan`](crate::OnnxBody::plan) says where each is in it.
    /// * A value whose sizes depend on data has a buffer for the largest.
    /// * Elements without a dtype in orlop ([`OnnxValue::dtype`]) are a row of bytes: packed ones as many as
    ///   they take.
    ///
    /// ```
    /// use orlop_context::Context;
    /// use orlop_exec::PlanBuilder;
    /// use orlop_onnx::OnnxReader;
    ///
    /// let file = include_bytes!("../tests/data/onnx/mlp.onnx");
    /// // What this graph reshapes to depends on data: without a bound, a buffer of 4 GiB.
    /// let model = OnnxReader::new().bind("batch", 8).bound("c", &[8, 1, 128]).read(file)?;
    /// let mut plan = PlanBuilder::new();
    /// let buffers = model.execution().declare(&mut plan)?;
    /// let plan = plan.finish()?;
    ///
    /// let mut execution = plan.prepare(&Context::new())?;
    /// execution.begin()?;
    /// for (step, &node) in (0..).zip(buffers.order()) {
    ///     let tensors = execution.step(step)?;
    ///     for &output in model.graph.outputs(node).unwrap_or_default() {
    ///         if let Some(buffer) = buffers.value(output) {
    ///             tensors.tensor(buffer)?.fill_(step as f64)?; // the operator's kernel
    ///         }
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn execution(&self) -> OnnxExecution<'_> {
        let order = self.graph.given_order();
        OnnxExecution { model: self, order, device: Device::CPU, has_weights: false }
    }
}

impl OnnxExecution<'_> {
    /// Sets the order in which the nodes are executed, otherwise that of the file. The node at position `i`
    /// is executed in step `i`.
    pub fn order(mut self, order: Vec<NodeId>) -> Self {
        self.order = order;
        self
    }

    /// Sets the device of all buffers, otherwise the CPU.
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// Gives weights persistent buffers, for the caller to fill before the first run. Weights that are stored
    /// without their zeros get none, because their format is the caller's.
    pub fn with_weights(mut self) -> Self {
        self.has_weights = true;
        self
    }

    /// Adds the buffers to a plan.
    ///
    /// # Errors
    ///
    /// [`OnnxExecError`]. The plan may have some of the buffers then.
    pub fn declare(self, plan: &mut PlanBuilder) -> Result<OnnxBuffers, OnnxExecError> {
        let graph = &self.model.graph;
        let tensors = self.tensors()?;
        let name = |value| graph.value_name(value).unwrap_or_default();
        let spec = |value: ValueId| {
            let (shape, dtype) = tensors[value.index()].clone().unwrap_or((Shape::scalar(), DType::U8));
            Ok(BufferSpec::new(name(value), shape, dtype)?.device(self.device))
        };
        let planned = plan.graph(graph, &self.order, spec)?;
        let mut buffers: Vec<_> = graph.values().map(|value| planned.value(value)).collect();
        // What is left are weights and their views, which come after them.
        for (value, tensor) in graph.values().zip(&tensors) {
            if let (None, Some((shape, _))) = (buffers[value.index()], tensor) {
                buffers[value.index()] = Some(match graph.view_base(value).filter(|&base| base != value) {
                    None => plan.persistent(spec(value)?),
                    Some(base) => match buffers[base.index()] {
                        Some(base) => plan.view(name(value), base, shape, 0)?,
                        None => continue,
                    },
                });
            }
        }
        let named =
            graph.values().zip(&buffers).filter_map(|(value, &buffer)| Some((name(value).into(), buffer?)));
        let workspaces = self.order.iter().filter_map(|&node| Some((node, planned.scratch(node)?)));
        Ok(OnnxBuffers {
            names: named.collect(),
            workspaces: workspaces.collect(),
            buffers,
            order: self.order,
        })
    }

    /// Returns shapes and dtypes, by value, of those that get buffers.
    fn tensors(&self) -> Result<Vec<Option<(Shape, DType)>>, OnnxExecError> {
        let graph = &self.model.graph;
        let mut unknown = Vec::new();
        let mut tensors = Vec::with_capacity(graph.value_count());
        for value in graph.values() {
            let base = graph.view_base(value).and_then(|base| self.model.value(base));
            let origin = base.map_or(ValueOrigin::Input, OnnxValue::origin);
            let has_buffer = match origin {
                ValueOrigin::Node => true,
                ValueOrigin::Weight => self.has_weights,
                ValueOrigin::Input | ValueOrigin::SparseWeight => false,
            };
            let name = graph.value_name(value).unwrap_or_default();
            let size = self.model.value(value).and_then(|value| value.size.as_ref());
            let has_buffer = has_buffer && !size.is_some_and(TensorSize::is_strings);
            tensors.push(match size.filter(|_| has_buffer) {
                Some(size) => {
                    Some(tensor(size).map_err(|source| OnnxExecError::Size { value: name.into(), source })?)
                }
                None => {
                    // Of what nodes write, only sequences and the like have no size.
                    let is_missing = has_buffer && origin == ValueOrigin::Weight;
                    unknown.extend(is_missing.then(|| name.to_owned()));
                    None
                }
            });
        }
        match unknown.is_empty() {
            true => Ok(tensors),
            false => Err(OnnxError::UnknownShapes { values: unknown }.into()),
        }
    }
}

/// Returns the shape and the dtype of a buffer for a value.
fn tensor(size: &TensorSize) -> orlop_core::Result<(Shape, DType)> {
    let (shape, dtype) = match dtype(size.data_type) {
        Some(dtype) => (Shape::new(&size.sizes)?, dtype),
        None => (Shape::new(&[size.bytes])?, DType::U8),
    };
    shape.checked_bytes(dtype.size())?;
    Ok((shape, dtype))
}

/// The buffers of a model's values in an execution plan.
#[derive(Debug, Clone)]
pub struct OnnxBuffers {
    /// By number of the value.
    buffers: Vec<Option<BufferId>>,
    names: HashMap<Box<str>, BufferId>,
    workspaces: HashMap<NodeId, BufferId>,
    order: Vec<NodeId>,
}

impl OnnxBuffers {
    /// Returns the buffer of a value. `None` for values in the memory of the caller, and for those of another
    /// model.
    #[must_use]
    pub fn value(&self, value: ValueId) -> Option<BufferId> {
        *self.buffers.get(value.index())?
    }

    /// Returns the buffer of the value with this name. `None` for values in the memory of the caller, and for
    /// names that the model does not have.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<BufferId> {
        self.names.get(name).copied()
    }

    /// Returns the buffer that a node has during its step only, for the graphs that it executes.
    #[must_use]
    pub fn workspace(&self, node: NodeId) -> Option<BufferId> {
        self.workspaces.get(&node).copied()
    }

    /// Returns the order in which the nodes are executed, one in each step.
    #[must_use]
    pub fn order(&self) -> &[NodeId] {
        &self.order
    }
}
