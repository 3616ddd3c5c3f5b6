//! What is recorded of a step.

use super::shapes::ShapeStats;
use orlop_core::MemoryKind;
use std::borrow::Cow;
use std::panic::Location;
use std::time::Duration;

/// Statistics of a step, over all memory or one kind. Bytes are granted bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct StepStats {
    /// Allocated blocks.
    pub allocations: u64,
    /// Freed blocks.
    pub frees: u64,
    /// Allocated bytes.
    pub allocated_bytes: u64,
    /// Freed bytes.
    pub freed_bytes: u64,
    /// Live bytes at the start.
    pub live_before: u64,
    /// Live bytes at the end.
    pub live_after: u64,
    /// The peak of live bytes. Over all kinds: the peak of their sum.
    pub peak_bytes: u64,
}

/// A finished step.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StepMemory {
    /// The name that the program gave it.
    pub name: Cow<'static, str>,
    /// The place in the program where it started.
    pub at: &'static Location<'static>,
    /// The number of steps of the same thread that it is nested in.
    pub depth: usize,
    /// The operating system's id of the thread if it has one, else a number that differs by thread.
    pub thread: u64,
    /// The time from the start of the profile to that of the step.
    pub begun: Duration,
    /// The time that the step took on the host, nested steps included.
    pub host_time: Duration,
    /// The time of its work on the device, nested steps included: with
    /// [`MemorySteps::time_on`](super::MemorySteps::time_on), where it could be measured.
    pub device_time: Option<Duration>,
    /// How many steps this is: more than one in a [grouped](super::StepTable::grouped) table.
    pub times: u64,
    /// All memory.
    pub all: StepStats,
    /// By kind, at [`MemoryKind::index`].
    pub kinds: [StepStats; MemoryKind::COUNT],
    /// By shape, the largest in bytes first, if
    /// [`MemorySteps::record_shapes`](super::MemorySteps::record_shapes) is on. Memory that is not for a
    /// tensor is left out.
    pub shapes: Vec<ShapeStats>,
    /// The index of the step in the profile, from zero, in the order in which steps started.
    pub order: u64,
}

impl StepMemory {
    pub(super) fn new(name: Cow<'static, str>, at: &'static Location<'static>, order: u64) -> Self {
        let (all, kinds) = (StepStats::default(), [StepStats::default(); MemoryKind::COUNT]);
        Self {
            name,
            at,
            depth: 0,
            thread: 0,
            begun: Duration::ZERO,
            host_time: Duration::ZERO,
            device_time: None,
            times: 1,
            all,
            kinds,
            shapes: Vec::new(),
            order,
        }
    }

    /// Returns the statistics of one kind.
    #[must_use]
    pub fn kind(&self, kind: MemoryKind) -> &StepStats {
        &self.kinds[kind.index()]
    }
}

impl StepStats {
    /// Returns live bytes after the step less those before; negative if it freed more than it allocated.
    #[must_use]
    pub fn growth(&self) -> i64 {
        // Bytes of one address space: the difference fits.
        self.live_after.wrapping_sub(self.live_before).cast_signed()
    }

    /// Returns `true` if nothing happened and nothing was live.
    pub(super) fn is_idle(&self) -> bool {
        *self == Self::default()
    }

    /// Adds a later step of the same name.
    pub(super) fn merge(&mut self, later: &Self) {
        self.allocations += later.allocations;
        self.frees += later.frees;
        self.allocated_bytes = self.allocated_bytes.saturating_add(later.allocated_bytes);
        self.freed_bytes = self.freed_bytes.saturating_add(later.freed_bytes);
        self.live_after = later.live_after;
        self.peak_bytes = self.peak_bytes.max(later.peak_bytes);
    }
}
