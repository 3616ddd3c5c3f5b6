//! What each step of a program needed of memory.
//!
//! A step is whatever the program says: a forward pass, a layer, a batch. What happens in the context meanwhile is the
//! step's, on whichever thread; steps may lie in one another, and then count for both. The peak of a step begins with what
//! is alive at its start, as if the allocators' peaks were reset there, but for every step by itself.

use super::observers::{Listening, Observers};
use super::shapes::{self, ShapeFigures, ShapeTotals, TensorShape, Wanted};
use super::step_table::StepTable;
use crate::{Context, Event, Observer};
use orlop_core::MemoryKind;
use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// What happened during a step, to all memory or to one kind. Bytes are granted bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct StepFigures {
    /// Blocks handed out.
    pub allocations: u64,
    /// Blocks returned.
    pub frees: u64,
    /// Bytes handed out.
    pub allocated_bytes: u64,
    /// Bytes returned.
    pub freed_bytes: u64,
    /// Bytes alive when it began.
    pub live_before: u64,
    /// Bytes alive when it ended.
    pub live_after: u64,
    /// The most bytes alive at a time. Of all kinds: of their sum.
    pub peak_bytes: u64,
}

/// A step that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepMemory {
    /// What the program calls it.
    pub name: Cow<'static, str>,
    /// Where it begins in the program.
    pub at: &'static Location<'static>,
    /// Steps of the same thread that it lies in.
    pub depth: usize,
    /// How often it was made: more than once in a table where [like steps are one](StepTable::grouped).
    pub times: u64,
    /// All memory.
    pub all: StepFigures,
    /// By kind, at [`MemoryKind::index`].
    pub kinds: [StepFigures; MemoryKind::COUNT],
    /// For tensors of which shapes, by bytes, the largest first: with [`MemorySteps::record_shapes`]. Memory that is for no
    /// tensor is not among them.
    pub shapes: Vec<ShapeFigures>,
    /// Which step of the profile, from zero, in the order in which they began.
    pub order: u64,
}

/// A profile of steps: see [the module](super) for an example.
#[derive(Debug)]
pub struct MemorySteps {
    recorder: Arc<Recorder>,
    wanted: Option<Wanted>,
    _listening: Listening,
    observers: Observers,
}

/// A step that is going on; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the step ends when this is dropped"]
pub struct Step<'a> {
    recorder: &'a Recorder,
    order: u64,
}

impl MemorySteps {
    /// Over all allocators of a context, in the place of its observer (see [the module](super)). To have other profiles
    /// at the same time: [`MemorySteps::with`].
    #[must_use]
    pub fn on(context: &Context) -> Self {
        Self::with(&Observers::on(context))
    }

    /// Over whatever these observers watch. What is alive is asked now, and followed from here on: exact if nobody
    /// allocates just now.
    #[must_use]
    pub fn with(observers: &Observers) -> Self {
        let recorder = Arc::new(Recorder::default());
        let listening = observers.add(Arc::clone(&recorder) as Arc<dyn Observer>);
        let live = Live::of(observers.seen().live);
        recorder.state().live = live;
        Self { recorder, wanted: None, _listening: listening, observers: observers.clone() }
    }

    /// Notes the shapes of the tensors that memory is for, from here on. Who makes tensors says them: `orlop-tensor` does
    /// where it makes or resizes one, others can by [`of_shape`](super::of_shape). Memory that is a storage's first, which
    /// tensors are made over later, has no shape, nor have copies that a lazy clone put off.
    ///
    /// ```
    /// use orlop_alloc::profile::{MemorySteps, of_shape};
    /// use orlop_alloc::{Context, Request};
    /// use orlop_core::{DType, Device, Shape};
    ///
    /// let (context, shape) = (Context::new(), Shape::new(&[64, 32])?);
    /// let steps = MemorySteps::on(&context).record_shapes();
    /// let step = steps.step("forward");
    /// for _ in 0..2 {
    ///     of_shape(&shape, DType::F16, || context.allocate(Device::CPU, &Request::new(4096)))?;
    /// }
    /// let forward = step.finish();
    /// assert_eq!((forward.shapes[0].allocations, forward.shapes[0].allocated_bytes), (2, 8192));
    /// println!("{}", steps.table().by_shape(10));
    /// # Ok::<(), orlop_alloc::Error>(())
    /// ```
    #[must_use]
    pub fn record_shapes(mut self) -> Self {
        self.recorder.state().with_shapes = true;
        self.wanted.get_or_insert_with(Wanted::new);
        self
    }

    /// Begins a step.
    ///
    /// ```
    /// use orlop_alloc::profile::MemorySteps;
    /// use orlop_alloc::{Context, Request};
    /// use orlop_core::{Device, MemoryKind};
    ///
    /// let context = Context::new();
    /// let steps = MemorySteps::on(&context);
    /// let step = steps.step("load");
    /// let request = Request::new(1 << 20).kind(MemoryKind::Persistent);
    /// let weights = context.allocate(Device::CPU, &request)?;
    /// let load = step.finish();
    /// assert_eq!((load.all.allocations, load.all.frees), (1, 0));
    /// assert_eq!(load.kind(MemoryKind::Persistent).peak_bytes, weights.capacity() as u64);
    /// # Ok::<(), orlop_alloc::Error>(())
    /// ```
    #[track_caller]
    pub fn step(&self, name: impl Into<Cow<'static, str>>) -> Step<'_> {
        let order = self.recorder.state().begin(name.into(), Location::caller());
        Step { recorder: &self.recorder, order }
    }

    /// The steps that are over, in the order in which they began.
    pub fn finished(&self) -> Vec<StepMemory> {
        let mut finished = self.recorder.state().finished.clone();
        finished.sort_unstable_by_key(|step| step.order);
        finished
    }

    /// The same as a table, to be sorted, cut and printed.
    pub fn table(&self) -> StepTable {
        StepTable::new(self.finished())
    }

    /// Forgets the steps that are over.
    pub fn clear(&self) {
        self.recorder.state().finished.clear();
    }

    /// Blocks that came or went unseen: see [`Observers::missed`].
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.observers.missed()
    }
}

/// The table, and what memory the devices have and what of it is free now.
impl fmt::Display for MemorySteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table().fmt(f)?;
        for (device, memory) in self.observers.memory() {
            write!(f, "\n{device}: {memory}")?;
        }
        Ok(())
    }
}

impl Step<'_> {
    /// Ends the step, and says what it needed.
    pub fn finish(self) -> StepMemory {
        let mut state = self.recorder.state();
        state.end(self.order);
        let step = state.finished.last().cloned();
        drop(state);
        // It is there: this handle is the only one that ends the step.
        step.unwrap_or_else(|| StepMemory::new(Cow::Borrowed(""), Location::caller(), self.order))
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.recorder.state().end(self.order);
    }
}

impl StepMemory {
    fn new(name: Cow<'static, str>, at: &'static Location<'static>, order: u64) -> Self {
        let (all, kinds) = (StepFigures::default(), [StepFigures::default(); MemoryKind::COUNT]);
        Self { name, at, depth: 0, times: 1, all, kinds, shapes: Vec::new(), order }
    }

    /// What happened to one kind.
    #[must_use]
    pub fn kind(&self, kind: MemoryKind) -> &StepFigures {
        &self.kinds[kind.index()]
    }

    /// All memory and each kind, with the bytes alive of it.
    fn figures(&mut self, live: &Live) -> impl Iterator<Item = (&mut StepFigures, u64)> {
        let kinds = self.kinds.iter_mut().zip(live.kinds);
        std::iter::once((&mut self.all, live.all)).chain(kinds)
    }
}

impl StepFigures {
    /// Bytes that are alive after it and were not before; negative if it left less than there was.
    #[must_use]
    pub fn growth(&self) -> i64 {
        // Bytes of one address space: the difference fits.
        self.live_after.wrapping_sub(self.live_before).cast_signed()
    }

    /// Whether nothing happened, and nothing was there.
    pub(super) fn is_idle(&self) -> bool {
        *self == Self::default()
    }

    /// Takes in a later one of the same step.
    pub(super) fn merge(&mut self, later: &Self) {
        self.allocations += later.allocations;
        self.frees += later.frees;
        self.allocated_bytes += later.allocated_bytes;
        self.freed_bytes += later.freed_bytes;
        self.live_after = later.live_after;
        self.peak_bytes = self.peak_bytes.max(later.peak_bytes);
    }
}

/// What is alive, by kind and in all.
#[derive(Debug, Clone, Copy, Default)]
struct Live {
    all: u64,
    kinds: [u64; MemoryKind::COUNT],
}

impl Live {
    fn of(kinds: [u64; MemoryKind::COUNT]) -> Self {
        Self { all: kinds.iter().sum(), kinds }
    }
}

/// One lock for all: what peaks mean is an order of events.
#[derive(Debug, Default)]
struct Recorder {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    live: Live,
    begun: u64,
    with_shapes: bool,
    going_on: Vec<GoingOn>,
    finished: Vec<StepMemory>,
}

#[derive(Debug)]
struct GoingOn {
    thread: ThreadId,
    step: StepMemory,
    shapes: ShapeTotals,
}

impl Recorder {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn begin(&mut self, name: Cow<'static, str>, at: &'static Location<'static>) -> u64 {
        let (order, thread) = (self.begun, thread::current().id());
        self.begun += 1;
        let mut step = StepMemory::new(name, at, order);
        step.depth = self.going_on.iter().filter(|other| other.thread == thread).count();
        for (figures, live) in step.figures(&self.live) {
            (figures.live_before, figures.peak_bytes) = (live, live);
        }
        self.going_on.push(GoingOn { thread, step, shapes: ShapeTotals::default() });
        order
    }

    /// Once for each step: later calls find nothing.
    fn end(&mut self, order: u64) {
        let Some(place) = self.going_on.iter().position(|going| going.step.order == order) else { return };
        let GoingOn { mut step, shapes, .. } = self.going_on.remove(place);
        step.shapes = shapes.sorted();
        for (figures, live) in step.figures(&self.live) {
            figures.live_after = live;
        }
        self.finished.push(step);
    }

    fn came(&mut self, kind: MemoryKind, granted: usize, shape: Option<&TensorShape>) {
        let bytes = as_u64(granted);
        self.live.all += bytes;
        self.live.kinds[kind.index()] += bytes;
        for GoingOn { step, shapes, .. } in &mut self.going_on {
            if let Some(shape) = shape {
                shapes.add(shape.clone(), 1, bytes);
            }
            for (figures, live) in both(step, kind, &self.live) {
                figures.allocations += 1;
                figures.allocated_bytes += bytes;
                figures.peak_bytes = figures.peak_bytes.max(live);
            }
        }
    }

    fn went(&mut self, kind: MemoryKind, granted: usize) {
        let bytes = as_u64(granted);
        // Below zero only if something was missed.
        self.live.all = self.live.all.saturating_sub(bytes);
        let live = &mut self.live.kinds[kind.index()];
        *live = live.saturating_sub(bytes);
        for GoingOn { step, .. } in &mut self.going_on {
            for (figures, _) in both(step, kind, &self.live) {
                figures.frees += 1;
                figures.freed_bytes += bytes;
            }
        }
    }
}

/// The figures of all memory and of the kind, with the bytes alive.
fn both<'a>(step: &'a mut StepMemory, kind: MemoryKind, live: &Live) -> [(&'a mut StepFigures, u64); 2] {
    let index = kind.index();
    [(&mut step.all, live.all), (&mut step.kinds[index], live.kinds[index])]
}

impl Observer for Recorder {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Allocated { block, .. } => {
                let mut state = self.state();
                let shape = if state.with_shapes { shapes::of_block(block) } else { None };
                state.came(block.kind, block.granted, shape.as_ref());
            }
            Event::Freed { block, .. } => self.state().went(block.kind, block.granted),
            Event::RawFreed { found, .. } => self.state().went(found.kind, found.granted),
            _ => {}
        }
    }
}

fn as_u64(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}
