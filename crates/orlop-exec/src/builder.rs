//! [`PlanBuilder`]: the declarations of buffers, with the checks that a plan needs.

use crate::plan::{Declared, ExecutionPlan, NEVER};
use crate::{BufferId, BufferSpec, ExecError, Result};
use orlop_core::{Device, Layout, MemoryKind};
use orlop_plan::SearchBudget;
use orlop_tensor::IntoShape;
use std::ops::{Range, RangeInclusive};

/// Declares the buffers of an [`ExecutionPlan`].
#[derive(Debug, Clone, Default)]
pub struct PlanBuilder {
    buffers: Vec<Declared>,
    /// By buffer.
    ids: Vec<BufferId>,
    /// By buffer, the end of the last one in its memory, if it is the first one there.
    ends: Vec<u64>,
    budget: Option<SearchBudget>,
}

impl PlanBuilder {
    /// Creates a builder without buffers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long the planner searches; by default as `orlop plan` does ([`SearchBudget::short`]).
    #[must_use]
    pub fn budget(mut self, budget: SearchBudget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Adds a buffer that is used from the first to the last of these steps. Its bytes belong to other
    /// buffers in all other steps, and are arbitrary in its first.
    ///
    /// # Errors
    ///
    /// [`ExecError::NoSteps`] for an empty range.
    pub fn buffer(&mut self, spec: BufferSpec, steps: RangeInclusive<u64>) -> Result<BufferId> {
        let steps = half_open(&spec, &steps)?;
        Ok(self.declare(spec, steps, None))
    }

    /// Adds a buffer that keeps its bytes from run to run, such as weights or a state. It can be used in all
    /// steps, and between runs ([`Execution::tensor`](crate::Execution::tensor)). Of
    /// [`MemoryKind::Workspace`] it becomes one of [`MemoryKind::Persistent`].
    pub fn persistent(&mut self, mut spec: BufferSpec) -> BufferId {
        if spec.kind == MemoryKind::Workspace {
            spec.kind = MemoryKind::Persistent;
        }
        self.declare(spec, 0..NEVER, None)
    }

    /// Adds a view of a buffer: a row-major tensor of the same dtype, from the buffer's element `first` on.
    /// It is used in the same steps.
    ///
    /// # Errors
    ///
    /// [`ExecError::TooSmall`] if it does not fit; [`ExecError::UnknownBuffer`].
    pub fn view(
        &mut self,
        name: &str,
        of: BufferId,
        shape: impl IntoShape,
        first: usize,
    ) -> Result<BufferId> {
        let base = self.get(of)?;
        let mut spec = BufferSpec::new(name, shape, base.spec.dtype)?;
        (spec.device, spec.kind) = (base.spec.device, base.spec.kind);
        // From the start of the base. A view without elements begins inside it, too.
        let needed = first.saturating_mul(spec.dtype.size()).saturating_add(spec.bytes());
        if needed > base.spec.bytes() {
            return Err(too_small(&spec, needed, base));
        }
        let first = base.layout.offset().saturating_add(first);
        let contiguous = Layout::contiguous(spec.shape.clone());
        let layout = Layout::new(spec.shape.clone(), contiguous.strides().clone(), first)?;
        let (steps, memory) = (base.steps.clone(), base.memory);
        Ok(self.add(Declared { spec, layout, steps, memory }))
    }

    /// Adds a buffer that a step writes over another one, which is not used after that step: it gets the same
    /// bytes. Both can be used in that step, one at a time. Its clones and views outlive the other buffer.
    ///
    /// # Errors
    ///
    /// [`ExecError::NotOver`] if the other one is on another device, of another kind, used later than in the
    /// first of `steps`, or not until then, or is a view that does not begin where its buffer does;
    /// [`ExecError::TooSmall`]; [`ExecError::NoSteps`]; [`ExecError::UnknownBuffer`].
    pub fn in_place(
        &mut self,
        spec: BufferSpec,
        over: BufferId,
        steps: RangeInclusive<u64>,
    ) -> Result<BufferId> {
        let steps = half_open(&spec, &steps)?;
        let other = self.get(over)?;
        let refused = |why| Err(not_over(&spec, other, why));
        check_arena(&spec, other)?;
        if other.layout.offset() > 0 {
            return refused("it does not begin where its buffer does");
        }
        let end = self.ends[other.memory];
        if end > steps.start.saturating_add(1) {
            return refused("its bytes are used later");
        }
        if end < steps.start {
            return refused("its time is over before");
        }
        if spec.bytes() > self.buffers[other.memory].spec.bytes() {
            return Err(too_small(&spec, spec.bytes(), &self.buffers[other.memory]));
        }
        let memory = other.memory;
        Ok(self.declare(spec, steps, Some(memory)))
    }

    /// Plans the places of all buffers.
    ///
    /// # Errors
    ///
    /// [`ExecError::Problem`] if their bytes exceed 64 bits; [`ExecError::TooLarge`].
    pub fn finish(self) -> Result<ExecutionPlan> {
        ExecutionPlan::new(self.buffers, &self.ids, self.budget)
    }

    /// Adds a buffer in memory of its own, or in that of the buffer with this number.
    pub(crate) fn declare(&mut self, spec: BufferSpec, steps: Range<u64>, memory: Option<usize>) -> BufferId {
        let id = self.buffers.len();
        let layout = Layout::contiguous(spec.shape.clone());
        self.add(Declared { spec, layout, steps, memory: memory.unwrap_or(id) })
    }

    fn add(&mut self, buffer: Declared) -> BufferId {
        let before = self.ids.last().map(|id| id.declarations).unwrap_or_default();
        let id = BufferId { index: self.buffers.len(), declarations: before.and(&buffer.spec) };
        self.ends.push(buffer.steps.end);
        extend(&mut self.ends, &buffer);
        self.buffers.push(buffer);
        self.ids.push(id);
        id
    }

    /// Returns the number of buffers.
    pub(crate) fn len(&self) -> usize {
        self.buffers.len()
    }

    /// Removes all buffers but the first `count`.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.buffers.truncate(count);
        self.ids.truncate(count);
        self.ends = self.buffers.iter().map(|buffer| buffer.steps.end).collect();
        self.buffers.iter().for_each(|buffer| extend(&mut self.ends, buffer));
    }

    /// Checks that a buffer can be in the memory of another one.
    pub(crate) fn check_over(&self, spec: &BufferSpec, memory: usize) -> Result<()> {
        check_arena(spec, &self.buffers[memory])
    }

    pub(crate) fn device_of(&self, id: BufferId) -> Device {
        self.buffers[id.index].spec.device
    }

    fn get(&self, id: BufferId) -> Result<&Declared> {
        let unknown = ExecError::UnknownBuffer { buffer: id.index, buffers: self.buffers.len() };
        let buffer = self.buffers.get(id.index).ok_or(unknown)?;
        if self.ids[id.index] == id { Ok(buffer) } else { Err(other_plan(id, &buffer.spec.name)) }
    }
}

/// Extends the time of a buffer's memory to the end of that buffer.
fn extend(ends: &mut [u64], buffer: &Declared) {
    let end = &mut ends[buffer.memory];
    *end = buffer.steps.end.max(*end);
}

fn half_open(spec: &BufferSpec, steps: &RangeInclusive<u64>) -> Result<Range<u64>> {
    match steps.end().checked_add(1) {
        Some(end) if !steps.is_empty() && end != NEVER => Ok(*steps.start()..end),
        _ => Err(ExecError::NoSteps { name: spec.name.clone() }),
    }
}

fn check_arena(spec: &BufferSpec, other: &Declared) -> Result<()> {
    match (other.spec.device, other.spec.kind) == (spec.device, spec.kind) {
        true => Ok(()),
        false => Err(not_over(spec, other, "it is in another arena")),
    }
}

/// Returns the error of an id of another plan, of whose number there is the buffer `name` in this one.
pub(crate) fn other_plan(id: BufferId, name: &str) -> ExecError {
    ExecError::OtherPlan { buffer: id.index, name: name.into() }
}

fn too_small(spec: &BufferSpec, needed: usize, of: &Declared) -> ExecError {
    ExecError::TooSmall { name: spec.name.clone(), needed, of: of.spec.name.clone(), bytes: of.spec.bytes() }
}

fn not_over(spec: &BufferSpec, other: &Declared, why: &'static str) -> ExecError {
    ExecError::NotOver { name: spec.name.clone(), over: other.spec.name.clone(), why }
}
