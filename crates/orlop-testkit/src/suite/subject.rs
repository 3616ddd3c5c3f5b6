//! The subject of the suite: an allocator, over a backing that the suite controls if it can.

use crate::backings::{BackingCounters, CountingBacking, FailingBacking, FailureSchedule, PoisonBacking};
use crate::fake_device::FakeDeviceBacking;
use crate::fault::ConformanceFault;
use crate::{AllocatorModel, SuiteProfile};
use orlop_alloc::AllocatorRef;
use orlop_alloc::backing::BackingRef;
use std::fmt;
use std::sync::Arc;

/// A function that creates an allocator over a backing.
pub type MakeOverBacking<'a> = dyn Fn(BackingRef) -> AllocatorRef + 'a;

/// How the suite makes allocators.
pub(super) enum AllocatorFactory<'a> {
    Alone(&'a dyn Fn() -> AllocatorRef),
    Over { base: &'a dyn Fn() -> BackingRef, make: &'a MakeOverBacking<'a> },
}

/// The subject of a suite's run.
pub(super) struct Suite<'a> {
    pub(super) name: &'a str,
    pub(super) profile: SuiteProfile,
    pub(super) factory: AllocatorFactory<'a>,
    pub(super) cases: u32,
}

/// A new allocator, with its backing if the suite controls it.
pub(super) struct SuiteSetup {
    pub(super) allocator: AllocatorRef,
    pub(super) backing: Option<BackingControl>,
}

/// Counters and failures of the backing.
pub(super) struct BackingControl {
    pub(super) counts: Arc<BackingCounters>,
    pub(super) failures: Arc<FailureSchedule>,
}

impl Suite<'_> {
    pub(super) fn setup(&self) -> SuiteSetup {
        self.setup_with(false)
    }

    /// Creates an allocator, with dirty fresh memory if `poisoned` and if the suite controls the backing.
    pub(super) fn setup_with(&self, poisoned: bool) -> SuiteSetup {
        match &self.factory {
            AllocatorFactory::Alone(make) => SuiteSetup { allocator: make(), backing: None },
            AllocatorFactory::Over { base, make } => {
                let base = if poisoned { Arc::new(PoisonBacking::new(base())) } else { base() };
                let (failing, failures) = FailingBacking::new(base);
                let (counting, counts) = CountingBacking::new(failing);
                SuiteSetup {
                    allocator: make(Arc::new(counting)),
                    backing: Some(BackingControl { counts, failures }),
                }
            }
        }
    }

    /// Creates an allocator over memory that the CPU must not access, if the suite controls the backing.
    pub(super) fn fake_device_setup(&self) -> Option<SuiteSetup> {
        let AllocatorFactory::Over { make, .. } = &self.factory else { return None };
        let (failing, failures) = FailingBacking::new(FakeDeviceBacking::new());
        let (counting, counts) = CountingBacking::new(failing);
        let allocator = make(Arc::new(counting));
        // Some allocators put their backing behind CPU memory.
        (allocator.device() == FakeDeviceBacking::DEVICE)
            .then_some(SuiteSetup { allocator, backing: Some(BackingControl { counts, failures }) })
    }

    pub(super) fn model(&self, setup: &SuiteSetup) -> AllocatorModel {
        AllocatorModel::new(setup.allocator.clone(), self.profile)
    }
}

impl SuiteSetup {
    /// Drops the allocator and checks that the backing has everything back.
    pub(super) fn finish(self) -> Result<(), ConformanceFault> {
        drop(self.allocator);
        match self.backing {
            Some(control) => Ok(control.counts.check_returned()?),
            None => Ok(()),
        }
    }

    /// Returns the number of failed requests for regions, by the base or injected.
    pub(super) fn refused(&self) -> u64 {
        self.backing.as_ref().map_or(0, |control| control.failures.refused())
    }
}

impl fmt::Debug for Suite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suite")
            .field("name", &self.name)
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}
