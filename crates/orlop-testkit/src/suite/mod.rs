//! The conformance suite for allocators.
//!
//! | part | modules |
//! |---|---|
//! | random programs against the [`AllocatorModel`] | `programs` |
//! | edge sizes and alignments, zero bytes, host kinds | `edges` |
//! | statistics, trimming, bounded memory | `statistics` |
//! | failures of the backing, out of memory | `backing_failures` |
//! | threads, and lifetimes of blocks and handles | `threads` |
//! | raw pointers and misuse | `raw` |
//! | stream uses | `streams` |
//! | zeroed memory | `zeroed` |
//!
//! [`hostile`] is a separate suite with hostile user code in callbacks.
//!
//! All parts run even if one fails, and the report names each failure. `ORLOP_CONFORMANCE_CASES` sets the
//! number of random programs of each sort; they are reproducible.

mod backing_failures;
mod edges;
pub mod hostile;
pub(crate) mod programs;
mod raw;
mod statistics;
mod streams;
mod threads;
mod zeroed;

use crate::backings::{BackingCounters, CountingBacking, FailingBacking, FailureSchedule, PoisonBacking};
use crate::fake_device::FakeDeviceBacking;
use crate::{AllocatorModel, ConformanceFault, SuiteProfile};
use orlop_alloc::AllocatorRef;
use orlop_alloc::backing::BackingRef;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The environment variable with the number of random programs.
pub const CASES_VARIABLE: &str = "ORLOP_CONFORMANCE_CASES";

const DEFAULT_CASES: u32 = 4;

/// A function that creates an allocator over a backing.
pub type MakeOverBacking<'a> = dyn Fn(BackingRef) -> AllocatorRef + 'a;

enum AllocatorFactory<'a> {
    Alone(&'a dyn Fn() -> AllocatorRef),
    Over { base: &'a dyn Fn() -> BackingRef, make: &'a MakeOverBacking<'a> },
}

/// The subject of a suite's run.
pub(crate) struct Suite<'a> {
    name: &'a str,
    profile: SuiteProfile,
    factory: AllocatorFactory<'a>,
    cases: u32,
}

/// A new allocator, with its backing if the suite controls it.
pub(crate) struct SuiteSetup {
    allocator: AllocatorRef,
    backing: Option<BackingControl>,
}

/// Counters and failures of the backing.
pub(crate) struct BackingControl {
    counts: Arc<BackingCounters>,
    failures: Arc<FailureSchedule>,
}

impl Suite<'_> {
    fn setup(&self) -> SuiteSetup {
        self.setup_with(false)
    }

    /// Creates an allocator, with dirty fresh memory if `poisoned` and if the suite controls the backing.
    fn setup_with(&self, poisoned: bool) -> SuiteSetup {
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
    fn fake_device_setup(&self) -> Option<SuiteSetup> {
        let AllocatorFactory::Over { make, .. } = &self.factory else { return None };
        let (failing, failures) = FailingBacking::new(FakeDeviceBacking::new());
        let (counting, counts) = CountingBacking::new(failing);
        let allocator = make(Arc::new(counting));
        // Some allocators put their backing behind CPU memory.
        (allocator.device() == FakeDeviceBacking::DEVICE)
            .then_some(SuiteSetup { allocator, backing: Some(BackingControl { counts, failures }) })
    }

    fn model(&self, setup: &SuiteSetup) -> AllocatorModel {
        AllocatorModel::new(setup.allocator.clone(), self.profile)
    }
}

impl SuiteSetup {
    /// Drops the allocator and checks that the backing has everything back.
    fn finish(self) -> Result<(), ConformanceFault> {
        drop(self.allocator);
        match self.backing {
            Some(control) => Ok(control.counts.check_returned()?),
            None => Ok(()),
        }
    }

    /// Returns the number of failed requests for regions, by the base or injected.
    fn refused(&self) -> u64 {
        self.backing.as_ref().map_or(0, |control| control.failures.refused())
    }
}

type SuitePart = fn(&Suite<'_>) -> Result<(), ConformanceFault>;

const PARTS: &[(&str, SuitePart)] = &[
    ("random programs", programs::random),
    ("random programs on dirty memory", programs::poisoned),
    ("random programs with a failing backing", programs::failing),
    ("random programs on a device's memory", programs::far),
    ("zero bytes", edges::zero_bytes),
    ("sizes 1 and up", edges::small_sizes),
    ("impossible sizes", edges::impossible_sizes),
    ("alignments up to 2 MiB", edges::alignments),
    ("alignments among fragments", edges::alignments_among_fragments),
    ("host kinds", edges::host_kinds),
    ("figures", statistics::counted),
    ("peaks after a reset", statistics::peaks_start_again),
    ("trim", statistics::trim),
    ("steady loops are bounded", statistics::bounded),
    ("every failure of the backing", backing_failures::every_combination),
    ("out of memory, free, success", backing_failures::out_of_memory),
    ("frees from other threads", threads::frees_from_other_threads),
    ("blocks outlive the handles", threads::blocks_outlive_handles),
    ("handles dropped on other threads", threads::handles_dropped_elsewhere),
    ("bare pointers", raw::bare_pointers),
    ("stream uses", streams::delivered),
    ("stream uses, honoured or refused", streams::honoured_or_refused),
    ("zeros over dirty memory", zeroed::over_dirty_memory),
    ("zeros on a device", zeroed::on_a_device),
    ("zeros refused", zeroed::refused),
];

/// Runs the suite over allocators from `make`, a new one for each part. The parts that need a backing of the
/// suite (its failures, its dirty memory) are not among them: see [`conformance_over`].
///
/// # Panics
///
/// If a part fails; the message names all failed parts with their faults.
pub fn conformance(name: &str, profile: SuiteProfile, make: impl Fn() -> AllocatorRef) {
    run(&Suite { name, profile, factory: AllocatorFactory::Alone(&make), cases: cases() });
}

/// Runs the suite over a backing that it controls: it counts regions, fails some requests, and returns dirty
/// memory. `make` gets that backing, and `base` creates the backing under it.
///
/// # Panics
///
/// As [`conformance`].
pub fn conformance_over(
    name: &str,
    profile: SuiteProfile,
    base: impl Fn() -> BackingRef,
    make: impl Fn(BackingRef) -> AllocatorRef,
) {
    run(&Suite {
        name,
        profile,
        factory: AllocatorFactory::Over { base: &base, make: &make },
        cases: cases(),
    });
}

/// Runs only the random programs of [`conformance_over`], `cases` of each sort: for large matrices.
///
/// # Panics
///
/// As [`conformance`].
pub fn programs_over(
    name: &str,
    profile: SuiteProfile,
    cases: u32,
    base: impl Fn() -> BackingRef,
    make: impl Fn(BackingRef) -> AllocatorRef,
) {
    let suite = Suite { name, profile, factory: AllocatorFactory::Over { base: &base, make: &make }, cases };
    run_parts(name, &suite, &PARTS[..3]);
}

/// Returns the number of random programs of each sort: the value of [`CASES_VARIABLE`], or 4.
#[must_use]
pub fn cases() -> u32 {
    std::env::var(CASES_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(DEFAULT_CASES)
}

fn run(suite: &Suite<'_>) {
    run_parts(suite.name, suite, PARTS);
}

/// A part of a suite, with its name.
pub(crate) type NamedPart<'a, S> = (&'a str, fn(&S) -> Result<(), ConformanceFault>);

/// Runs all parts, and panics with the faults of those that failed.
pub(crate) fn run_parts<S>(name: &str, suite: &S, parts: &[NamedPart<'_, S>]) {
    let mut failed = Vec::new();
    for (part, check) in parts {
        match catch_unwind(AssertUnwindSafe(|| check(suite))) {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => failed.push(format!("{name} / {part}: {fault}")),
            Err(panic) => failed.push(format!("{name} / {part}: panicked: {}", message(&*panic))),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Returns the message of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

impl fmt::Debug for Suite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suite")
            .field("name", &self.name)
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}
