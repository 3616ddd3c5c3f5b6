//! The reclaim ladder (X4): what is tried, in which order, before a request fails.
//!
//! Own cache, other kinds' caches, callbacks of the kind, unused budget of other kinds; then the error, which
//! says what each step brought. After each step that brought something the request is tried again.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Tag;
use orlop_core::{Device, MemoryKind};

/// A rung of the ladder, in the order they are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LadderStep {
    /// Cached memory of the kind's own allocator.
    OwnCache,
    /// Cached memory of other kinds' allocators on the device.
    OtherCaches,
    /// The callbacks registered for the kind.
    Callbacks,
    /// Unused budget of other kinds.
    Borrow,
}

impl LadderStep {
    /// All, in order.
    pub const ALL: [Self; 4] = [Self::OwnCache, Self::OtherCaches, Self::Callbacks, Self::Borrow];
}

impl fmt::Display for LadderStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OwnCache => "own cache",
            Self::OtherCaches => "other kinds' caches",
            Self::Callbacks => "callbacks",
            Self::Borrow => "borrowing",
        })
    }
}

/// What a callback is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pressure {
    /// Where memory is short.
    pub device: Device,
    /// The kind that needs it.
    pub kind: MemoryKind,
    /// Who asks; [`Tag::NONE`] if the request says nothing.
    pub tag: Tag,
    /// Bytes that would help.
    pub bytes: u64,
}

/// Frees what it can and says how many bytes it believes that to be. That is no more than a hint: what counts, and is told
/// of, is measured by the figures of the context. Runs on the thread whose request did not fit, with no lock held: it may
/// drop blocks and allocate.
pub type PressureCallback = Arc<dyn Fn(&Pressure) -> u64 + Send + Sync>;

/// Names a callback, to remove it: from [`Context::on_pressure`](super::Context::on_pressure).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PressureId(pub(super) u64);

/// How often each step was taken, and what it brought.
#[derive(Debug, Default)]
pub(super) struct Counts {
    steps: [(AtomicU64, AtomicU64); LadderStep::ALL.len()],
}

/// The figures of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepCount {
    /// Which.
    pub step: LadderStep,
    /// How often it was taken.
    pub taken: u64,
    /// Bytes it brought, all in all.
    pub bytes: u64,
}

impl Counts {
    pub(super) fn add(&self, step: LadderStep, bytes: u64) {
        let (taken, total) = &self.steps[step as usize];
        taken.fetch_add(1, Ordering::Relaxed);
        total.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> [StepCount; LadderStep::ALL.len()] {
        LadderStep::ALL.map(|step| {
            let (taken, bytes) = &self.steps[step as usize];
            StepCount { step, taken: taken.load(Ordering::Relaxed), bytes: bytes.load(Ordering::Relaxed) }
        })
    }
}
