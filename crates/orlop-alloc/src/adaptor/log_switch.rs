//! The switch of an allocation log, separate from the log.
//!
//! A log is created with its allocator and then hidden behind an erased handle, for example in a
//! [`Context`](crate::Context) or under other adaptors. The code that runs the program's steps keeps the
//! switch.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Switches one or more [`Logging`](super::Logging) adaptors on and off, and sets the step of their lines. A
/// clone is a handle to the same switch. Initially on, at step 0.
///
/// ```
/// use orlop_alloc::adaptor::LogSwitch;
/// use orlop_context::{Context, CpuConfig};
/// use orlop_core::Device;
///
/// let log = LogSwitch::new();
/// log.set_enabled(false);
/// let context = Context::with(Device::CPU, CpuConfig::new().logged_by(log));
/// // Later, where the context is available:
/// if let Some(log) = context.cpu_log() {
///     log.set_step(7);
///     log.set_enabled(true);
/// }
/// ```
#[derive(Clone)]
pub struct LogSwitch {
    state: Arc<State>,
}

struct State {
    enabled: AtomicBool,
    step: AtomicU64,
}

impl LogSwitch {
    /// Creates a switch that is on.
    #[must_use]
    pub fn new() -> Self {
        Self { state: Arc::new(State { enabled: AtomicBool::new(true), step: AtomicU64::new(0) }) }
    }

    /// Switches the log on or off. Concurrent calls may be logged or not.
    pub fn set_enabled(&self, enabled: bool) {
        self.state.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Returns `true` if the log is on.
    #[must_use]
    pub fn enabled(&self) -> bool {
        self.state.enabled.load(Ordering::Relaxed)
    }

    /// Sets the step of the lines that follow.
    pub fn set_step(&self, step: u64) {
        self.state.step.store(step, Ordering::Relaxed);
    }

    /// Returns the step of the lines.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.state.step.load(Ordering::Relaxed)
    }
}

impl Default for LogSwitch {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LogSwitch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (enabled, step) = (self.enabled(), self.step());
        f.debug_struct("LogSwitch").field("enabled", &enabled).field("step", &step).finish()
    }
}
