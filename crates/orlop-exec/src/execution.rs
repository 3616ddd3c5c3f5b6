//! [`Execution`]: the arenas of a plan, and the steps of its runs.

use crate::{ArenaPlan, BufferId, ExecError, ExecutionPlan, Result};
use orlop_alloc::{Block, Request};
use orlop_context::Context;
use orlop_tensor::Tensor;
use orlop_tensor::planned::{PlannedError, PlannedMemory, PlannedPart, StrayWrite};

/// The arenas of a plan with its tensors: what one run at a time needs.
#[derive(Debug)]
pub struct Execution {
    plan: ExecutionPlan,
    context: Context,
    /// By number of the plan's arena.
    arenas: Vec<PlannedMemory>,
    now: u64,
    /// Whether stray writes are searched for, if that was set.
    sanitize: Option<bool>,
}

/// What [`Execution::rebind`] did with the arenas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rebound {
    /// Arenas that were divided anew, in the memory they had.
    pub reused: usize,
    /// Arenas that got new memory.
    pub reserved: usize,
    /// Persistent arenas that are the same in both plans, with their contents.
    pub kept: usize,
}

/// A step of a run: lends the tensors that are live in it.
#[derive(Debug)]
pub struct StepGuard<'a> {
    execution: &'a Execution,
}

impl Execution {
    pub(crate) fn new(plan: &ExecutionPlan, context: &Context) -> Result<Self> {
        let arenas = plan.arenas().iter().map(|arena| reserve(arena, context));
        let arenas = arenas.collect::<Result<_>>()?;
        Ok(Self { plan: plan.clone(), context: context.clone(), arenas, now: 0, sanitize: None })
    }

    /// Creates an execution in blocks that fit the arenas.
    pub(crate) fn in_blocks(plan: &ExecutionPlan, context: &Context, blocks: Vec<Block>) -> Result<Self> {
        let arenas = plan.arenas().iter().zip(blocks).map(|(arena, block)| divide(arena, block, context));
        let arenas = arenas.collect::<Result<_>>()?;
        Ok(Self { plan: plan.clone(), context: context.clone(), arenas, now: 0, sanitize: None })
    }

    /// Begins a run: step 0 is next. All temporary buffers of the run before end.
    ///
    /// # Errors
    ///
    /// [`ExecError::InUse`] if one of them is still in use: the run then goes on, and the call can be
    /// repeated.
    pub fn begin(&mut self) -> Result<()> {
        match PlannedMemory::restart_all(&mut self.arenas) {
            Ok(()) => self.now = 0,
            Err((arena, error)) => return Err(self.explain(arena, error)),
        }
        Ok(())
    }

    /// Goes on to a step. The buffers whose last step is before it end: clones and views of them that are
    /// still held stop working, with [`Error::Unbound`](orlop_tensor::Error::Unbound), which names the buffer
    /// and the step. If an output in place goes on in the bytes of a buffer, they stop working when it ends,
    /// like its own. Steps can be left out, or repeated.
    ///
    /// # Errors
    ///
    /// [`ExecError::InUse`] if such a buffer is being accessed, or its address is in use. The present step
    /// then goes on, with all its buffers (clones of them may be revoked already), and the call can be
    /// repeated. [`ExecError::Backwards`].
    #[inline]
    pub fn step(&mut self, step: u64) -> Result<StepGuard<'_>> {
        if step < self.now {
            return Err(ExecError::Backwards { step, now: self.now });
        }
        if let Err((arena, error)) = PlannedMemory::advance_all(&mut self.arenas, step) {
            return Err(self.explain(arena, error));
        }
        self.now = step;
        Ok(StepGuard { execution: self })
    }

    /// Begins a run and calls `f` with the number and the guard of each step.
    ///
    /// # Errors
    ///
    /// The first error of `f`, or one of [`begin`](Self::begin) and [`step`](Self::step).
    pub fn run<E: From<ExecError>>(
        &mut self,
        mut f: impl FnMut(u64, &StepGuard<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.begin()?;
        for step in 0..self.plan.steps() {
            f(step, &self.step(step)?)?;
        }
        Ok(())
    }

    /// Returns a tensor that is live now: a persistent one always, a temporary one after
    /// [`step`](Self::step) until the next call of it.
    ///
    /// # Errors
    ///
    /// [`ExecError::NotLive`], [`ExecError::UnknownBuffer`]
    #[inline]
    pub fn tensor(&self, buffer: BufferId) -> Result<&Tensor> {
        let placed = self.plan.placed(buffer)?;
        match self.arenas[placed.arena].tensor(placed.tensor) {
            Ok(tensor) => Ok(tensor),
            Err(error) => Err(self.explain(placed.arena, error)),
        }
    }

    /// Gives the memory of a live buffer to an existing tensor, whose storage is unbound
    /// ([`Tensor::unbound`], [`Storage::unbind`](orlop_tensor::Storage::unbind)): it and its clones and views
    /// have the bytes of the buffer, and lose them when the buffer ends, and the last output in place over
    /// it. The tensors that are lent for these buffers have the same storage.
    ///
    /// ```
    /// use orlop_context::Context;
    /// use orlop_core::DType;
    /// use orlop_exec::{BufferSpec, PlanBuilder};
    /// use orlop_tensor::{Error, Tensor};
    ///
    /// let mut plan = PlanBuilder::new();
    /// let buffer = plan.buffer(BufferSpec::new("hidden", [64], DType::F32)?, 0..=0)?;
    /// let mut execution = plan.finish()?.prepare(&Context::new())?;
    /// let mine = Tensor::unbound([64], DType::F32)?;
    /// execution.step(0)?;
    /// execution.bind(buffer, &mine)?;
    /// mine.fill_(1.0)?;
    /// assert_eq!(execution.tensor(buffer)?.to_vec::<f32>()?, [1.0; 64]);
    /// execution.step(1)?;
    /// assert!(matches!(mine.to_vec::<f32>(), Err(Error::Unbound { .. })));
    /// # Ok::<(), orlop_exec::ExecError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ExecError::NotLive`], [`ExecError::UnknownBuffer`]; [`ExecError::TooSmall`] if the tensor needs more
    /// bytes than the buffer has; [`ExecError::BoundInside`]; [`ExecError::NotBound`] if the tensor's storage
    /// is bound or on another device, or if the buffer is in use. Both are unchanged then.
    pub fn bind(&mut self, buffer: BufferId, tensor: &Tensor) -> Result<()> {
        let placed = self.plan.placed(buffer)?;
        let name = &placed.name;
        if placed.first > 0 {
            return Err(ExecError::BoundInside { name: name.clone() });
        }
        let needed = tensor.layout().byte_range(tensor.itemsize())?.end;
        let bytes = placed.len();
        if needed > bytes {
            let (of, name) = (name.clone(), "the tensor".into());
            return Err(ExecError::TooSmall { name, needed, of, bytes });
        }
        let (arena, tensor_in_arena, name) = (placed.arena, placed.tensor, name.clone());
        match self.arenas[arena].bind(tensor_in_arena, tensor.storage()?) {
            Ok(()) => Ok(()),
            Err(PlannedError::InUse { source, .. }) => Err(ExecError::NotBound { name, source }),
            Err(error) => Err(self.explain(arena, error)),
        }
    }

    /// Goes over to another plan, such as one for other shapes. An arena that is large enough is divided
    /// anew; others get new memory. Persistent arenas with the same buffers and views keep their contents;
    /// the bytes of all other buffers are arbitrary afterwards. The next run begins.
    ///
    /// # Errors
    ///
    /// [`ExecError::Alloc`] if there is no memory; [`ExecError::InUse`] if a buffer is in use. The present
    /// plan stays valid; its run is over.
    pub fn rebind(&mut self, plan: &ExecutionPlan) -> Result<Rebound> {
        let mut rebound = Rebound::default();
        let mut sources = Vec::with_capacity(plan.arenas().len());
        for arena in plan.arenas() {
            let old = self
                .plan
                .arenas()
                .iter()
                .position(|old| old.is_for(arena.device(), arena.memory_kind(), arena.is_persistent()));
            sources.push(match old {
                Some(old) if arena.is_same(&self.plan.arenas()[old]) => Source::Kept(old),
                Some(old) if self.has_room(old, arena) => Source::Divided(old),
                _ => Source::New(reserve(arena, &self.context)?),
            });
        }
        self.begin()?;
        self.divide(&sources, plan)?;
        let mut old: Vec<_> = std::mem::take(&mut self.arenas).into_iter().map(Some).collect();
        for source in sources {
            let (memory, count) = match source {
                Source::Kept(arena) => (old[arena].take(), &mut rebound.kept),
                Source::Divided(arena) => (old[arena].take(), &mut rebound.reused),
                Source::New(memory) => (Some(memory), &mut rebound.reserved),
            };
            *count += 1;
            self.arenas.extend(memory);
        }
        self.plan = plan.clone();
        if let Some(on) = self.sanitize {
            // As far as it is possible: the call that set it returned what is not.
            drop(self.sanitize(on));
        }
        Ok(rebound)
    }

    /// Divides the arenas that are used again: all of them, or none.
    fn divide(&mut self, sources: &[Source], plan: &ExecutionPlan) -> Result<()> {
        let mut parts_of: Vec<Option<&[PlannedPart]>> = vec![None; self.arenas.len()];
        for (source, arena) in sources.iter().zip(plan.arenas()) {
            if let Source::Divided(old) = *source {
                parts_of[old] = Some(&arena.parts);
            }
        }
        let arenas = self.arenas.iter_mut().zip(&parts_of).enumerate();
        let (numbers, mut divided): (Vec<_>, Vec<_>) =
            arenas.filter_map(|(number, (arena, parts))| Some((number, (arena, (*parts)?)))).unzip();
        let divided = PlannedMemory::divide_all(&mut divided);
        divided.map_err(|(index, error)| self.explain(numbers[index], error))
    }

    fn has_room(&self, old: usize, arena: &ArenaPlan) -> bool {
        let memory = &self.arenas[old];
        memory.capacity() >= arena.bytes() && memory.align() >= arena.align
    }

    /// Starts or stops the search for stray writes by kernels, which misses one kind: a write into a buffer
    /// between the time when a step first lends it and the end of that step, if the same step also writes
    /// that buffer. What it finds: see [`PlannedMemory::sanitize`]. It is on in builds with debug assertions.
    ///
    /// A write is reported by the next step, once, as [`ExecError::StrayWrite`], with the names of the buffer
    /// whose bytes were changed and of the one that probably did it, or has the bytes next.
    ///
    /// # Errors
    ///
    /// [`ExecError::NotSanitized`] for the first arena where the search cannot be started, such as one on a
    /// device. It is on in all others then.
    pub fn sanitize(&mut self, on: bool) -> Result<()> {
        self.sanitize = Some(on);
        let mut refused = Ok(());
        for arena in &mut self.arenas {
            if let Err(source) = arena.sanitize(on) {
                let (device, kind) = (arena.device(), arena.memory_kind());
                refused = refused.and(Err(ExecError::NotSanitized { device, kind, source }));
            }
        }
        refused
    }

    /// Returns the plan.
    #[must_use]
    pub fn plan(&self) -> &ExecutionPlan {
        &self.plan
    }

    /// Returns the present step.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Returns the bytes of all its arenas.
    #[must_use]
    pub fn reserved_bytes(&self) -> usize {
        self.arenas.iter().map(PlannedMemory::capacity).sum()
    }

    /// Names the buffer that an error is about.
    #[cold]
    fn explain(&self, arena: usize, error: PlannedError) -> ExecError {
        let placed = |tensor: usize| {
            let buffer = self.plan.arenas().get(arena)?.tensors.get(tensor)?;
            self.plan.placed(*buffer).ok()
        };
        match error {
            PlannedError::NotLive { tensor, lifetime, now } => match placed(tensor) {
                Some(buffer) => {
                    let steps = buffer.steps.start..=buffer.steps.end.saturating_sub(1);
                    ExecError::NotLive { name: buffer.name.clone(), steps, step: now }
                }
                None => ExecError::Planned(PlannedError::NotLive { tensor, lifetime, now }),
            },
            PlannedError::InUse { tensor, source } => match placed(tensor) {
                Some(buffer) => ExecError::InUse { name: buffer.name.clone(), source },
                None => ExecError::Planned(PlannedError::InUse { tensor, source }),
            },
            PlannedError::StrayWrite { byte, step, written, is_live, other } => {
                let name = |tensor| Some(format!("{:?}", placed(tensor?)?.name));
                let (written, other) = (name(written), name(other));
                ExecError::StrayWrite(StrayWrite { byte, step, written, is_live, other })
            }
            PlannedError::Backwards { step, now } => ExecError::Backwards { step, now },
            other => ExecError::Planned(other),
        }
    }
}

/// Where the memory of an arena comes from.
enum Source {
    Kept(usize),
    Divided(usize),
    New(PlannedMemory),
}

fn reserve(arena: &ArenaPlan, context: &Context) -> Result<PlannedMemory> {
    let mut request = Request::new(arena.bytes()).kind(arena.memory_kind()).align(arena.align);
    if !arena.device().is_cpu() {
        request = request.stream(context.stream(arena.device()));
    }
    let block = context.allocate(arena.device(), &request)?;
    divide(arena, block, context)
}

fn divide(arena: &ArenaPlan, block: Block, context: &Context) -> Result<PlannedMemory> {
    context.scope(|| PlannedMemory::new(block, &arena.parts)).map_err(ExecError::Planned)
}

impl<'a> StepGuard<'a> {
    /// Returns a tensor that is live in this step.
    ///
    /// # Errors
    ///
    /// [`ExecError::NotLive`], [`ExecError::UnknownBuffer`]
    #[inline]
    pub fn tensor(&self, buffer: BufferId) -> Result<&'a Tensor> {
        self.execution.tensor(buffer)
    }

    /// Returns the number of the step.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.execution.now
    }
}
