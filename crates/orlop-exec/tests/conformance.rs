//! The conformance suite for planned memory over both engines: execution plans, and the planned memory of
//! tensors below them, with places of this file.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use orlop_alloc::{Error as AllocError, Request};
use orlop_context::Context;
use orlop_core::{Alignment, Device, Layout, MemoryKind, Shape};
use orlop_exec::{BufferId, BufferSpec, ExecError, Execution, ExecutionPlan, PlanBuilder, Result};
use orlop_plan::{Buffer, Planner, ProblemBuilder, SearchBudget};
use orlop_tensor::Tensor;
use orlop_tensor::planned::{PlannedError, PlannedMemory, PlannedPart, PlannedTensor};
use orlop_testkit::planned::{
    BufferDeclaration, BufferPlace, LendRefusal, PlannedEngine, memory_of, planned_conformance,
};
use std::sync::Mutex;

/// An execution with its buffers, by number of the declaration.
struct Executed {
    execution: Execution,
    buffers: Vec<BufferId>,
}

fn plan(buffers: &[BufferDeclaration]) -> Result<(ExecutionPlan, Vec<BufferId>)> {
    let mut plan = PlanBuilder::new().budget(SearchBudget::iterations(20));
    let mut ids: Vec<BufferId> = Vec::new();
    for (number, buffer) in buffers.iter().enumerate() {
        let spec = BufferSpec::new(&format!("buffer {number}"), [buffer.elements], buffer.dtype)?;
        let spec = spec.kind(buffer.kind).align(buffer.align);
        let steps = buffer.steps.start..=buffer.steps.end - 1;
        ids.push(match buffer.place {
            BufferPlace::Own if buffer.is_persistent() => plan.persistent(spec),
            BufferPlace::Own => plan.buffer(spec, steps)?,
            BufferPlace::View { of, first } => plan.view("view", ids[of], [buffer.elements], first)?,
            BufferPlace::Over { other } => plan.in_place(spec, ids[other], steps)?,
        });
    }
    Ok((plan.finish()?, ids))
}

impl PlannedEngine for Executed {
    fn begin(&mut self) -> Result<(), LendRefusal> {
        self.execution.begin().map_err(refusal)
    }

    fn step(&mut self, step: u64) -> Result<(), LendRefusal> {
        self.execution.step(step).map(drop).map_err(refusal)
    }

    fn tensor(&self, buffer: usize) -> Result<&Tensor, LendRefusal> {
        self.execution.tensor(*self.buffers.get(buffer).ok_or(LendRefusal::Unknown)?).map_err(refusal)
    }

    fn stated_bytes(&self, kind: MemoryKind) -> u64 {
        let arenas = self.execution.plan().arenas().iter();
        arenas.filter(|arena| arena.memory_kind() == kind).map(|arena| arena.bytes() as u64).sum()
    }
}

fn refusal(error: ExecError) -> LendRefusal {
    match error {
        ExecError::NotLive { .. } => LendRefusal::NotLive,
        ExecError::InUse { .. } => LendRefusal::InUse,
        ExecError::Backwards { .. } => LendRefusal::Backwards,
        ExecError::UnknownBuffer { .. } => LendRefusal::Unknown,
        other => LendRefusal::Other(other.to_string().into()),
    }
}

fn prepare(buffers: &[BufferDeclaration], context: &Context) -> Result<Executed, AllocError> {
    let (plan, buffers) = plan(buffers).expect("declarations are valid");
    match plan.prepare(context) {
        Ok(execution) => Ok(Executed { execution, buffers }),
        Err(ExecError::Alloc(error)) => Err(error),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn execution_plans() {
    planned_conformance("execution plans", |buffers, context| Ok(Box::new(prepare(buffers, context)?)));
}

/// One planned memory for each kind, temporary and persistent.
struct Divided {
    memories: Vec<PlannedMemory>,
    /// By number of the declaration: the memory, and the tensor in it.
    places: Vec<(usize, usize)>,
}

/// Divides a block among the buffers of a kind. Returns the buffers of its tensors.
fn divide(
    buffers: &[BufferDeclaration],
    context: &Context,
    kind: MemoryKind,
    is_persistent: bool,
) -> Result<Option<(PlannedMemory, Vec<usize>)>, AllocError> {
    let is_here =
        |&buffer: &usize| (buffers[buffer].kind, buffers[buffer].is_persistent()) == (kind, is_persistent);
    let own = |buffer: &usize| buffers[*buffer].place == BufferPlace::Own;
    let memories: Vec<usize> = (0..buffers.len()).filter(is_here).filter(own).collect();
    if memories.is_empty() {
        return Ok(None);
    }
    let members = |memory: usize| (0..buffers.len()).filter(move |&one| memory_of(buffers, one).0 == memory);
    let mut problem = ProblemBuilder::new();
    let mut align = Alignment::ONE;
    for &memory in &memories {
        let dtypes = members(memory).map(|one| buffers[one].dtype.alignment());
        let needed = dtypes.max().unwrap().max(buffers[memory].align);
        let end = members(memory).map(|one| buffers[one].steps.end).max().unwrap();
        let lifetime = buffers[memory].steps.start..end;
        problem.push(Buffer::new(lifetime, buffers[memory].bytes() as u64).aligned(needed)).unwrap();
        align = align.max(needed);
    }
    let problem = problem.finish();
    let plan = Planner::new().plan(&problem);
    let mut numbers = Vec::new();
    let parts: Vec<PlannedPart> = memories
        .iter()
        .zip(plan.offsets())
        .map(|(&memory, &offset)| {
            let tensors: Vec<PlannedTensor> = members(memory)
                .map(|one| {
                    numbers.push(one);
                    let (buffer, first) = (&buffers[one], memory_of(buffers, one).1);
                    let shape = Shape::new(&[buffer.elements]).unwrap();
                    let strides = Layout::contiguous(shape.clone()).strides().clone();
                    let layout = Layout::new(shape, strides, first / buffer.dtype.size()).unwrap();
                    PlannedTensor::new(layout, buffer.dtype, buffer.steps.clone())
                })
                .collect();
            PlannedPart::new(usize::try_from(offset).unwrap(), buffers[memory].bytes(), tensors)
        })
        .collect();
    let bytes = usize::try_from(plan.height()).unwrap();
    let block = context.allocate(Device::CPU, &Request::new(bytes).kind(kind).align(align))?;
    Ok(Some((PlannedMemory::new(block, &parts).unwrap(), numbers)))
}

impl PlannedEngine for Divided {
    fn begin(&mut self) -> Result<(), LendRefusal> {
        PlannedMemory::restart_all(&mut self.memories).map_err(|(_, error)| planned_refusal(error))
    }

    fn step(&mut self, step: u64) -> Result<(), LendRefusal> {
        PlannedMemory::advance_all(&mut self.memories, step).map_err(|(_, error)| planned_refusal(error))
    }

    fn tensor(&self, buffer: usize) -> Result<&Tensor, LendRefusal> {
        let (memory, tensor) = *self.places.get(buffer).ok_or(LendRefusal::Unknown)?;
        self.memories[memory].tensor(tensor).map_err(planned_refusal)
    }

    fn stated_bytes(&self, kind: MemoryKind) -> u64 {
        let memories = self.memories.iter().filter(|memory| memory.memory_kind() == kind);
        memories.map(|memory| memory.capacity() as u64).sum()
    }
}

fn planned_refusal(error: PlannedError) -> LendRefusal {
    match error {
        PlannedError::NotLive { .. } => LendRefusal::NotLive,
        PlannedError::InUse { .. } => LendRefusal::InUse,
        PlannedError::Backwards { .. } => LendRefusal::Backwards,
        PlannedError::Unknown { .. } => LendRefusal::Unknown,
        other => LendRefusal::Other(other.to_string().into()),
    }
}

#[test]
fn planned_memory() {
    planned_conformance("planned memory", |buffers, context| {
        let mut engine = Divided { memories: Vec::new(), places: vec![(0, usize::MAX); buffers.len()] };
        for kind in MemoryKind::ALL {
            for is_persistent in [false, true] {
                if let Some((memory, numbers)) = divide(buffers, context, kind, is_persistent)? {
                    for (tensor, number) in numbers.into_iter().enumerate() {
                        engine.places[number] = (engine.memories.len(), tensor);
                    }
                    engine.memories.push(memory);
                }
            }
        }
        Ok(Box::new(engine))
    });
}

/// A fault of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EngineFault {
    /// It lends the first buffer for all that are alike.
    Confuses,
    /// It lends buffers in the step after their last.
    IsLate,
    /// It goes on while a buffer is accessed.
    DoesNotWait,
    /// It goes back.
    GoesBack,
    /// It writes to a buffer in each step.
    Scribbles,
    /// It states one byte more.
    Miscounts,
    /// It keeps memory.
    Leaks,
}

struct Faulty {
    engine: Executed,
    fault: EngineFault,
    declared: Vec<BufferDeclaration>,
}

impl PlannedEngine for Faulty {
    fn begin(&mut self) -> Result<(), LendRefusal> {
        self.engine.begin()
    }

    fn step(&mut self, step: u64) -> Result<(), LendRefusal> {
        let moved = match self.fault {
            EngineFault::IsLate => self.engine.step(step.saturating_sub(1)),
            _ => self.engine.step(step),
        };
        if self.fault == EngineFault::Scribbles {
            let last = self.engine.buffers.iter().rev();
            let mut live = last.filter_map(|&buffer| self.engine.execution.tensor(buffer).ok());
            live.next().map(|tensor| tensor.fill_(0.0));
        }
        match (self.fault, moved) {
            (EngineFault::DoesNotWait, Err(LendRefusal::InUse)) => Ok(()),
            (EngineFault::GoesBack, Err(LendRefusal::Backwards)) => Ok(()),
            (_, moved) => moved,
        }
    }

    fn tensor(&self, buffer: usize) -> Result<&Tensor, LendRefusal> {
        let lent = self.engine.tensor(buffer)?;
        let looks = |of: usize| (self.declared[of].dtype, self.declared[of].elements, self.declared[of].kind);
        let mut alike = (0..buffer).filter(|&other| looks(other) == looks(buffer));
        match alike.find_map(|other| self.engine.tensor(other).ok()) {
            Some(other) if self.fault == EngineFault::Confuses => Ok(other),
            _ => Ok(lent),
        }
    }

    fn stated_bytes(&self, kind: MemoryKind) -> u64 {
        self.engine.stated_bytes(kind) + u64::from(self.fault == EngineFault::Miscounts)
    }
}

/// Each fault is found by the part that is for it.
#[test]
#[cfg_attr(miri, ignore = "the parts above are what Miri is for")]
fn faulty_engines_are_found() {
    use EngineFault::{Confuses, DoesNotWait, GoesBack, IsLate, Leaks, Miscounts, Scribbles};
    for (fault, part) in [
        (Confuses, "random plans"),
        (IsLate, "random plans"),
        (DoesNotWait, "accesses hold their buffers"),
        (GoesBack, "misuse"),
        (Scribbles, "random plans"),
        (Miscounts, "random plans"),
        (Leaks, "released in any order"),
    ] {
        let run = || {
            let kept = Mutex::new(Vec::new());
            planned_conformance("faulty", |buffers, context| {
                let engine = prepare(buffers, context)?;
                if fault == Leaks {
                    kept.lock().unwrap().push(context.allocate(Device::CPU, &Request::new(64))?);
                }
                Ok(Box::new(Faulty { engine, fault, declared: buffers.to_vec() }))
            });
        };
        let panic = std::panic::catch_unwind(run).expect_err("it is faulty");
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains(&format!("faulty / {part}: ")), "{fault:?}: {text}");
    }
}
