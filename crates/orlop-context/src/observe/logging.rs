//! A log of allocations and frees that can be switched on while the program runs.
//!
//! A failing or panicking sink is counted; the allocation continues.

use super::{LogAction, LogRecord, LogSwitch};
use orlop_alloc::engine_support::{guarded, trace_guarded};
use orlop_alloc::{AllocationId, AllocatorRef, Event, Observer, Tag, engine_support::RawBlock};
use orlop_core::StreamId;
use orlop_host::os_thread_id;
use orlop_sync::Mutex;
use std::cell::Cell;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

enum Sink {
    Writer(Mutex<Box<dyn Write + Send>>),
    Callback(Box<dyn Fn(&LogRecord<'_>) + Send + Sync>),
}

/// Writes a line for every allocation and free.
///
/// Attached to an allocator ([`Logging::attach`]), it is an observer of it while its switch is on, so that a
/// log that is off costs nothing.
///
/// ```
/// use orlop_alloc::{Allocator, Request, backing::System, engine::Direct};
/// use orlop_context::observe::Logging;
/// use std::sync::Arc;
///
/// let allocator = Direct::new(System::new()).into_ref().erase();
/// let log = Arc::new(Logging::to_writer(std::io::BufWriter::new(std::io::stderr())));
/// log.attach(&allocator);
/// drop(allocator.allocate(&Request::new(100))?);
/// log.switch().set_enabled(false);
/// drop(allocator.allocate(&Request::new(100))?);
/// assert_eq!((log.lines(), log.failures()), (2, 0));
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
pub struct Logging {
    switch: LogSwitch,
    lines: AtomicU64,
    failures: AtomicU64,
    sink: Sink,
}

impl Logging {
    /// Creates a log that writes CSV to `writer`, the header first. Lines are buffered as the writer buffers
    /// them, and flushed by [`Logging::flush`], when the log is switched off, and when it is dropped.
    ///
    /// The writer is locked while it writes. It may use an allocator that is logged; that is not logged then.
    /// Using this log from inside fails and is counted, as are errors and panics of the writer.
    pub fn to_writer(writer: impl Write + Send + 'static) -> Self {
        let log = Self::with_sink(Sink::Writer(Mutex::new(Box::new(writer))));
        log.write(|writer| writeln!(writer, "{}", LogRecord::HEADER));
        log
    }

    /// Creates a log that passes each record to `callback`, on the thread of the event and with no lock held.
    /// Allocations of the callback itself are not logged. A panic is counted.
    pub fn to_callback(callback: impl Fn(&LogRecord<'_>) + Send + Sync + 'static) -> Self {
        Self::with_sink(Sink::Callback(Box::new(callback)))
    }

    fn with_sink(sink: Sink) -> Self {
        let zero = || AtomicU64::new(0);
        Self { switch: LogSwitch::new(), lines: zero(), failures: zero(), sink }
    }

    /// Replaces the switch. To be called before the log is attached.
    #[must_use]
    pub fn switched_by(mut self, switch: LogSwitch) -> Self {
        self.switch = switch;
        self
    }

    /// Returns the switch.
    #[must_use]
    pub fn switch(&self) -> &LogSwitch {
        &self.switch
    }

    /// Logs `allocator` from now on, while the switch is on. Does not keep the allocator alive, which owns
    /// the log until it is detached. Attaching it again changes nothing.
    pub fn attach(self: &Arc<Self>, allocator: &AllocatorRef) {
        self.switch.attach(allocator, self);
    }

    /// Ends the logging of `allocator`, whether the switch is on or off.
    ///
    /// So does the removal of the log from the allocator's list of observers
    /// ([`AllocatorRef::remove_observer`]): the switch does not bring it back.
    pub fn detach(&self, allocator: &AllocatorRef) {
        self.switch.detach(allocator, self);
    }

    /// Returns the number of records that the sink accepted.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.lines.load(Ordering::Relaxed)
    }

    /// Returns the number of failures and panics of the sink. The first is traced too.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Flushes the writer. Returns `false` if that failed, which is counted.
    pub fn flush(&self) -> bool {
        self.write(|writer| writer.flush())
    }

    /// Flushes the writer, unless this thread is inside a log.
    pub(super) fn flush_from_outside(&self) {
        if !LOGGING.get() {
            self.flush();
        }
    }

    /// Runs `action` on the writer, if there is one. Returns `false` if it failed.
    fn write(&self, action: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> bool {
        let Sink::Writer(writer) = &self.sink else { return true };
        let mut outcome = Ok(());
        let calm = guarded(|| outcome = action(&mut **writer.lock())).is_some();
        if !calm || outcome.is_err() {
            self.count_failure(outcome.err());
            return false;
        }
        true
    }

    #[cold]
    fn count_failure(&self, error: Option<io::Error>) {
        if self.failures.fetch_add(1, Ordering::Relaxed) == 0 {
            let error = error.map_or_else(|| "a panic".into(), |error| error.to_string());
            trace_guarded(|| tracing::error!(error, "the allocation log fails"));
        }
    }

    #[cold]
    fn log(&self, record: LogRecord<'_>) {
        let Some(_guard) = Inside::enter() else { return };
        let (thread, time, step) = (os_thread_id(), SystemTime::now(), self.switch.step());
        let record = LogRecord { thread, time, step, ..record };
        let taken = match &self.sink {
            Sink::Writer(_) => {
                // One write per line, so that a writer without a buffer keeps lines whole.
                let line = format!("{record}\n");
                self.write(|writer| writer.write_all(line.as_bytes()))
            }
            Sink::Callback(callback) => {
                let calm = guarded(|| callback(&record)).is_some();
                if !calm {
                    self.count_failure(None);
                }
                calm
            }
        };
        if taken {
            self.lines.fetch_add(1, Ordering::Relaxed);
        }
    }
}

thread_local! {
    static LOGGING: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as inside a log.
struct Inside;

impl Inside {
    fn enter() -> Option<Self> {
        // Not `then_some`: a guard that is made and dropped would end the outer one.
        if LOGGING.replace(true) { None } else { Some(Self) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        LOGGING.set(false);
    }
}

impl<'a> LogRecord<'a> {
    /// Creates a record without the facts that [`Logging::log`] adds.
    fn new(action: LogAction, pointer: usize, bytes: usize, allocator: &'a str) -> Self {
        let (stream, tag, id) = (StreamId::HOST, Tag::NONE, AllocationId::NONE);
        Self { thread: 0, time: UNIX_EPOCH, step: 0, action, pointer, bytes, stream, tag, id, allocator }
    }

    fn of_block(action: LogAction, block: &RawBlock, allocator: &'a str) -> Self {
        let line = Self::new(action, block.address(), block.requested, allocator);
        Self { stream: block.stream, tag: block.tag, id: block.id, ..line }
    }
}

impl Observer for Logging {
    fn watches_blocks(&self) -> bool {
        self.switch.enabled()
    }

    fn observe(&self, event: &Event<'_>) {
        if !self.switch.enabled() {
            return;
        }
        match event {
            Event::Allocated { block, allocator } => {
                self.log(LogRecord::of_block(LogAction::Allocate, block, allocator));
            }
            Event::RequestFailed { request, allocator, .. } => {
                let line = LogRecord::new(LogAction::AllocateFailure, 0, request.bytes, allocator);
                self.log(LogRecord { stream: request.stream, tag: request.tag, ..line });
            }
            // Two lines: no other thread can get the address between them.
            Event::Grown { block, requested, allocator, .. } => {
                let line = LogRecord::of_block(LogAction::Free, block, allocator);
                self.log(LogRecord { bytes: *requested, ..line });
                self.log(LogRecord::of_block(LogAction::Allocate, block, allocator));
            }
            Event::Freed { block, allocator } => {
                self.log(LogRecord::of_block(LogAction::Free, block, allocator));
            }
            Event::RawFreed { address, found, allocator } => {
                let line = LogRecord::new(LogAction::Free, *address, found.requested, allocator);
                self.log(LogRecord { id: found.id, ..line });
            }
            Event::FreeRefused { address, block, allocator, .. } => {
                let bytes = block.map_or(0, |found| found.requested);
                let id = block.map_or(AllocationId::NONE, |found| found.id);
                self.log(LogRecord {
                    id,
                    ..LogRecord::new(LogAction::FreeRefused, *address, bytes, allocator)
                });
            }
            _ => {}
        }
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        if let Sink::Writer(writer) = &self.sink {
            let mut outcome = Ok(());
            if guarded(|| outcome = writer.lock().flush()).is_none() || outcome.is_err() {
                trace_guarded(
                    || tracing::error!(error = ?outcome.err(), "the allocation log could not be flushed"),
                );
            }
        }
    }
}

impl fmt::Debug for Logging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logging")
            .field("switch", &self.switch)
            .field("lines", &self.lines)
            .field("failures", &self.failures)
            .finish_non_exhaustive()
    }
}
