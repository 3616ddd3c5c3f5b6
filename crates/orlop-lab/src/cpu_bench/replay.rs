//! A replay of a plain trace through an allocator, timed.
//!
//! A *pass* replays the whole trace once and is timed as a whole: reading the clock costs more than many
//! allocations. The first pass begins with an empty allocator and is reported separately as *cold*; the
//! others show the steady state of a program that repeats itself. Blocks that the trace never frees are freed
//! between passes, untimed.
//!
//! The loop around the allocator reads 16 bytes for an operation and moves a block into an array;
//! [`Replay::overhead`] measures the loop alone. It is not subtracted.

use super::replay_report::ReplayReport;
use super::touch::TouchPattern;
use super::{pass, workers};
use crate::Result;
use orlop_alloc::{Allocator as _, AllocatorRef};
use orlop_trace::formats::text::Trace;
use std::fmt;
use std::time::{Duration, Instant};

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

    /// Runs the replay. The allocator should be new, or trimmed: its reserved bytes count from the beginning.
    /// All blocks are freed on return.
    ///
    /// # Errors
    ///
    /// [`LabError::Replay`](crate::LabError::Replay) if the allocator fails;
    /// [`LabError::Untouchable`](crate::LabError::Untouchable) at the first block, if blocks are to be
    /// written that the host cannot access.
    pub fn run(&self, allocator: &AllocatorRef) -> Result<ReplayReport> {
        allocator.reset_peaks();
        let costs = workers::run(self, allocator)?;
        let ns: Vec<f64> = costs.times.iter().map(|&time| self.per_operation(time)).collect();
        let (cold, steady) = split_cold(&ns);
        let (cold_faults, steady_faults) = split_cold(&costs.faults);
        let peak_live = self.trace.peak().bytes.saturating_mul(self.threads as u64);
        let peak_reserved = allocator.usage().peak_reserved;
        Ok(ReplayReport {
            trace: self.name.to_owned(),
            allocator: allocator.name().to_owned(),
            threads: self.threads,
            touch: self.touch,
            operations: self.trace.len(),
            ns_per_op: median(steady),
            peak_live,
            peak_reserved,
            ratio: if peak_live == 0 { 1.0 } else { peak_reserved as f64 / peak_live as f64 },
            page_faults: steady_faults.iter().sum::<u64>().checked_div(steady_faults.len() as u64),
            rss: costs.resident,
            cold_ns_per_op: cold,
            cold_page_faults: cold_faults,
            passes: ns.len(),
        })
    }

    /// Returns the nanoseconds for an operation without an allocator: the same loop by one thread.
    #[must_use]
    pub fn overhead(&self) -> f64 {
        let mut slots = pass::slots(self.trace);
        let mut times = Vec::new();
        for _ in 0..self.repeat.clamp(2, 64) {
            let begin = Instant::now();
            pass::idle(self.trace, &mut slots);
            times.push(self.per_operation(begin.elapsed()));
        }
        median(split_cold(&times).1)
    }

    fn per_operation(&self, time: Duration) -> f64 {
        if self.trace.is_empty() { 0.0 } else { time.as_nanos() as f64 / self.trace.len() as f64 }
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

/// Splits off the first of several values; a single value is not split off.
fn split_cold<T: Copy>(values: &[T]) -> (Option<T>, &[T]) {
    match values {
        [cold, steady @ ..] if !steady.is_empty() => (Some(*cold), steady),
        all => (None, all),
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.get(sorted.len().saturating_sub(1) / 2), sorted.get(sorted.len() / 2)) {
        (Some(low), Some(high)) => f64::midpoint(*low, *high),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_several_is_cold() {
        assert_eq!(split_cold(&[1, 2, 3]), (Some(1), &[2, 3][..]));
        assert_eq!(split_cold(&[1]), (None, &[1][..]));
        assert_eq!(split_cold::<u64>(&[]), (None, &[][..]));
    }

    #[test]
    fn the_median_is_in_the_middle() {
        for (values, middle) in
            [(vec![], 0.0), (vec![5.0], 5.0), (vec![9.0, 1.0], 5.0), (vec![9.0, 1.0, 2.0], 2.0)]
        {
            assert!((median(&values) - middle).abs() < 1e-12);
        }
    }
}
