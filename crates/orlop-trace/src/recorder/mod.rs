//! The recorder: an observer that records requests, times and call sites of allocators.
//!
//! A [`Recorder`] is added to contexts and allocators as an observer ([`Recorder::observer`]). It writes
//! every event to a ring of the current thread: six words, no lock, nothing shared. An allocator without an
//! observer has no overhead.
//!
//! * **Memory is bounded.** A ring has room for a fixed number of events ([`RecorderBuilder::capacity`]);
//!   then the oldest are overwritten, as in a flight recorder, and the events before a failure are present.
//!   Events that were overwritten before they were read are counted ([`Recorder::lost`]).
//! * **Long runs are written to a file**: [`Recorder::to_file`] does it all. [`Recorder::drain`] writes the
//!   events since the last call to a [`BinaryWriter`]; call it often enough that no ring overflows.
//! * **Readers and writers do not wait for each other**: see the module `ring`. Threads have rings by
//!   [slots](orlop_sync::thread_slot); threads beyond the thirty-second share some, each behind a lock.
//!   Annotations, backtraces and region events are rare, and take a lock of the recorder.
//! * **No recursion.** Blocks that the recorder itself allocates from an observed allocator are not recorded,
//!   but counted ([`DrainReport::own`]). Regions that are reserved for them are recorded: other blocks will be in them, too.
//!
//! The events of threads are merged by their time stamps: the processor's counter if it is synchronized
//! between processors (see [`EventClock`]), else the system's clock. A free is stamped before the block can
//! be allocated again, and an allocation after that, so that they are in order.
//!
//! Region events are stamped while the allocator holds its lock, and delivered slightly later. By its stamp,
//! a region is reserved before all blocks in it and released after they are freed, whichever threads allocate
//! and free them. Regions that exist when the recording begins come first, as reserved or mapped at that
//! time. When many events are overwritten, regions are not forgotten: a history begins with them, and a
//! drained file gets the differences (see the module `regions`).
//!
//! A refused request is recorded each time it is refused, with what refused it (the device, a limit, a
//! budget) and whether it was served in the end ([`RefusalDetail`](crate::history::RefusalDetail)). Only a
//! request that failed for lack of memory is an [`EventAction::OutOfMemory`]. Mapped files and other external
//! memory are [`EventAction::ExternalAdopted`]: no allocator served them.
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
mod drained;
mod event_codec;
mod names;
mod record;
mod recording_file;
mod refusals;
mod region_table;
mod regions;
#[doc(hidden)]
pub mod ring;
mod rings;
#[cfg(test)]
mod tests;
mod thread;

pub use self::backtraces::Backtraces;
pub use self::drained::DrainReport;
pub use self::recording_file::RecordingFile;

use self::drained::UnwrittenEvents;
use self::event_codec::DecodedEvent;
use self::names::{NameLookup, NameTables};
use self::refusals::RefusalRecorder;
use self::regions::RegionRecorder;
use self::rings::Rings;
use self::thread::RecordingGuard;
use crate::formats::EventCollector;
use crate::formats::binary::BinaryWriter;
use crate::history::{EventAction, History};
use crate::{Result, TraceError};
use orlop_alloc::{Event, Observer, engine_support::EventClock};
use orlop_core::{Device, MemoryKind};
use orlop_sync::ColdMutex;
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Records the events of allocators. Clones are handles to the same recorder.
#[derive(Clone)]
pub struct Recorder {
    inner: Arc<RecorderInner>,
}

/// Options for a [`Recorder`].
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct RecorderBuilder {
    capacity: usize,
    backtraces: Backtraces,
    max_file_bytes: u64,
}

struct RecorderInner {
    clock: EventClock,
    /// The clock when the recorder was created.
    zero: u64,
    rings: Rings,
    regions: RegionRecorder,
    refusals: RefusalRecorder,
    backtraces: Backtraces,
    allocations: AtomicU64,
    /// The number of events of the recorder's own blocks since the last drain.
    own: AtomicU64,
    names: Mutex<NameTables>,
    /// The names that are in the drained file. Locked during a drain, while the writer runs.
    file: ColdMutex<NameLookup>,
    /// The next record of each ring that the drained file gets.
    drained: Mutex<Vec<u64>>,
    /// The events that were lost before now.
    lost: AtomicU64,
}

impl Default for RecorderBuilder {
    fn default() -> Self {
        Self { capacity: 1 << 16, backtraces: Backtraces::NONE, max_file_bytes: 1 << 30 }
    }
}

/// The most events in a ring.
const MAX_CAPACITY: usize = 1 << 24;

impl RecorderBuilder {
    /// Sets the number of events in the ring of each thread, rounded up to a power of two, and at most 2^24.
    /// An event has 48 bytes; the default is 65,536 events.
    ///
    /// It is also the number of region events of all allocators together, which take about 64 bytes each. The
    /// set of reserved regions is known beyond that.
    pub fn capacity(mut self, events: usize) -> Self {
        self.capacity = events.min(MAX_CAPACITY);
        self
    }

    /// Sets which allocations are recorded with a backtrace.
    pub fn backtraces(mut self, backtraces: Backtraces) -> Self {
        self.backtraces = backtraces;
        self
    }

    /// Sets the size in bytes at which the file of [`RecorderBuilder::to_file`] takes no more events; it is
    /// exceeded by less than what one drain writes. The default is 1 GiB, a hundred million events.
    pub fn max_file_bytes(mut self, bytes: u64) -> Self {
        self.max_file_bytes = bytes;
        self
    }

    /// Creates the recorder, and writes what it records to a file: see [`Recorder::to_file`].
    ///
    /// # Errors
    ///
    /// Those of [`Recorder::to_file`].
    pub fn to_file(self, path: impl AsRef<Path>) -> Result<RecordingFile> {
        RecordingFile::create(self, path.as_ref())
    }

    /// Creates the recorder. A ring is allocated at the first event of its thread.
    #[must_use]
    pub fn build(self) -> Recorder {
        let clock = EventClock::get().clone();
        let zero = clock.ticks();
        let inner = RecorderInner {
            clock,
            zero,
            rings: Rings::new(self.capacity),
            regions: RegionRecorder::new(self.capacity),
            refusals: RefusalRecorder::new(self.capacity),
            backtraces: self.backtraces,
            allocations: AtomicU64::new(0),
            own: AtomicU64::new(0),
            names: Mutex::default(),
            file: ColdMutex::default(),
            drained: Mutex::default(),
            lost: AtomicU64::new(0),
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
    /// Creates a recorder with room for 65,536 events of each thread (3 MiB) and as many region events,
    /// without backtraces.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder with options.
    pub fn builder() -> RecorderBuilder {
        RecorderBuilder::default()
    }

    /// Records into a file until the result is dropped. The file can be read whenever the program ends, also
    /// by a panic or a kill; it is bounded ([`RecorderBuilder::max_file_bytes`]) and says how many events
    /// were lost ([`HistoryWarning::EventsLost`](crate::history::HistoryWarning::EventsLost)). An existing
    /// file is replaced. [`History::read`] and the `orlop` program open it.
    ///
    /// ```
    /// use orlop_alloc::Request;
    /// use orlop_context::Context;
    /// use orlop_core::Device;
    /// use orlop_trace::history::History;
    /// use orlop_trace::recorder::Recorder;
    ///
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("run.orlop");
    /// let recording = Recorder::to_file(&path)?;
    /// let context = Context::new();
    /// context.add_observer(recording.observer());
    /// drop(context.allocate(Device::CPU, &Request::new(1000))?);
    /// drop(recording);
    ///
    /// assert!(History::read(&path)?.devices[0].events.iter().any(|event| event.bytes == 1000));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`TraceError::Open`], [`TraceError::Write`].
    pub fn to_file(path: impl AsRef<Path>) -> Result<RecordingFile> {
        Self::builder().to_file(path)
    }

    /// Returns the recorder as an observer, to be added to contexts and allocators. It is always the same
    /// one: adding it twice changes nothing, and it can be removed.
    #[must_use]
    pub fn observer(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.inner) as Arc<dyn Observer>
    }

    /// Records a text of the program, such as the number of a step, with the host's events.
    pub fn annotate(&self, text: &str) {
        self.annotate_on(Device::CPU, text);
    }

    /// Records a text of the program with a device's events.
    pub fn annotate_on(&self, device: Device, text: &str) {
        self.inner.mark(text, device, 0, MemoryKind::Default);
    }

    /// Returns the latest events of each thread, by device and in order of time.
    #[must_use]
    pub fn history(&self) -> History {
        let _guard = RecordingGuard::begin();
        let inner = &*self.inner;
        let mut blocks = Vec::new();
        // Regions are read last, so that none is missing of a block that is present.
        inner.rings.read(&mut Vec::new(), &mut blocks);
        let (start, regions) = inner.regions.read();
        let mut lookup = NameLookup::default();
        let mut collector = EventCollector::default();
        for (device, segment) in start {
            collector.device(device).start.push(segment);
        }
        let refusals = inner.refusals.read();
        for decoded in inner.decode(blocks, regions, &refusals, &mut lookup) {
            collector.device(decoded.device).events.push(decoded.event);
            if let Some(refusal) = decoded.refusal {
                collector.refusal(decoded.device, refusal);
            }
        }
        History { devices: collector.finish(), sites: lookup.sites, ..History::default() }
    }

    /// Writes the events since the last call. The writer must be the same each time, because names are
    /// written once.
    ///
    /// A file of several calls is only [nearly](crate::formats::binary::EventOrder::Nearly) in order of time.
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
    /// Those of [`BinaryWriter::event`]. The remaining events are then lost, and counted as such.
    /// [`TraceError::Draining`] inside the writer of a drain.
    pub fn drain<W: Write>(&self, writer: &mut BinaryWriter<W>) -> Result<DrainReport> {
        self.drain_into(writer, false)
    }

    /// Drains; with `is_last`, it does not wait for the outcomes of refused requests.
    fn drain_into<W: Write>(&self, writer: &mut BinaryWriter<W>, is_last: bool) -> Result<DrainReport> {
        let _guard = RecordingGuard::begin();
        let inner = &*self.inner;
        let mut lookup = inner.file.lock_unless_held().ok_or(TraceError::Draining)?;
        let mut blocks = Vec::new();
        let lost = inner.rings.read(&mut locked(&inner.drained), &mut blocks);
        let (regions, lost_regions) = inner.regions.drain();
        let (refusals, lost_refusals) = inner.refusals.drain(is_last);
        let lost = lost + lost_regions + lost_refusals;
        let events = inner.decode(blocks, regions, &refusals, &mut lookup);
        let mut unwritten = UnwrittenEvents { count: lost + events.len() as u64, lost: &inner.lost };
        for DecodedEvent { device, event, refusal } in &events {
            writer.event(*device, event, &lookup.sites)?;
            if let Some(refusal) = refusal {
                writer.refusal(*device, refusal, &lookup.sites)?;
            }
            unwritten.count -= 1;
        }
        Ok(DrainReport { events: events.len() as u64, lost, own: inner.own.swap(0, Ordering::Relaxed) })
    }

    /// Returns the number of events that cannot be read any more: overwritten before a [`Recorder::drain`],
    /// or before now if there was none; and others than blocks that a thread caused while it was recording.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let inner = &*self.inner;
        let pending = inner.rings.overwritten(&locked(&inner.drained))
            + inner.regions.evicted()
            + inner.refusals.evicted();
        pending + inner.lost.load(Ordering::Relaxed)
    }
}

impl Observer for RecorderInner {
    #[inline]
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Allocated { block, .. } if block.is_external() => {
                self.block(block, EventAction::ExternalAdopted);
            }
            Event::Allocated { block, .. } => self.block(block, EventAction::Allocate),
            Event::Freed { block, .. } if block.is_external() => {
                self.block(block, EventAction::ExternalFreed);
            }
            Event::Freed { block, .. } => self.block(block, EventAction::FreeRequested),
            Event::RawFreed { address, found, .. } => self.raw_freed(*address, found),
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
