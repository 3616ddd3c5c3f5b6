//! The switch of an allocation log, separate from the log.
//!
//! A log is created with an allocator and then hidden behind an erased handle, for example in a
//! [`Context`](crate::Context). The code that runs the program's steps keeps the switch.
//!
//! A log that is off must not close the fast path of its allocator. So the switch adds the log as an observer
//! when it is turned on, and removes it when it is turned off.

use super::Logging;
use orlop_alloc::{AllocatorRef, Event, Observer, RegionDelivery, WeakAllocator};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

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
}

/// A log and the allocator that it is for, which owns the log: it is flushed and dropped with that. (If the
/// switch owned it, the two would own each other.)
struct AttachedLog {
    allocator: WeakAllocator,
    log: Weak<Logging>,
    parked: Weak<ParkedLog>,
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

/// What switching a log used: drop it with no lock held, as each part may be the last owner by then.
struct Switched {
    _delivery: RegionDelivery,
    _allocator: AllocatorRef,
    log: Arc<Logging>,
}

impl AttachedLog {
    /// Adds or removes the log.
    #[must_use]
    fn switch(&mut self, enabled: bool) -> Option<Switched> {
        let (allocator, log) = (self.allocator.upgrade()?, self.log.upgrade()?);
        let observer = Arc::clone(&log) as Arc<dyn Observer>;
        let mut delivery;
        if enabled {
            delivery = allocator.add_observer(observer);
            if let Some(parked) = self.parked.upgrade() {
                delivery.append(allocator.remove_observer(&(parked as Arc<dyn Observer>)));
            }
        } else {
            delivery = self.park(&allocator, &log);
            delivery.append(allocator.remove_observer(&observer));
        }
        Some(Switched { _delivery: delivery, _allocator: allocator, log })
    }

    fn park(&mut self, allocator: &AllocatorRef, log: &Arc<Logging>) -> RegionDelivery {
        let parked = Arc::new(ParkedLog { _log: Arc::clone(log) });
        self.parked = Arc::downgrade(&parked);
        allocator.add_observer(parked)
    }
}

impl LogSwitch {
    /// Creates a switch that is on.
    #[must_use]
    pub fn new() -> Self {
        let (enabled, step) = (AtomicBool::new(true), AtomicU64::new(0));
        Self { state: Arc::new(SwitchState { enabled, step, attached: Mutex::default() }) }
    }

    pub(super) fn attach(&self, allocator: &AllocatorRef, log: &Arc<Logging>) {
        let mut attached = self.state.attached.lock().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<_> = attached.extract_if(.., |known| known.allocator.is_gone()).collect();
        let (weak, log) = (allocator.downgrade(), Arc::downgrade(log));
        let mut new = AttachedLog { allocator: weak, log, parked: Weak::new() };
        let used = new.switch(self.enabled());
        attached.push(new);
        drop(attached);
        drop((gone, used));
    }

    /// Switches the log on or off, and flushes it when it is switched off. Concurrent allocations may be
    /// logged or not.
    pub fn set_enabled(&self, enabled: bool) {
        if self.enabled() == enabled {
            return;
        }
        let mut attached = self.state.attached.lock().unwrap_or_else(PoisonError::into_inner);
        let gone: Vec<_> = attached.extract_if(.., |known| known.allocator.is_gone()).collect();
        self.state.enabled.store(enabled, Ordering::Relaxed);
        let used: Vec<_> = attached.iter_mut().filter_map(|known| known.switch(enabled)).collect();
        drop(attached);
        drop(gone);
        if !enabled {
            used.iter().for_each(|switched| switched.log.flush_from_outside());
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
