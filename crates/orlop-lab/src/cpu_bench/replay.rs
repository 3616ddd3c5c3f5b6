//! [`Replay`]: a plain trace and how it is to be replayed.

use super::touch::TouchPattern;
use orlop_trace::formats::text::Trace;
use std::fmt;
use std::time::Duration;

/// The progress of a replay, in passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PassProgress {
    /// Completed passes.
    pub done: usize,
    /// The maximum number of passes.
    pub of: usize,
}

/// A trace and the options of its replay. The default is one pass by one thread that writes the first byte of
/// each block.
#[derive(Clone, Copy)]
pub struct Replay<'a> {
    pub(super) trace: &'a Trace,
    pub(super) name: &'a str,
    pub(super) threads: usize,
    pub(super) touch: TouchPattern,
    pub(super) repeat: usize,
    pub(super) max_time: Option<Duration>,
    pub(super) watcher: Option<&'a (dyn Fn(PassProgress) + Sync)>,
}

impl<'a> Replay<'a> {
    /// Creates a replay of a trace.
    #[must_use]
    pub fn new(trace: &'a Trace) -> Self {
        Self {
            trace,
            name: "",
            threads: 1,
            touch: TouchPattern::First,
            repeat: 1,
            max_time: None,
            watcher: None,
        }
    }

    /// Sets the name of the trace in the report.
    #[must_use]
    pub fn named(mut self, name: &'a str) -> Self {
        self.name = name;
        self
    }

    /// Sets the number of threads. Each replays the whole trace with its own blocks on the same allocator.
    /// Threads that are ahead continue, untimed, until the others are done. Zero counts as one.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
        self
    }

    /// Sets how much of each block is written.
    #[must_use]
    pub fn touch(mut self, touch: TouchPattern) -> Self {
        self.touch = touch;
        self
    }

    /// Sets the number of passes. Zero counts as one.
    #[must_use]
    pub fn repeat(mut self, passes: usize) -> Self {
        self.repeat = passes.max(1);
        self
    }

    /// Stops after this time, but not before three passes.
    #[must_use]
    pub fn max_time(mut self, time: Duration) -> Self {
        self.max_time = Some(time);
        self
    }

    /// Sets a callback for each completed pass.
    #[must_use]
    pub fn watched(mut self, watcher: &'a (dyn Fn(PassProgress) + Sync)) -> Self {
        self.watcher = Some(watcher);
        self
    }

    /// Returns the name of the trace.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Returns the trace.
    #[must_use]
    pub fn trace(&self) -> &'a Trace {
        self.trace
    }

    /// Returns the number of threads.
    #[must_use]
    pub fn thread_count(&self) -> usize {
        self.threads
    }
}

impl fmt::Debug for Replay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay")
            .field("name", &self.name)
            .field("threads", &self.threads)
            .field("touch", &self.touch)
            .field("repeat", &self.repeat)
            .field("max_time", &self.max_time)
            .finish_non_exhaustive()
    }
}
