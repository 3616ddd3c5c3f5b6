//! The types of the reclaim ladder: the steps that are tried, in order, before a request fails.
//! `Context::run_ladder` in `reclaim.rs` takes them.
//!
//! The cache of the kind's allocator, the caches of other kinds, the callbacks of the kind, the unused budget
//! of other kinds. After each step that freed something, or was lent some budget, the request is tried again.
//! The error lists these bytes for each step.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use orlop_alloc::{LadderStep, Tag};
use orlop_core::{Device, MemoryKind};

/// The memory shortage that a callback is called for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pressure {
    /// The device.
    pub device: Device,
    /// The kind that needs memory.
    pub kind: MemoryKind,
    /// The tag of the request; [`Tag::NONE`] without one.
    pub tag: Tag,
    /// Bytes needed.
    pub bytes: u64,
}

/// A callback that frees memory. It returns how many bytes it believes to have freed, which is only a hint:
/// what counts, and is reported, is measured by the statistics of the context. It runs on the thread whose
/// request did not fit, with no lock held: it may drop blocks and allocate.
pub type PressureCallback = Arc<dyn Fn(&Pressure) -> u64 + Send + Sync>;

/// The id of a callback, from [`Context::on_pressure`](super::Context::on_pressure), with which it can be
/// removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PressureId(pub(super) u64);

/// How often each step was taken, and the bytes it freed or was lent.
#[derive(Debug, Default)]
pub(super) struct LadderCounts {
    steps: [(AtomicU64, AtomicU64); LadderStep::ALL.len()],
}

/// The counts of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepCount {
    /// The step.
    pub step: LadderStep,
    /// How often it was taken.
    pub taken: u64,
    /// Bytes in total that it freed or, for [`LadderStep::Borrow`], was lent.
    pub bytes: u64,
}

impl LadderCounts {
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
