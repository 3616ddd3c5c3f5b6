//! A bar for runs that take long. Nobody sees it who is not at a terminal, and it writes between passes only,
//! never while one is timed.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use orlop::lab::cpu_bench::PassProgress;
use std::time::{Duration, Instant};

/// A run that is over sooner needs no bar.
const PATIENCE: Duration = Duration::from_millis(700);

/// Marks on the bar for each run.
const MARKS: u64 = 1000;

pub(crate) struct Progress {
    bar: ProgressBar,
    begin: Instant,
}

impl Progress {
    /// Of so many runs.
    pub(crate) fn new(runs: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(runs as u64 * MARKS), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{bar:32} {percent:>3} % {msg}") {
            bar.set_style(style);
        }
        Self { bar, begin: Instant::now() }
    }

    /// The next run is `run`, counted from 0.
    pub(crate) fn start(&self, run: usize, trace: &str, allocator: &str) {
        self.bar.set_message(format!("{trace}, {allocator}"));
        self.at(run as u64 * MARKS);
    }

    /// A pass of that run is done.
    pub(crate) fn pass(&self, run: usize, pass: PassProgress) {
        self.at(run as u64 * MARKS + pass.done as u64 * MARKS / pass.of.max(1) as u64);
    }

    fn at(&self, mark: u64) {
        if self.bar.is_hidden() && self.begin.elapsed() > PATIENCE {
            // Hidden still where the standard error is no terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(mark);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
