//! The memory that each step of a program uses, and its time on the host and on a device.
//!
//! A step is declared by the program: a forward pass, a layer, a batch. Everything that happens in the
//! context during the step, on any thread, counts for it; steps may be nested, and then it counts for each.
//! The peak of a step starts at the bytes live at its start, as if the allocators' peaks were reset there,
//! but separately for every step.

use super::device_time::{DeviceClock, DeviceSpan};
use super::shapes::{self, ShapeRecording, ShapeTotals};
use super::step::{StepMemory, StepStats};
use super::step_table::StepTable;
use super::unread_spans::{UnreadSpans, measured};
use crate::Context;
use crate::context::sum_bytes;
use crate::observe::Subscription;
use orlop_alloc::{AllocatorRef, Event, Observer, engine_support::RawBlock};
use orlop_core::MemoryKind;
use orlop_host::os_thread_id;
use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// The number of steps at which the times of the older half are read: each unread one keeps events.
const UNREAD_SPANS: usize = 1024;

/// A profile of steps: see [the module](super) for an example.
#[derive(Debug)]
pub struct MemorySteps {
    recorder: Arc<Recorder>,
    recording: Option<ShapeRecording>,
    clock: Option<Arc<dyn DeviceClock>>,
    subscription: Subscription,
}

/// A running step; it ends when this is dropped.
#[derive(Debug)]
#[must_use = "the step ends when this is dropped"]
pub struct MemoryStepGuard<'a> {
    recorder: &'a Recorder,
    order: u64,
    span: Option<Box<dyn DeviceSpan>>,
}

impl MemorySteps {
    /// Starts a profile of all allocators of a context. The live bytes are read now and updated from then on:
    /// exact if no thread uses the allocators at this moment.
    #[must_use]
    pub fn on(context: &Context) -> Self {
        Self::subscribed(|recorder| Subscription::on(context, recorder))
    }

    /// Starts a profile of one allocator.
    #[must_use]
    pub fn on_allocator(allocator: &AllocatorRef) -> Self {
        Self::subscribed(|recorder| Subscription::on_allocator(allocator, recorder))
    }

    fn subscribed(subscribe: impl FnOnce(Arc<dyn Observer>) -> Subscription) -> Self {
        let recorder = Arc::new(Recorder::default());
        let subscription = subscribe(Arc::clone(&recorder) as Arc<dyn Observer>);
        recorder.state().live = LiveBytes::of(subscription.live());
        Self { recorder, recording: None, clock: None, subscription }
    }

    /// Records the shapes of the tensors that memory is allocated for, from now on. Code that creates tensors
    /// states them: `orlop-tensor` does where it creates or resizes one, other code can with
    /// [`with_shape`](super::with_shape). A storage that is allocated before the tensors over it has no
    /// shape, nor do the deferred copies of lazy clones.
    ///
    /// ```
    /// use orlop_context::profile::{MemorySteps, with_shape};
    /// use orlop_alloc::Request;
    /// use orlop_context::Context;
    /// use orlop_core::{DType, Device, Shape};
    ///
    /// let (context, shape) = (Context::new(), Shape::new(&[64, 32])?);
    /// let steps = MemorySteps::on(&context).record_shapes();
    /// let step = steps.step("forward");
    /// for _ in 0..2 {
    ///     with_shape(&shape, DType::F16, || context.allocate(Device::CPU, &Request::new(4096)))?;
    /// }
    /// let forward = step.finish();
    /// assert_eq!((forward.shapes[0].allocations, forward.shapes[0].allocated_bytes), (2, 8192));
    /// println!("{}", steps.table().by_shape(10));
    /// # Ok::<(), orlop_alloc::Error>(())
    /// ```
    #[must_use]
    pub fn record_shapes(mut self) -> Self {
        self.recorder.state().with_shapes = true;
        self.recording.get_or_insert_with(ShapeRecording::new);
        self
    }

    /// Measures the time of each step on a device too, from now on. Reading it waits for the device: for the
    /// work of the 512 oldest steps when 1024 are unread. Where it cannot be measured, such as in a capture,
    /// a step has none.
    ///
    /// Threads that read the profile wait for each other's measurements. What the clock calls does not, such
    /// as a subscriber of its reports: there a step has no time while another thread waits for its work.
    #[must_use]
    pub fn time_on(mut self, clock: impl DeviceClock + 'static) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Starts a step.
    ///
    /// ```
    /// use orlop_context::profile::MemorySteps;
    /// use orlop_alloc::Request;
    /// use orlop_context::Context;
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
    pub fn step(&self, name: impl Into<Cow<'static, str>>) -> MemoryStepGuard<'_> {
        let order = self.recorder.begin(name.into(), Location::caller());
        let span = self.clock.as_ref().and_then(|clock| measured(clock.begin()));
        MemoryStepGuard { recorder: &self.recorder, order, span }
    }

    /// Returns the finished steps, in the order in which they started. Waits for their work on the device, if
    /// its time is measured.
    pub fn finished(&self) -> Vec<StepMemory> {
        // Not those that finish meanwhile: their times are unread.
        let count = self.recorder.state().finished.len();
        self.recorder.wait_for_device_times();
        let mut finished: Vec<_> = self.recorder.state().finished.iter().take(count).cloned().collect();
        finished.sort_unstable_by_key(|step| step.order);
        finished
    }

    /// Returns the finished steps as a table, to sort, cut and print.
    pub fn table(&self) -> StepTable {
        StepTable::new(self.finished())
    }

    /// Forgets the finished steps.
    pub fn clear(&self) {
        let mut state = self.recorder.state();
        state.finished.clear();
        let spans = self.recorder.spans.take();
        drop((state, spans));
    }
}

/// Prints the table, and the total and free memory of the devices.
impl fmt::Display for MemorySteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table().fmt(f)?;
        for (device, memory) in self.subscription.memory() {
            write!(f, "\n{device}: {memory}")?;
        }
        Ok(())
    }
}

impl MemoryStepGuard<'_> {
    /// Ends the step and returns its statistics. Waits for its work on the device, if its time is measured.
    pub fn finish(mut self) -> StepMemory {
        self.end();
        self.recorder.wait_for_device_times();
        let state = self.recorder.state();
        let step = state.finished.iter().rev().find(|step| step.order == self.order).cloned();
        drop(state);
        // It is always there: only this guard ends the step.
        step.unwrap_or_else(|| StepMemory::new(Cow::Borrowed(""), Location::caller(), self.order))
    }

    /// Ends the step. Does nothing if it has ended.
    fn end(&mut self) {
        let now = self.recorder.now();
        let span = self.span.take().and_then(|mut span| measured(span.end()).map(|()| span));
        let mut state = self.recorder.state();
        state.end(self.order, now);
        if let Some(span) = span {
            // With the state locked: a finished step has a time, or an unread span.
            self.recorder.spans.push(self.order, span);
        }
        drop(state);
        if self.recorder.spans.len() >= UNREAD_SPANS {
            self.recorder.read_device_times(UNREAD_SPANS / 2);
        }
    }
}

impl Drop for MemoryStepGuard<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

impl StepMemory {
    /// Iterates over the statistics of all memory and of each kind, with the live bytes of each.
    fn stats(&mut self, live: &LiveBytes) -> impl Iterator<Item = (&mut StepStats, u64)> {
        let kinds = self.kinds.iter_mut().zip(live.kinds);
        std::iter::once((&mut self.all, live.all)).chain(kinds)
    }
}

/// Live bytes, by kind and in total.
#[derive(Debug, Clone, Copy, Default)]
struct LiveBytes {
    all: u64,
    kinds: [u64; MemoryKind::COUNT],
}

impl LiveBytes {
    fn of(kinds: [u64; MemoryKind::COUNT]) -> Self {
        Self { all: sum_bytes(kinds), kinds }
    }

    fn add(&mut self, kind: MemoryKind, bytes: u64) {
        self.all = self.all.saturating_add(bytes);
        let live = &mut self.kinds[kind.index()];
        *live = live.saturating_add(bytes);
    }
}

/// The state behind one lock: a peak depends on the order of events. The queue of spans has its own, which is
/// taken last.
#[derive(Debug)]
struct Recorder {
    start: Instant,
    state: Mutex<StepState>,
    spans: UnreadSpans,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { start: Instant::now(), state: Mutex::default(), spans: UnreadSpans::default() }
    }
}

#[derive(Debug, Default)]
struct StepState {
    live: LiveBytes,
    begun: u64,
    with_shapes: bool,
    open: Vec<OpenStep>,
    finished: Vec<StepMemory>,
}

#[derive(Debug)]
struct OpenStep {
    thread: ThreadId,
    step: StepMemory,
    shapes: ShapeTotals,
}

impl Recorder {
    fn state(&self) -> MutexGuard<'_, StepState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time since the start of the profile.
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Reads the times of the ended spans but the last `kept`. Another thread can still read some of them.
    fn read_device_times(&self, kept: usize) {
        self.spans.read(kept, |order, time| {
            let mut state = self.state();
            if let Some(step) = state.finished.iter_mut().rev().find(|step| step.order == order) {
                step.device_time = time;
            }
        });
    }

    /// Waits for the times of all ended spans, on whatever thread they are read.
    fn wait_for_device_times(&self) {
        self.read_device_times(0);
        self.spans.wait_for_readers();
    }

    fn begin(&self, name: Cow<'static, str>, at: &'static Location<'static>) -> u64 {
        let mut state = self.state();
        // Under the lock, so that waiting for it is no time of the step.
        let now = self.now();
        state.begin(name, at, now)
    }
}

impl StepState {
    fn begin(&mut self, name: Cow<'static, str>, at: &'static Location<'static>, now: Duration) -> u64 {
        let (order, thread) = (self.begun, thread::current().id());
        self.begun += 1;
        let mut step = StepMemory::new(name, at, order);
        (step.begun, step.thread) = (now, os_thread_id());
        step.depth = self.open.iter().filter(|other| other.thread == thread).count();
        for (stats, live) in step.stats(&self.live) {
            (stats.live_before, stats.peak_bytes) = (live, live);
        }
        self.open.push(OpenStep { thread, step, shapes: ShapeTotals::default() });
        order
    }

    /// Ends a step. Does nothing if it has ended.
    fn end(&mut self, order: u64, now: Duration) {
        let Some(place) = self.open.iter().position(|open| open.step.order == order) else { return };
        let OpenStep { mut step, shapes, .. } = self.open.remove(place);
        step.shapes = shapes.sorted();
        step.host_time = now.saturating_sub(step.begun);
        for (stats, live) in step.stats(&self.live) {
            stats.live_after = live;
        }
        self.finished.push(step);
    }

    /// Adds `bytes` live bytes: of a new block, or, with `allocations: 0`, of one that grew.
    fn note_more(&mut self, allocations: u64, block: &RawBlock, bytes: usize) {
        let (kind, bytes) = (block.kind, bytes as u64);
        let shape = if self.with_shapes { shapes::of_block(block) } else { None };
        self.live.add(kind, bytes);
        for OpenStep { step, shapes, .. } in &mut self.open {
            if let Some(shape) = &shape {
                shapes.add(shape.clone(), allocations, bytes);
            }
            for (stats, live) in both(step, kind, &self.live) {
                stats.allocations += allocations;
                stats.allocated_bytes = stats.allocated_bytes.saturating_add(bytes);
                stats.peak_bytes = stats.peak_bytes.max(live);
            }
        }
    }

    fn note_freed(&mut self, kind: MemoryKind, granted: usize) {
        let bytes = granted as u64;
        // Below zero only for a block whose allocation was not seen.
        self.live.all = self.live.all.saturating_sub(bytes);
        let live = &mut self.live.kinds[kind.index()];
        *live = live.saturating_sub(bytes);
        for OpenStep { step, .. } in &mut self.open {
            for (stats, _) in both(step, kind, &self.live) {
                stats.frees += 1;
                stats.freed_bytes = stats.freed_bytes.saturating_add(bytes);
            }
        }
    }

    /// Takes back what `note_freed` counted: the block stays live.
    fn note_refused(&mut self, kind: MemoryKind, granted: usize) {
        let bytes = granted as u64;
        self.live.add(kind, bytes);
        for OpenStep { step, .. } in &mut self.open {
            for (stats, _) in both(step, kind, &self.live) {
                stats.frees = stats.frees.saturating_sub(1);
                stats.freed_bytes = stats.freed_bytes.saturating_sub(bytes);
            }
        }
    }
}

/// Returns the statistics of all memory and of one kind, with the live bytes of each.
fn both<'a>(step: &'a mut StepMemory, kind: MemoryKind, live: &LiveBytes) -> [(&'a mut StepStats, u64); 2] {
    let index = kind.index();
    [(&mut step.all, live.all), (&mut step.kinds[index], live.kinds[index])]
}

impl Observer for Recorder {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Allocated { block, .. } => self.state().note_more(1, block, block.granted),
            Event::Grown { block, granted, .. } => {
                self.state().note_more(0, block, block.granted.saturating_sub(*granted));
            }
            Event::Freed { block, .. } => self.state().note_freed(block.kind, block.granted),
            Event::RawFreed { found, .. } => self.state().note_freed(found.kind, found.granted),
            Event::FreeRefused { block: Some(found), .. } => {
                self.state().note_refused(found.kind, found.granted);
            }
            _ => {}
        }
    }
}
