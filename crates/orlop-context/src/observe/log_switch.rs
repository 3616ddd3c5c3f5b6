//! The switch of an allocation log, separate from the log.
//!
//! A log is created with an allocator and then hidden behind an erased handle, for example in a
//! [`Context`](crate::Context). The code that runs the program's steps keeps the switch.
//!
//! A log that is off must not close the fast path of its allocator. So the switch adds the log as an observer
//! when it is turned on, and removes it when it is turned off.

use super::Logging;
use orlop_alloc::{
    AllocatorRef, Event, Observer,
    engine_support::{RegionDelivery, WeakAllocator},
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
    /// Locked while logs are added to allocators and removed, so that the last change of the switch wins.
    attached: Mutex<Vec<AttachedLog>>,
    /// The log to standard error, which all allocators with this switch share.
    standard_error: Mutex<Weak<Logging>>,
}

/// A log and the allocator that it is for, which owns the log: it is flushed and dropped with that. (If the
/// switch owned it, the two would own each other.)
struct AttachedLog {
    allocator: WeakAllocator,
    log: Weak<Logging>,
    /// What is in the allocator's list of observers: the log, or while it is off a [`ParkedLog`].
    observer: Weak<dyn Observer>,
}

/// A log that is off, in its allocator's list of observers. It leaves the fast path open.
struct ParkedLog {
    _log: Arc<Logging>,
}

impl Observer for ParkedLog {
    fn observe(&self, _: &Event<'_>) {}

    fn watches_blocks(&self) -> bool {
        false
    }
}

/// Returns the observer by which an allocator has a log.
fn observer(log: &Arc<Logging>, enabled: bool) -> Arc<dyn Observer> {
    let log = Arc::clone(log);
    if enabled { log } else { Arc::new(ParkedLog { _log: log }) }
}

/// What a change of an attached log uses: drop it with no lock held, as each part may be the last owner by
/// then.
struct LogChange {
    allocator: Option<AllocatorRef>,
    log: Option<Arc<Logging>>,
    observer: Option<Arc<dyn Observer>>,
}

impl LogChange {
    fn begin(attached: &AttachedLog) -> Self {
        let (allocator, log) = (attached.allocator.upgrade(), attached.log.upgrade());
        Self { allocator, log, observer: attached.observer.upgrade() }
    }

    /// Returns the parts, if the log is in its allocator's list of observers.
    fn parts(&self) -> Option<(&AllocatorRef, &Arc<Logging>, &Arc<dyn Observer>)> {
        let (allocator, observer) = (self.allocator.as_ref()?, self.observer.as_ref()?);
        allocator.has_observer(observer).then_some((allocator, self.log.as_ref()?, observer))
    }
}

impl AttachedLog {
    fn is_log_of(&self, allocator: &AllocatorRef, log: &Logging) -> bool {
        self.allocator.refers_to(allocator) && ptr::eq(self.log.as_ptr(), log)
    }

    /// Exchanges the log for a parked one, or back. Returns `false` if it was removed from the allocator's
    /// list: it stays removed.
    fn switch(&mut self, enabled: bool, change: &LogChange, delivery: &mut RegionDelivery) -> bool {
        let Some((allocator, log, before)) = change.parts() else { return false };
        let next = observer(log, enabled);
        self.observer = Arc::downgrade(&next);
        delivery.append(allocator.add_observer(next));
        delivery.append(allocator.remove_observer(before));
        true
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
        let mut attached = self.attached();
        let known = attached.iter().find(|known| known.is_log_of(allocator, log)).map(LogChange::begin);
        let mut delivery = RegionDelivery::default();
        if known.as_ref().is_none_or(|known| known.parts().is_none()) {
            attached.retain(|known| !known.allocator.is_destroyed() && !known.is_log_of(allocator, log));
            let new = observer(log, self.enabled());
            let (weak, log) = (allocator.downgrade(), Arc::downgrade(log));
            attached.push(AttachedLog { allocator: weak, log, observer: Arc::downgrade(&new) });
            delivery = allocator.add_observer(new);
        }
        drop(attached);
        drop((known, delivery));
    }

    pub(super) fn detach(&self, allocator: &AllocatorRef, log: &Logging) {
        let mut attached = self.attached();
        let removed: Vec<_> = attached.extract_if(.., |known| known.is_log_of(allocator, log)).collect();
        let changes: Vec<_> = removed.iter().map(LogChange::begin).collect();
        let parts = changes.iter().filter_map(LogChange::parts);
        let delivery: Vec<_> =
            parts.map(|(allocator, _, observer)| allocator.remove_observer(observer)).collect();
        drop(attached);
        drop((changes, delivery));
    }

    /// Switches the log on or off, and flushes it when it is switched off. Concurrent allocations may be
    /// logged or not.
    pub fn set_enabled(&self, enabled: bool) {
        if self.enabled() == enabled {
            return;
        }
        let mut delivery = RegionDelivery::default();
        let mut attached = self.attached();
        self.state.enabled.store(enabled, Ordering::Relaxed);
        let changes: Vec<_> = attached.iter().map(LogChange::begin).collect();
        let mut each = changes.iter();
        attached.retain_mut(|known| {
            each.next().is_some_and(|change| known.switch(enabled, change, &mut delivery))
        });
        drop(attached);
        drop(delivery);
        if !enabled {
            changes.iter().filter_map(|change| change.log.as_ref()).for_each(|log| log.flush_from_outside());
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
