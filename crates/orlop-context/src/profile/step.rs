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
