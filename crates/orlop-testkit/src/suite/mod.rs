//! One suite that every allocator passes.
//!
//! | part | modules |
//! |---|---|
//! | random programs against the [`Model`] | `programs` |
//! | sizes and alignments at the edges, zero bytes, host kinds | `edges` |
//! | figures, trimming, bounded memory | `figures` |
//! | refusals of the backing, out of memory and after | `refusals` |
//! | threads, and who outlives whom | `threads` |
//! | bare pointers and misuse | `raw` |
//! | stream uses | `streams` |
//! | zeros, or a refusal | `zeroed` |
//!
//! [`hostile`] is a suite of its own: user code that does harm when it is called.
//!
//! All parts run even if one fails, and the report names each that did. `ORLOP_CONFORMANCE_CASES` says how
//! many random programs of each sort are run; the same ones each time.

mod edges;
mod figures;
pub mod hostile;
mod programs;
mod raw;
mod refusals;
mod streams;
mod threads;
mod zeroed;

use crate::backings::{BackingCounters, CountingBacking, FailingBacking, FailureSchedule, PoisonBacking};
use crate::far::FarBacking;
use crate::{ConformanceFault, Model, SuiteProfile};
use orlop_alloc::AllocatorRef;
use orlop_alloc::backing::BackingRef;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The variable that says how many random programs are run.
pub const CASES_VARIABLE: &str = "ORLOP_CONFORMANCE_CASES";

const DEFAULT_CASES: u32 = 4;

/// Makes an allocator over a backing.
pub type MakeOver<'a> = dyn Fn(BackingRef) -> AllocatorRef + 'a;

enum Maker<'a> {
    Alone(&'a dyn Fn() -> AllocatorRef),
    Over { base: &'a dyn Fn() -> BackingRef, make: &'a MakeOver<'a> },
}

/// What a part works with.
pub(crate) struct Suite<'a> {
    name: &'a str,
    profile: SuiteProfile,
    maker: Maker<'a>,
    cases: u32,
}

/// A fresh allocator, with a hand on its backing if there is one to have.
pub(crate) struct Rig {
    allocator: AllocatorRef,
    backing: Option<Hand>,
}

/// What happens between engine and backing, seen and steered.
pub(crate) struct Hand {
    counts: Arc<BackingCounters>,
    failures: Arc<FailureSchedule>,
}

impl Suite<'_> {
    fn rig(&self) -> Rig {
        self.rig_with(false)
    }

    /// With fresh memory full of dirt, if `poisoned` and if the backing is in our hands.
    fn rig_with(&self, poisoned: bool) -> Rig {
        match &self.maker {
            Maker::Alone(make) => Rig { allocator: make(), backing: None },
            Maker::Over { base, make } => {
                let base = if poisoned { Arc::new(PoisonBacking::new(base())) } else { base() };
                let (failing, failures) = FailingBacking::new(base);
                let (counting, counts) = CountingBacking::new(failing);
                Rig { allocator: make(Arc::new(counting)), backing: Some(Hand { counts, failures }) }
            }
        }
    }

    /// Over memory that the processor is not to touch, if the backing is in our hands.
    fn far_rig(&self) -> Option<Rig> {
        let Maker::Over { make, .. } = &self.maker else { return None };
        let (failing, failures) = FailingBacking::new(FarBacking::new());
        let (counting, counts) = CountingBacking::new(failing);
        let allocator = make(Arc::new(counting));
        // Some put what they are given behind something of the processor's.
        (allocator.device() == FarBacking::DEVICE)
            .then_some(Rig { allocator, backing: Some(Hand { counts, failures }) })
    }

    fn model(&self, rig: &Rig) -> Model {
        Model::new(rig.allocator.clone(), self.profile)
    }
}

impl Rig {
    /// Lets go of the allocator and checks that the backing has everything back.
    fn finish(self) -> Result<(), ConformanceFault> {
        drop(self.allocator);
        match self.backing {
            Some(hand) => Ok(hand.counts.check_returned()?),
            None => Ok(()),
        }
    }

    /// Regions refused so far, by the base or on purpose.
    fn refused(&self) -> u64 {
        self.backing.as_ref().map_or(0, |hand| hand.failures.refused())
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
    ("figures", figures::counted),
    ("peaks start again", figures::peaks_start_again),
    ("trim", figures::trim),
    ("steady loops are bounded", figures::bounded),
    ("every refusal of the backing", refusals::every_combination),
    ("out of memory, free, succeed", refusals::out_of_memory),
    ("frees from other threads", threads::frees_from_other_threads),
    ("blocks outlive the handles", threads::blocks_outlive_handles),
    ("handles dropped elsewhere", threads::handles_dropped_elsewhere),
    ("bare pointers", raw::bare_pointers),
    ("stream uses", streams::delivered),
    ("stream uses that nobody waits for", streams::honoured_or_refused),
    ("zeros over dirty memory", zeroed::over_dirty_memory),
    ("zeros on a device", zeroed::on_a_device),
    ("zeros refused", zeroed::refused),
];

/// Runs the suite over the allocators that `make` makes, a fresh one for each part.
///
/// # Panics
///
/// If a part fails, with the name, every part that failed, and why.
pub fn conformance(name: &str, profile: SuiteProfile, make: impl Fn() -> AllocatorRef) {
    run(&Suite { name, profile, maker: Maker::Alone(&make), cases: cases() });
}

/// The same over a backing in the suite's hands: it counts the regions, refuses some, and makes fresh memory
/// dirty. `make` gets that backing, `base` makes what is under it.
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
    run(&Suite { name, profile, maker: Maker::Over { base: &base, make: &make }, cases: cases() });
}

/// Only the random programs of [`conformance_over`], `cases` of each sort: for large matrices.
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
    let suite = Suite { name, profile, maker: Maker::Over { base: &base, make: &make }, cases };
    run_parts(&suite, &PARTS[..3]);
}

/// Returns how many random programs of each sort are run: what [`CASES_VARIABLE`] says, or 4.
#[must_use]
pub fn cases() -> u32 {
    std::env::var(CASES_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(DEFAULT_CASES)
}

fn run(suite: &Suite<'_>) {
    run_parts(suite, PARTS);
}

fn run_parts(suite: &Suite<'_>, parts: &[(&str, SuitePart)]) {
    let mut failed = Vec::new();
    for (part, check) in parts {
        match catch_unwind(AssertUnwindSafe(|| check(suite))) {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => failed.push(format!("{} / {part}: {fault}", suite.name)),
            Err(panic) => failed.push(format!("{} / {part}: panicked: {}", suite.name, message(&*panic))),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// What a panic said.
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
