//! The recorder: an observer that records requests, times and call sites of allocators.
//!
//! A [`Recorder`] is an [`Observer`]. While it is set it notes every event in a ring of the thread on which
//! the event happens: six words, no lock, nothing shared. While it is not set nobody asks, and an allocator
//! is as fast as without any of this.
//!
//! * **Memory is bounded.** A ring has room for so many events ([`RecorderBuilder::capacity`]); then the
//!   oldest are overwritten. So what led to a failure is there when it is looked at, like in a flight
//!   recorder. What was overwritten before anybody read it is counted ([`Recorder::lost`]).
//! * **Long runs go to a file.** [`Recorder::drain`] writes what is new since the last call to a
//!   [`BinaryWriter`]; call it often enough that no ring runs over.
//! * **Nobody waits.** Readers and writers do not: see the module `ring`. Threads have rings by
//!   [slots](orlop_sync::thread_slot); those beyond the thirty-second share some, behind a lock each.
//!   Annotations, backtraces and changes of regions are rare, and take a lock of the recorder's.
//! * **No recursion.** Blocks that the recorder itself takes from a watched allocator are not noted, but
//!   counted as lost. Regions are noted that an allocator gains for them: others' blocks will lie there, too.
//!
//! Threads' events are merged by the time stamps, which are of the processor's counter where that counts
//! alike on all processors (see [`EventClock`]), and of the system's clock elsewhere. A block's return is
//! stamped before the block can be handed out again, and its allocation after, so that they come in order.
//!
//! Regions are noted when the allocator's lock is held, and told a little later; the stamp is of when they
//! were noted. So a region comes before all blocks in it and goes after them, whichever threads they are of.
//! Regions that were there when the recording began come first, as gained or mapped then. Where many events
//! were overwritten, regions are not forgotten: a history begins with them, and a file that is drained to is
//! told of what was gained and lost meanwhile (see the module `regions`).
//!
//! A request that fails is noted each time an allocator fails to serve it, also when a
//! [`Context`](orlop_context::Context) then finds memory elsewhere.
//!
//! ```
//! use orlop_alloc::{Request, Tag};
//! use orlop_context::Context;
//! use orlop_core::Device;
//! use orlop_trace::history::EventAction;
//! use orlop_trace::recorder::Recorder;
//! use std::sync::Arc;
//!
//! let recorder = Recorder::new();
//! let context = Context::new();
//! context.add_observer(recorder.observer());
//! recorder.annotate("step 1");
//! drop(context.allocate(Device::CPU, &Request::new(1000).tag(Tag::new("activations")))?);
//! context.remove_observer(&recorder.observer());
//!
//! let history = recorder.history();
//! let events = &history.devices[0].events;
//! assert_eq!(history.sites.name(events[0].text), "step 1");
//! assert_eq!(events[1].action, EventAction::Mapped);
//! assert_eq!((events[2].action, events[2].bytes), (EventAction::Allocate, 1000));
//! assert_eq!(history.sites.name(events[2].text), "activations");
//! assert_eq!(events[3].action, EventAction::FreeRequested);
//! # Ok::<(), orlop_alloc::Error>(())
//! ```

mod backtraces;
mod event_codec;
mod names;
mod record;
mod region_table;
mod regions;
#[doc(hidden)]
pub mod ring;
mod rings;
#[cfg(test)]
mod tests;
mod thread;

pub use self::backtraces::Backtraces;

use self::names::{Lookup, NameTables};
use self::regions::RegionRecorder;
use self::rings::Rings;
use self::thread::RecordingGuard;
use crate::Result;
use crate::formats::EventCollector;
use crate::formats::binary::BinaryWriter;
use crate::history::{EventAction, History};
use orlop_alloc::{Event as Told, EventClock, Observer};
use orlop_core::{Device, MemoryKind};
use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Notes what allocators do. Clones are handles to the same recorder.
#[derive(Clone)]
pub struct Recorder {
    inner: Arc<RecorderInner>,
}

/// Choices for a [`Recorder`].
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct RecorderBuilder {
    capacity: usize,
    backtraces: Backtraces,
}

/// What a [`Recorder::drain`] wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Drained {
    /// Events.
    pub events: u64,
    /// Events that had been overwritten before.
    pub lost: u64,
}

struct RecorderInner {
    clock: EventClock,
    /// What the clock said in the beginning.
    zero: u64,
    rings: Rings,
    regions: RegionRecorder,
    backtraces: Backtraces,
    allocations: AtomicU64,
    /// Events of threads that were busy recording.
    unseen: AtomicU64,
    names: Mutex<NameTables>,
    file: Mutex<DrainedFile>,
    overwritten: AtomicU64,
}

/// The progress of the drained file.
#[derive(Debug, Default)]
struct DrainedFile {
    /// Names that are in it.
    lookup: Lookup,
    /// Where each ring was left.
    rings: Vec<u64>,
}

impl Default for RecorderBuilder {
    fn default() -> Self {
        Self { capacity: 1 << 16, backtraces: Backtraces::NONE }
    }
}

impl RecorderBuilder {
    /// Room for so many events of each thread, rounded up to a power of two: 48 bytes each. 65,536 without
    /// this.
    ///
    /// And for as many changes of the regions of all allocators together, some 64 bytes each as they come.
    /// Which regions are held is known beyond that.
    pub fn capacity(mut self, events: usize) -> Self {
        self.capacity = events;
        self
    }

    /// Which allocations to take a backtrace of.
    pub fn backtraces(mut self, backtraces: Backtraces) -> Self {
        self.backtraces = backtraces;
        self
    }

    /// The recorder. It takes memory when a thread's first event is noted.
    #[must_use]
    pub fn build(self) -> Recorder {
        let clock = EventClock::get().clone();
        let zero = clock.ticks();
        let inner = RecorderInner {
            clock,
            zero,
            rings: Rings::new(self.capacity),
            regions: RegionRecorder::new(self.capacity),
            backtraces: self.backtraces,
            allocations: AtomicU64::new(0),
            unseen: AtomicU64::new(0),
            names: Mutex::default(),
            file: Mutex::default(),
            overwritten: AtomicU64::new(0),
        };
        Recorder { inner: Arc::new(inner) }
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// With room for 65,536 events of each thread (3 MiB) and as many changes of regions, and no backtraces.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Choices.
    pub fn builder() -> RecorderBuilder {
        RecorderBuilder::default()
    }

    /// Returns the recorder as an observer, to be added to contexts and allocators. It is always the same one:
    /// adding it twice changes nothing, and it can be removed.
    #[must_use]
    pub fn observer(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.inner) as Arc<dyn Observer>
    }

    /// Notes a text of the program's, such as the number of a step, among the host's events.
    pub fn annotate(&self, text: &str) {
        self.annotate_on(Device::CPU, text);
    }

    /// The same, among a device's events.
    pub fn annotate_on(&self, device: Device, text: &str) {
        self.inner.mark(text, device, 0, MemoryKind::Default);
    }

    /// What is in the rings: the latest events of each thread, by device and in order of time.
    #[must_use]
    pub fn history(&self) -> History {
        let _busy = RecordingGuard::begin();
        let inner = &*self.inner;
        let mut blocks = Vec::new();
        // Regions afterwards, so that none is missed of a block that is there.
        inner.rings.read(&mut Vec::new(), &mut blocks);
        let (start, regions) = inner.regions.read();
        let mut lookup = Lookup::default();
        let mut gather = EventCollector::default();
        for (device, segment) in start {
            gather.device(device).start.push(segment);
        }
        for (device, event) in inner.named(blocks, regions, &mut lookup) {
            gather.device(device).events.push(event);
        }
        History { devices: gather.finish(), sites: lookup.sites, ..History::default() }
    }

    /// Writes what was noted since the last call. Always to the same writer: what a file's events name is
    /// written once.
    ///
    /// A file that several calls write is only [nearly](crate::formats::binary::EventOrder::Nearly) in order
    /// of time.
    ///
    /// ```
    /// use orlop_trace::formats::binary::{BinaryWriter, EventOrder, read_binary};
    /// use orlop_trace::recorder::Recorder;
    ///
    /// let recorder = Recorder::new();
    /// let mut file = BinaryWriter::new(Vec::new(), EventOrder::Nearly)?;
    /// for step in 1..=3 {
    ///     recorder.annotate(&format!("step {step}"));
    ///     recorder.drain(&mut file)?;
    /// }
    /// let history = read_binary(&file.finish()?[..])?;
    /// assert_eq!(history.devices[0].events.len(), 3);
    /// # Ok::<(), orlop_trace::TraceError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`BinaryWriter::event`]. What was not written then is lost, and counted so.
    pub fn drain<W: Write>(&self, writer: &mut BinaryWriter<W>) -> Result<Drained> {
        let _busy = RecordingGuard::begin();
        let inner = &*self.inner;
        let DrainedFile { lookup, rings } = &mut *locked(&inner.file);
        let mut blocks = Vec::new();
        let lost = inner.rings.read(rings, &mut blocks);
        let (regions, lost_regions) = inner.regions.drain();
        let lost = lost + lost_regions;
        let events = inner.named(blocks, regions, lookup);
        let (mut written, mut failed) = (0, Ok(()));
        for (device, event) in &events {
            failed = writer.event(*device, event, &lookup.sites);
            if failed.is_err() {
                break;
            }
            written += 1;
        }
        let lost = lost + (events.len() as u64 - written);
        inner.overwritten.fetch_add(lost, Ordering::Relaxed);
        failed.map(|()| Drained { events: written, lost })
    }

    /// How many events were never read and cannot be any more: overwritten before a [`Recorder::drain`] or,
    /// if there was none, before now; and those of memory that the recorder took itself.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let inner = &*self.inner;
        let file = locked(&inner.file);
        let waiting = inner.rings.overwritten(&file.rings) + inner.regions.lost();
        waiting + inner.overwritten.load(Ordering::Relaxed) + inner.unseen.load(Ordering::Relaxed)
    }
}

impl Observer for RecorderInner {
    #[inline]
    fn observe(&self, event: &Told<'_>) {
        match event {
            Told::Allocated { block, .. } => self.block(block, EventAction::Allocate),
            Told::Freed { block, .. } => self.block(block, EventAction::FreeRequested),
            Told::RawFreed { address, found, .. } => self.raw_freed(*address, found),
            other => self.rare(other),
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("rings", &self.inner.rings).finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
