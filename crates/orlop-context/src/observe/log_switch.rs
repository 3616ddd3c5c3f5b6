//! The switch of an allocation log, separate from the log.
//!
//! A log is created with an allocator and then hidden behind an erased handle, for example in a
//! [`Context`](crate::Context). The code that runs the program's steps keeps the switch.
//!
//! A log that is off must not close the fast path of its allocator. So the switch changes whether the log
//! receives events of blocks.

use super::Logging;
use orlop_alloc::{
    AllocatorRef, Observer,
    engine_support::{ContextHandle as _, WeakAllocator},
};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Switches one or more logs ([`Logging`](super::Logging)) on and off, and sets the step of their lines. A
/// clone is a handle to the same switch. Initially on, at step 0.
///
/// ```
/// use orlop_context::observe::LogSwitch;
/// use orlop_context::{Context, AllocatorConfig};
/// use orlop_core::Device;
///
/// let log = LogSwitch::new();
/// log.set_enabled(false);
/// let context = Context::with(Device::CPU, AllocatorConfig::new().logged_by(log));
/// // Later, where the context is available:
/// if let Some(log) = context.cpu_log() {
///     log.set_step(7);
///     log.set_enabled(true);
/// }
/// ```
#[derive(Clone)]
pub struct LogSwitch {
    state: Arc<SwitchState>,
}

struct SwitchState {
    enabled: AtomicBool,
    step: AtomicU64,
    /// Locked while logs are switched, so that the last change wins.
    attached: Mutex<Vec<AttachedLog>>,
    /// The log to standard error, which all allocators with this switch share.
    standard_error: Mutex<Weak<Logging>>,
}

/// A log and the allocator that it is for, which owns the log: it is flushed and dropped with that. (If the
/// switch owned it, the two would own each other.)
struct AttachedLog {
    allocator: WeakAllocator,
    log: Weak<Logging>,
}

impl AttachedLog {
    fn is_log_of(&self, allocator: &AllocatorRef, log: &Logging) -> bool {
        self.allocator.refers_to(allocator) && ptr::eq(self.log.as_ptr(), log)
    }
}

impl LogSwitch {
    /// Creates a switch that is on.
    #[must_use]
    pub fn new() -> Self {
        let (enabled, step) = (AtomicBool::new(true), AtomicU64::new(0));
        let (attached, standard_error) = (Mutex::default(), Mutex::new(Weak::new()));
        Self { state: Arc::new(SwitchState { enabled, step, attached, standard_error }) }
    }

    /// Returns the log to standard error with this switch.
    pub(crate) fn standard_error(&self) -> Arc<Logging> {
        let mut known = self.state.standard_error.lock().unwrap_or_else(PoisonError::into_inner);
        known.upgrade().unwrap_or_else(|| {
            let log = Arc::new(Logging::to_writer(std::io::stderr()).switched_by(self.clone()));
            *known = Arc::downgrade(&log);
            log
        })
    }

    fn attached(&self) -> MutexGuard<'_, Vec<AttachedLog>> {
        self.state.attached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn attach(&self, allocator: &AllocatorRef, log: &Arc<Logging>) {
        let observer = Arc::clone(log) as Arc<dyn Observer>;
        // Before the lock: the allocator's author may use the switch.
        let added = allocator.add_observer(Arc::clone(&observer));
        let mut attached = self.attached();
        attached.retain(|known| !known.allocator.is_destroyed() && !known.is_log_of(allocator, log));
        attached.push(AttachedLog { allocator: allocator.downgrade(), log: Arc::downgrade(log) });
        let switched = allocator.set_watches_blocks(&observer, self.enabled());
        drop(attached);
        drop((added, switched));
    }

    pub(super) fn detach(&self, allocator: &AllocatorRef, log: &Logging) {
        let mut attached = self.attached();
        let removed = attached.extract_if(.., |known| known.is_log_of(allocator, log));
        let removed: Vec<_> = removed.filter_map(|known| known.log.upgrade()).collect();
        drop(attached);
        for log in removed {
            drop(allocator.remove_observer(&(log as Arc<dyn Observer>)));
        }
    }

    /// Switches the log on or off, and flushes it when it is switched off. Concurrent allocations may be
    /// logged or not.
    pub fn set_enabled(&self, enabled: bool) {
        if self.enabled() == enabled {
            return;
        }
        let mut attached = self.attached();
        self.state.enabled.store(enabled, Ordering::Relaxed);
        // Dropped with no lock held: each may be the last owner by then.
        let logs: Vec<_> =
            attached.iter().map(|known| (known.allocator.upgrade(), known.log.upgrade())).collect();
        let (mut each, mut switched) = (logs.iter(), Vec::new());
        attached.retain(|_| {
            let Some((Some(allocator), Some(log))) = each.next() else { return false };
            let change = allocator.set_watches_blocks(&(Arc::clone(log) as Arc<dyn Observer>), enabled);
            // One that was removed from its allocator's list stays removed.
            let stays = change.is_some();
            switched.extend(change);
            stays
        });
        drop(attached);
        drop(switched);
        if !enabled {
            logs.iter().filter_map(|(_, log)| log.as_ref()).for_each(|log| log.flush_from_outside());
        }
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
