//! The subject of the suite, and its context over a backing that the suite controls.

use super::engine::MakePlanned;
use crate::backings::{BackingCounters, CountingBacking, FailingBacking, FailureSchedule, PoisonBacking};
use crate::fault::ConformanceFault;
use orlop_alloc::Allocator;
use orlop_alloc::backing::{BackingRef, System};
use orlop_alloc::engine::Direct;
use orlop_context::Context;
use orlop_core::{Device, MemoryKind};
use std::fmt;
use std::sync::Arc;

/// The subject of the suite's run.
pub(super) struct PlannedSuite<'a> {
    pub(super) name: &'a str,
    pub(super) make: &'a MakePlanned<'a>,
}

/// A context over a backing that the suite controls.
pub(super) struct PlannedSetup {
    pub(super) context: Context,
    pub(super) counts: Arc<BackingCounters>,
    pub(super) failures: Arc<FailureSchedule>,
}

impl PlannedSetup {
    /// Makes a context whose arenas are regions of the backing, each of exactly the requested bytes, with
    /// dirty memory if `poisoned`.
    pub(super) fn new(poisoned: bool) -> Result<Self, ConformanceFault> {
        let base: BackingRef =
            if poisoned { Arc::new(PoisonBacking::new(System::new())) } else { Arc::new(System::new()) };
        let (failing, failures) = FailingBacking::new(base);
        let (counting, counts) = CountingBacking::new(failing);
        let context = Context::new();
        context.register(Device::CPU, MemoryKind::Default, Direct::new(counting).into_ref())?;
        Ok(Self { context, counts, failures })
    }

    /// Checks that the backing has everything back. The context must be dropped before.
    pub(super) fn check_returned(counts: &BackingCounters) -> Result<(), ConformanceFault> {
        Ok(counts.check_returned()?)
    }
}

impl fmt::Debug for PlannedSuite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlannedSuite").field("name", &self.name).finish_non_exhaustive()
    }
}
