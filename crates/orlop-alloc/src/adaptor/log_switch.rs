//! The switch of an allocation log, apart from the log.
//!
//! A log is made where allocators are made, and disappears behind an erased handle there: under a
//! [`Context`](crate::Context) for example, or under other adaptors. Its switch can be kept by whoever runs the program's steps.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Switches one or more [`Logging`](super::Logging) adaptors on and off, and says which step their lines belong to. Cloning
/// it gives the same switch. It begins on, at step 0.
///
/// ```
/// use orlop_alloc::adaptor::LogSwitch;
/// use orlop_alloc::context::{Context, CpuConfig};
/// use orlop_core::Device;
///
/// let log = LogSwitch::new();
/// log.set_enabled(false);
/// let context = Context::with(Device::CPU, CpuConfig::new().logged_by(log));
/// // Later, wherever the context is at hand:
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
    /// A switch that is on.
    #[must_use]
    pub fn new() -> Self {
        Self { state: Arc::new(State { enabled: AtomicBool::new(true), step: AtomicU64::new(0) }) }
    }

    /// Switches the log on or off. Calls that run meanwhile may be logged or not.
    pub fn set_enabled(&self, enabled: bool) {
        self.state.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Whether the log is on.
    #[must_use]
    pub fn enabled(&self) -> bool {
        self.state.enabled.load(Ordering::Relaxed)
    }

    /// Sets the step that lines from now on belong to.
    pub fn set_step(&self, step: u64) {
        self.state.step.store(step, Ordering::Relaxed);
    }

    /// The step that lines belong to.
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
