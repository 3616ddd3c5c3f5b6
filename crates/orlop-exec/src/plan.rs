//! [`ExecutionPlan`]: buffers by device, kind and persistence, each set planned into one arena.

use crate::builder::other_plan;
use crate::{BufferId, BufferSpec, ExecError, Execution, Result};
use orlop_context::Context;
use orlop_core::{Alignment, Device, Layout, MemoryKind};
use orlop_plan::{Buffer, Plan, Planner, Problem, ProblemBuilder, SearchBudget};
use orlop_tensor::planned::{PlannedPart, PlannedTensor};
use std::ops::Range;
use std::sync::Arc;

/// The end of steps that never end.
pub(crate) const NEVER: u64 = u64::MAX;

/// A declared buffer.
#[derive(Debug, Clone)]
pub(crate) struct Declared {
    pub(crate) spec: BufferSpec,
    /// In elements from the start of the memory.
    pub(crate) layout: Layout,
    /// The end excluded; may be [`NEVER`].
    pub(crate) steps: Range<u64>,
    /// The first buffer in the same memory.
    pub(crate) memory: usize,
}

impl Declared {
    /// Returns the end of the buffer in its memory, in bytes.
    pub(crate) fn end(&self) -> usize {
        let itemsize = self.spec.dtype.size();
        self.layout.offset().saturating_mul(itemsize).saturating_add(self.spec.bytes())
    }

    fn is_persistent(&self) -> bool {
        self.steps.end == NEVER
    }
}

/// The places of all buffers of a model. Cloning it costs one reference count.
#[derive(Debug, Clone)]
pub struct ExecutionPlan {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    buffers: Vec<Placed>,
    arenas: Vec<ArenaPlan>,
    steps: u64,
}

/// A buffer with its place.
#[derive(Debug)]
pub(crate) struct Placed {
    id: BufferId,
    pub(crate) name: Box<str>,
    pub(crate) steps: Range<u64>,
    pub(crate) arena: usize,
    /// The number of its tensor in the arena.
    pub(crate) tensor: usize,
    /// Its first byte in its memory: not 0 for some views.
    pub(crate) first: usize,
    /// Its bytes in the arena.
    bytes: Range<u64>,
}

impl Placed {
    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> usize {
        usize::try_from(self.bytes.end - self.bytes.start).unwrap_or(usize::MAX)
    }
}

/// The plan of one arena: all buffers on a device, of a kind, that are temporary or that are persistent.
#[derive(Debug)]
pub struct ArenaPlan {
    device: Device,
    kind: MemoryKind,
    is_persistent: bool,
    problem: Problem,
    plan: Plan,
    pub(crate) align: Alignment,
    pub(crate) bytes: usize,
    pub(crate) parts: Vec<PlannedPart>,
    /// The buffers of its tensors.
    pub(crate) tensors: Vec<BufferId>,
    /// What its tensors are. With the parts, this determines the contents of a persistent arena.
    specs: Vec<BufferSpec>,
}

impl ArenaPlan {
    /// Returns the device.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns the memory kind.
    #[must_use]
    pub fn memory_kind(&self) -> MemoryKind {
        self.kind
    }

    /// Returns `true` for the arena of buffers that keep their bytes from run to run.
    #[must_use]
    pub fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    /// Returns the alignment that its memory needs.
    #[must_use]
    pub fn align(&self) -> Alignment {
        self.align
    }

    /// Returns the bytes that the arena reserves.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the planning problem: one buffer for all that share bytes at once.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Returns the plan, with its lower bound and verdict.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns `true` if an arena of the other plan can be used as it is, with its contents.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.is_persistent && other.is_persistent && self.specs == other.specs && self.parts == other.parts
    }

    fn belongs_to(&self, buffer: &Declared) -> bool {
        self.is_for(buffer.spec.device, buffer.spec.kind, buffer.is_persistent())
    }

    /// Returns `true` if it holds such buffers.
    pub(crate) fn is_for(&self, device: Device, kind: MemoryKind, is_persistent: bool) -> bool {
        (self.device, self.kind, self.is_persistent) == (device, kind, is_persistent)
    }
}

impl ExecutionPlan {
    pub(crate) fn new(
        declared: Vec<Declared>,
        ids: &[BufferId],
        budget: Option<SearchBudget>,
    ) -> Result<Self> {
        let mut keys: Vec<(Device, MemoryKind, bool)> = Vec::new();
        for buffer in &declared {
            let key = (buffer.spec.device, buffer.spec.kind, buffer.is_persistent());
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let mut places = vec![None; declared.len()];
        let mut arenas = Vec::with_capacity(keys.len());
        for (index, key) in keys.into_iter().enumerate() {
            arenas.push(plan_arena((&declared, ids), key, index, budget, &mut places)?);
        }
        let ends = declared.iter().filter(|buffer| !buffer.is_persistent()).map(|buffer| buffer.steps.end);
        let steps = ends.max().unwrap_or(0);
        let places = places.into_iter().map(Option::unwrap_or_default);
        let placed = declared.into_iter().zip(ids).zip(places).map(|((buffer, &id), place)| {
            let Place { arena, tensor, bytes } = place;
            let first = buffer.layout.offset().saturating_mul(buffer.spec.dtype.size());
            Placed { id, name: buffer.spec.name, steps: buffer.steps, arena, tensor, first, bytes }
        });
        Ok(Self { inner: Arc::new(Inner { buffers: placed.collect(), arenas, steps }) })
    }

    /// Reserves the arenas from a context, one block each of exactly the planned bytes, and makes the
    /// tensors.
    ///
    /// # Errors
    ///
    /// [`ExecError::Alloc`] if there is no memory for an arena: those that were reserved are released.
    pub fn prepare(&self, context: &Context) -> Result<Execution> {
        Execution::new(self, context)
    }

    /// Returns the arenas, in the order in which their first buffers were declared.
    #[must_use]
    pub fn arenas(&self) -> &[ArenaPlan] {
        &self.inner.arenas
    }

    /// Returns the bytes of all temporary arenas; `usize::MAX` if they are more than that.
    #[must_use]
    pub fn workspace_bytes(&self) -> usize {
        let temporary = self.arenas().iter().filter(|arena| !arena.is_persistent);
        temporary.map(|arena| arena.bytes).fold(0, usize::saturating_add)
    }

    /// Returns the number of steps: the first is 0, the last is the last that uses a temporary buffer.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.inner.steps
    }

    /// Returns the number of buffers, views included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.buffers.len()
    }

    /// Returns `true` if there are no buffers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.buffers.is_empty()
    }

    /// Returns the arena of a buffer, and its bytes there. `None` for a buffer of another plan.
    #[must_use]
    pub fn place(&self, buffer: BufferId) -> Option<(&ArenaPlan, Range<u64>)> {
        let placed = self.placed(buffer).ok()?;
        Some((self.inner.arenas.get(placed.arena)?, placed.bytes.clone()))
    }

    /// Returns the name of a buffer. `None` for a buffer of another plan.
    #[must_use]
    pub fn name(&self, buffer: BufferId) -> Option<&str> {
        self.placed(buffer).ok().map(|placed| &*placed.name)
    }

    #[inline]
    pub(crate) fn placed(&self, buffer: BufferId) -> Result<&Placed> {
        match self.inner.buffers.get(buffer.index) {
            Some(placed) if placed.id == buffer => Ok(placed),
            Some(placed) => Err(other_plan(buffer, &placed.name)),
            None => Err(ExecError::UnknownBuffer { buffer: buffer.index, buffers: self.len() }),
        }
    }
}

/// Where a buffer is.
#[derive(Debug, Clone, Default)]
struct Place {
    arena: usize,
    tensor: usize,
    bytes: Range<u64>,
}

/// Plans the buffers on a device, of a kind, and notes their places.
fn plan_arena(
    (declared, ids): (&[Declared], &[BufferId]),
    (device, kind, is_persistent): (Device, MemoryKind, bool),
    index: usize,
    budget: Option<SearchBudget>,
    places: &mut [Option<Place>],
) -> Result<ArenaPlan> {
    let mut arena = ArenaPlan {
        device,
        kind,
        is_persistent,
        problem: Problem::default(),
        plan: Plan::new(&Problem::default(), Vec::new())?,
        align: Alignment::PLANNED,
        bytes: 0,
        parts: Vec::new(),
        tensors: Vec::new(),
        specs: Vec::new(),
    };
    // The buffers in each memory, which is named by the first of them.
    let mut memories: Vec<(usize, Vec<usize>)> = Vec::new();
    let mut memory_of = vec![usize::MAX; declared.len()];
    for (number, buffer) in declared.iter().enumerate() {
        if !arena.belongs_to(buffer) {
            continue;
        }
        let memory = &mut memory_of[buffer.memory];
        if *memory == usize::MAX {
            *memory = memories.len();
            memories.push((number, Vec::new()));
        }
        memories[*memory].1.push(number);
    }
    let mut problem = ProblemBuilder::new();
    for (first, members) in &memories {
        let members = members.iter().map(|&number| &declared[number]);
        let start = members.clone().map(|buffer| buffer.steps.start).min().unwrap_or(0);
        let end = members.clone().map(|buffer| buffer.steps.end).max().unwrap_or(NEVER);
        let bytes = members.clone().map(Declared::end).max().unwrap_or(0);
        let aligns = members.map(|buffer| buffer.spec.align.max(buffer.spec.dtype.alignment()));
        let align = aligns.max().unwrap_or(Alignment::PLANNED);
        arena.align = arena.align.max(align);
        let buffer = Buffer::new(start..end, bytes as u64).aligned(align);
        problem.push_named(&declared[*first].spec.name, buffer)?;
    }
    arena.problem = problem.finish();
    // What is live all the time leaves nothing to search.
    let default =
        if is_persistent { SearchBudget::default() } else { SearchBudget::short(arena.problem.len()) };
    arena.plan = Planner::new().budget(budget.unwrap_or(default)).plan(&arena.problem);
    let too_large = ExecError::TooLarge { bytes: arena.plan.height() };
    arena.bytes = usize::try_from(arena.plan.height()).map_err(|_| too_large)?;
    for ((_, members), (&offset, buffer)) in
        memories.iter().zip(arena.plan.offsets().iter().zip(arena.problem.buffers()))
    {
        let mut tensors = Vec::with_capacity(members.len());
        for &number in members {
            let Declared { spec, layout, steps, .. } = &declared[number];
            let start = offset + (layout.offset() * spec.dtype.size()) as u64;
            let bytes = start..start + spec.bytes() as u64;
            places[number] = Some(Place { arena: index, tensor: arena.tensors.len(), bytes });
            arena.tensors.push(ids[number]);
            arena.specs.push(spec.clone());
            let tensor = PlannedTensor::new(layout.clone(), spec.dtype, steps.clone());
            tensors.push(tensor.named(&spec.name));
        }
        // Both are below the height, which fits.
        let (offset, bytes) = (usize::try_from(offset), usize::try_from(buffer.size));
        let (Ok(offset), Ok(bytes)) = (offset, bytes) else {
            return Err(ExecError::TooLarge { bytes: arena.plan.height() });
        };
        arena.parts.push(PlannedPart::new(offset, bytes, tensors));
    }
    Ok(arena)
}
