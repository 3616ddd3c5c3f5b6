//! A log of allocations and frees that can be switched on while the program runs.
//!
//! The lines are RMM's, so that its replay and plotting tools read them (`Thread,Time,Action,Pointer,Size,
//! Stream`), with two columns more: who asked, and in which step (T14). Written to any [`Write`] sink, or given
//! to a callback as values.
//!
//! A log is a witness, not a participant: a sink that fails or panics is counted, and the allocation it was
//! told of goes on. While the log is off, a call costs one relaxed load.

use super::LogSwitch;
use crate::shield::{report, shielded};
use crate::{Allocator, LookupResult, RawBlock, Request, Result, Tag};
use orlop_core::StreamId;
use orlop_sync::Mutex;
use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::io::{self, Write};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// A block was handed out.
    Allocate,
    /// A request failed, for whatever reason; the pointer is null.
    AllocateFailure,
    /// A block came back.
    Free,
    /// A block was offered and refused as foreign or double.
    FreeRefused,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allocate => "allocate",
            Self::AllocateFailure => "allocate failure",
            Self::Free => "free",
            Self::FreeRefused => "free refused",
        })
    }
}

/// One line of the log.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LogRecord {
    /// The operating system's number of the thread, where it tells; else a number of our own.
    pub thread: u64,
    /// When.
    pub time: SystemTime,
    /// What.
    pub action: Action,
    /// The block's address, zero if there is none.
    pub pointer: usize,
    /// Bytes as asked for.
    pub bytes: usize,
    /// The stream the block was asked for. Raw frees do not know it: the default stream.
    pub stream: StreamId,
    /// Who asked. Raw frees do not know it: no tag.
    pub tag: Tag,
    /// The step set by [`LogSwitch::set_step`].
    pub step: u64,
}

impl LogRecord {
    /// The heading of a log.
    pub const HEADER: &str = "Thread,Time,Action,Pointer,Size,Stream,Tag,Step";
}

/// The line of CSV, without its end. The time of day is UTC, to the microsecond.
impl fmt::Display for LogRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A clock before 1970 is broken; its lines say midnight.
        let since_epoch = self.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let second = since_epoch.as_secs() % 86_400;
        write!(
            f,
            "{},{:02}:{:02}:{:02}.{:06},{},{:#x},{},",
            self.thread,
            second / 3600,
            second / 60 % 60,
            second % 60,
            since_epoch.subsec_micros(),
            self.action,
            self.pointer,
            self.bytes,
        )?;
        if self.stream.is_default() {
            f.write_str("0,")?;
        } else {
            write!(f, "{:#x},", self.stream.get())?;
        }
        write_field(f, self.tag.name())?;
        write!(f, ",{}", self.step)
    }
}

/// A field of CSV, quoted where it must be (RFC 4180).
fn write_field(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    if !text.contains([',', '"', '\n', '\r']) {
        return f.write_str(text);
    }
    f.write_char('"')?;
    for character in text.chars() {
        if character == '"' {
            f.write_char('"')?;
        }
        f.write_char(character)?;
    }
    f.write_char('"')
}

enum Sink {
    Writer(Mutex<Box<dyn Write + Send>>),
    Callback(Box<dyn Fn(&LogRecord) + Send + Sync>),
}

/// Writes down every allocation and free (T14).
///
/// ```
/// use orlop_alloc::adaptor::{LogRecord, Logging};
/// use orlop_alloc::{backing::System, engine::Direct, AllocatorRef, Request};
///
/// let log = std::io::BufWriter::new(std::io::stderr());
/// let allocator = AllocatorRef::new(Logging::to_writer(Direct::engine(System::new()), log));
/// drop(allocator.allocate(&Request::new(100))?);
/// allocator.set_enabled(false);
/// drop(allocator.allocate(&Request::new(100))?);
/// assert_eq!((allocator.lines(), allocator.failures()), (2, 0));
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
pub struct Logging<A> {
    inner: A,
    switch: LogSwitch,
    lines: AtomicU64,
    failures: AtomicU64,
    sink: Sink,
}

impl<A: Allocator> Logging<A> {
    /// Logs to `writer` as CSV, heading first, from now on. Buffered as the writer buffers; flushed by
    /// [`Logging::flush`] and when the allocator goes.
    ///
    /// The writer is locked while it writes. It may use the allocator, which is not logged then; using this log from inside
    /// fails, and is counted. An error or a panic of its is counted and fails nothing.
    pub fn to_writer(inner: A, writer: impl Write + Send + 'static) -> Self {
        let log = Self::with_sink(inner, Sink::Writer(Mutex::new(Box::new(writer))));
        log.write(|writer| writeln!(writer, "{}", LogRecord::HEADER));
        log
    }

    /// Gives each record to `callback`, on the thread where it happened. What the callback itself allocates
    /// here is not logged. Nothing is locked meanwhile, and a panic is counted and fails nothing.
    pub fn to_callback(inner: A, callback: impl Fn(&LogRecord) + Send + Sync + 'static) -> Self {
        Self::with_sink(inner, Sink::Callback(Box::new(callback)))
    }

    fn with_sink(inner: A, sink: Sink) -> Self {
        let zero = || AtomicU64::new(0);
        Self { inner, switch: LogSwitch::new(), lines: zero(), failures: zero(), sink }
    }

    /// Follows `switch` from now on, instead of a switch of its own.
    #[must_use]
    pub fn switched_by(mut self, switch: LogSwitch) -> Self {
        self.switch = switch;
        self
    }

    /// The switch that it follows.
    #[must_use]
    pub fn switch(&self) -> &LogSwitch {
        &self.switch
    }

    /// [`LogSwitch::set_enabled`].
    pub fn set_enabled(&self, enabled: bool) {
        self.switch.set_enabled(enabled);
    }

    /// [`LogSwitch::enabled`].
    #[must_use]
    pub fn enabled(&self) -> bool {
        self.switch.enabled()
    }

    /// [`LogSwitch::set_step`].
    pub fn set_step(&self, step: u64) {
        self.switch.set_step(step);
    }

    /// Records that the sink took.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.lines.load(Ordering::Relaxed)
    }

    /// Times the sink failed or panicked. The first is traced too.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Makes the writer pass on what it buffers. False if that failed, which is counted.
    pub fn flush(&self) -> bool {
        self.write(|writer| writer.flush())
    }

    /// What is logged.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    /// Does something with the writer, if there is one; false if it failed.
    fn write(&self, action: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> bool {
        let Sink::Writer(writer) = &self.sink else { return true };
        let mut outcome = Ok(());
        let calm = shielded(|| outcome = action(&mut **writer.lock())).is_some();
        if !calm || outcome.is_err() {
            self.count_failure(outcome.err());
            return false;
        }
        true
    }

    #[cold]
    fn count_failure(&self, error: Option<io::Error>) {
        if self.failures.fetch_add(1, Ordering::Relaxed) == 0 {
            let error = error.map_or_else(|| "it panicked".into(), |error| error.to_string());
            report(|| tracing::error!(allocator = self.inner.name(), error, "the allocation log fails"));
        }
    }

    #[cold]
    fn log(&self, action: Action, pointer: usize, bytes: usize, stream: StreamId, tag: Tag) {
        // What a sink allocates from the allocator it logs would be logged without end.
        let Some(_guard) = Inside::enter() else { return };
        let step = self.switch.step();
        let record = LogRecord {
            thread: thread_number(),
            time: SystemTime::now(),
            action,
            pointer,
            bytes,
            stream,
            tag,
            step,
        };
        let taken = match &self.sink {
            Sink::Writer(_) => {
                // One write per line, so that a writer without a buffer keeps lines whole.
                let line = format!("{record}\n");
                self.write(|writer| writer.write_all(line.as_bytes()))
            }
            Sink::Callback(callback) => {
                let calm = shielded(|| callback(&record)).is_some();
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

    fn log_free(&self, refused: bool, pointer: usize, bytes: usize, stream: StreamId, tag: Tag) {
        let action = if refused { Action::FreeRefused } else { Action::Free };
        self.log(action, pointer, bytes, stream, tag);
    }
}

thread_local! {
    static LOGGING: Cell<bool> = const { Cell::new(false) };
    static THREAD: Cell<u64> = const { Cell::new(0) };
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

fn thread_number() -> u64 {
    match THREAD.get() {
        0 => {
            let number = new_thread_number();
            THREAD.set(number);
            number
        }
        number => number,
    }
}

#[cfg(target_os = "linux")]
fn new_thread_number() -> u64 {
    // SAFETY: a query without arguments that cannot fail.
    u64::try_from(unsafe { libc::gettid() }).unwrap_or(0)
}

#[cfg(not(target_os = "linux"))]
fn new_thread_number() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    THREADS.fetch_add(1, Ordering::Relaxed) + 1
}

// SAFETY: blocks are upstream's, unchanged, and go back to it.
unsafe impl<A: Allocator> Allocator for Logging<A> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        let result = self.inner.allocate(request);
        if self.enabled() {
            let (action, pointer) = match &result {
                Ok(block) => (Action::Allocate, block.address()),
                Err(_) => (Action::AllocateFailure, 0),
            };
            self.log(action, pointer, request.bytes, request.stream, request.tag);
        }
        result
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        let (pointer, bytes, stream, tag) = (block.address(), block.requested, block.stream, block.tag);
        // Before upstream has it: afterwards another thread's line for the same address could come first.
        let logged = self.enabled();
        if logged {
            self.log_free(false, pointer, bytes, stream, tag);
        }
        // SAFETY: the caller's promises; upstream's own block.
        let result = unsafe { self.inner.deallocate(block) };
        if logged && result.is_err() {
            self.log_free(true, pointer, bytes, stream, tag);
        }
        result
    }

    /// Two lines, as observers see it: the block came back, and was handed out again larger.
    unsafe fn grow_in_place(&self, block: &mut RawBlock, bytes: usize) -> bool {
        let before = block.requested;
        // SAFETY: the caller's promise; upstream's own block.
        let grown = unsafe { self.inner.grow_in_place(block, bytes) };
        if grown && self.enabled() {
            // Nobody else is given the address meanwhile: no other line of it comes between.
            for (action, bytes) in [(Action::Free, before), (Action::Allocate, block.requested)] {
                self.log(action, block.address(), bytes, block.stream, block.tag);
            }
        }
        grown
    }

    unsafe fn deallocate_raw(&self, ptr: NonNull<u8>, requested: Option<usize>) -> Result<LookupResult> {
        let pointer = ptr.as_ptr().addr();
        let logged = self.enabled();
        if logged {
            let bytes = requested.or_else(|| self.inner.find(pointer).map(|found| found.requested));
            self.log_free(false, pointer, bytes.unwrap_or(0), StreamId::DEFAULT, Tag::NONE);
        }
        // SAFETY: the caller's promises; upstream's own block.
        let result = unsafe { self.inner.deallocate_raw(ptr, requested) };
        if logged && result.is_err() {
            self.log_free(true, pointer, requested.unwrap_or(0), StreamId::DEFAULT, Tag::NONE);
        }
        result
    }

    forward!(inner: name, device, device_memory, usage, reset_peak, semantics, trim, find, has_tracked_sizes,
        has_raw_deleter, has_opaque_handles, set_safe_frontier, describe, verify, watch_regions,
        allocated_size_slow, set_statistics);
}

impl<A> Drop for Logging<A> {
    fn drop(&mut self) {
        if let Sink::Writer(writer) = &self.sink {
            let mut outcome = Ok(());
            if shielded(|| outcome = writer.lock().flush()).is_none() || outcome.is_err() {
                report(|| tracing::error!(error = ?outcome.err(), "the allocation log could not be flushed"));
            }
        }
    }
}

impl<A: fmt::Debug> fmt::Debug for Logging<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logging")
            .field("inner", &self.inner)
            .field("switch", &self.switch)
            .field("lines", &self.lines)
            .field("failures", &self.failures)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
#[path = "logging_tests.rs"]
mod tests;
