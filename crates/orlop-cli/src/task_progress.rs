//! A line on a terminal while a task runs for longer than a second.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Shorter tasks have no line.
const DELAY: Duration = Duration::from_secs(1);

const TICK: Duration = Duration::from_millis(200);

/// The line is cleared when this is dropped.
pub(crate) struct TaskProgress(Option<RunningTask>);

struct RunningTask {
    done: Sender<()>,
    line: JoinHandle<()>,
}

impl TaskProgress {
    /// Begins a task. Without a terminal, nothing is shown.
    pub(crate) fn start(task: String) -> Self {
        if !io::stderr().is_terminal() {
            return Self(None);
        }
        let (done, wait) = mpsc::channel::<()>();
        let is_running = move |time| wait.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        let line = thread::spawn(move || {
            if !is_running(DELAY) {
                return;
            }
            let bar = ProgressBar::new_spinner().with_message(task);
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}, {elapsed}") {
                bar.set_style(style);
            }
            while is_running(TICK) {
                bar.tick();
            }
            bar.finish_and_clear();
        });
        Self(Some(RunningTask { done, line }))
    }
}

impl Drop for TaskProgress {
    fn drop(&mut self) {
        if let Some(RunningTask { done, line }) = self.0.take() {
            drop(done);
            // It panics only if the terminal does: the result matters more.
            let _ = line.join();
        }
    }
}
