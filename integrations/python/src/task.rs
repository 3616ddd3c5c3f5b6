//! Work without the GIL, on threads of its own.
//!
//! The calling thread waits, calls the progress function and checks for signals, so that Ctrl-C ends the call
//! at once. The work notices that at its next step and ends, too. A panic becomes an exception.
//!
//! The threads end with the work: a process that forks later, as data loaders do, has no pool that its
//! children would wait for.

use crate::error::AnswerError;
use pyo3::prelude::*;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The time between two checks for signals, and between two calls of the progress function.
const TICK: Duration = Duration::from_millis(50);

/// The stack of each thread, as that of a program's main thread.
const STACK: usize = 8 << 20;

/// What a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It reads recordings; counted in bytes.
    Reading,
    /// It computes the answer; counted in devices.
    Computing,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Self::Reading => "reading",
            Self::Computing => "computing",
        }
    }
}

/// The progress of a task, and whether its caller still waits.
///
/// The counters are only shown, and the flag only ends the work early: relaxed accesses are enough.
#[derive(Debug, Default)]
pub(crate) struct TaskProgress {
    is_cancelled: AtomicBool,
    is_computing: AtomicBool,
    done: AtomicU64,
    total: AtomicU64,
}

impl TaskProgress {
    /// Begins a stage of `total` units.
    pub(crate) fn begin(&self, stage: Stage, total: u64) {
        self.is_computing.store(stage == Stage::Computing, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    /// Adds `units` units that are done.
    ///
    /// # Errors
    ///
    /// [`AnswerError::Cancelled`] if the caller does not wait any more.
    pub(crate) fn advance(&self, units: u64) -> Result<(), AnswerError> {
        self.done.fetch_add(units, Ordering::Relaxed);
        if self.is_cancelled.load(Ordering::Relaxed) { Err(AnswerError::Cancelled) } else { Ok(()) }
    }

    fn report(&self, callback: &Bound<'_, PyAny>) -> PyResult<()> {
        let stage = if self.is_computing.load(Ordering::Relaxed) { Stage::Computing } else { Stage::Reading };
        let [done, total] = [&self.done, &self.total].map(|counter| counter.load(Ordering::Relaxed));
        callback.call1((stage.name(), done, total)).map(drop)
    }
}

/// Runs `work` on other threads and waits for its result, while `callback(stage, done, total)` is called.
pub(crate) fn run<T: Send + 'static>(
    py: Python<'_>,
    callback: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&TaskProgress) -> Result<T, AnswerError> + Send + 'static,
) -> PyResult<T> {
    let progress = Arc::new(TaskProgress::default());
    let (sender, receiver) = channel();
    let shared = Arc::clone(&progress);
    let task = move || {
        let result = catch_unwind(AssertUnwindSafe(|| in_pool(|| work(&shared))));
        // The result of a cancelled task is not received.
        let _ = sender.send(result.unwrap_or_else(|panic| Err(AnswerError::Panic(message(&*panic)))));
    };
    thread::Builder::new()
        .name("orlop".to_owned())
        .stack_size(STACK)
        .spawn(task)
        .map_err(|error| AnswerError::Threads(error.to_string()))?;
    let receiver = Mutex::new(receiver);
    let result = wait(py, callback, &progress, &receiver);
    progress.is_cancelled.store(true, Ordering::Relaxed);
    result
}

fn wait<T: Send>(
    py: Python<'_>,
    callback: Option<&Bound<'_, PyAny>>,
    progress: &TaskProgress,
    receiver: &Mutex<Receiver<Result<T, AnswerError>>>,
) -> PyResult<T> {
    loop {
        let received =
            py.detach(|| receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(TICK));
        match received {
            Ok(result) => {
                if let (Ok(_), Some(callback)) = (&result, callback) {
                    progress.report(callback)?;
                }
                return Ok(result?);
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(AnswerError::Panic("its thread ended".to_owned()).into());
            }
            Err(RecvTimeoutError::Timeout) => {
                py.check_signals()?;
                if let Some(callback) = callback {
                    progress.report(callback)?;
                }
            }
        }
    }
}

/// Runs `work` so that its parallel loops use threads that end with it.
fn in_pool<T: Send>(work: impl FnOnce() -> Result<T, AnswerError> + Send) -> Result<T, AnswerError> {
    let pool = rayon::ThreadPoolBuilder::new().stack_size(STACK).build();
    pool.map_err(|error| AnswerError::Threads(error.to_string()))?.install(work)
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}
