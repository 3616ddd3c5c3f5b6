//! A progress bar for long runs. It is only shown on a terminal, and only written between passes, never while
//! one is timed.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use orlop::lab::cpu_bench::PassProgress;
use std::time::{Duration, Instant};

/// Shorter runs have no bar.
const DELAY: Duration = Duration::from_millis(700);

/// Steps of the bar for each run.
const STEPS: u64 = 1000;

pub(crate) struct Progress {
    bar: ProgressBar,
    begin: Instant,
}

impl Progress {
    /// Creates a bar for `runs` runs.
    pub(crate) fn new(runs: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(runs as u64 * STEPS), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{bar:32} {percent:>3} % {msg}") {
            bar.set_style(style);
        }
        Self { bar, begin: Instant::now() }
    }

    /// Begins the run with this index.
    pub(crate) fn start(&self, run: usize, trace: &str, allocator: &str) {
        self.bar.set_message(format!("{trace}, {allocator}"));
        self.set_position(run as u64 * STEPS);
    }

    /// Completes a pass of a run.
    pub(crate) fn pass(&self, run: usize, pass: PassProgress) {
        self.set_position(run as u64 * STEPS + pass.done as u64 * STEPS / pass.of.max(1) as u64);
    }

    fn set_position(&self, position: u64) {
        if self.bar.is_hidden() && self.begin.elapsed() > DELAY {
            // It remains hidden if the standard error is not a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(position);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
