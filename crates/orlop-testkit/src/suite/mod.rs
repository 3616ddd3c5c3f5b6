//! The conformance suite for allocators.
//!
//! | part | modules |
//! |---|---|
//! | the allocator, over a backing that the suite controls | `subject` |
//! | how the parts of a suite run | `run` |
//! | random programs against the [`AllocatorModel`](crate::AllocatorModel) | `programs` |
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
mod programs;
mod raw;
pub(crate) mod run;
mod statistics;
mod streams;
mod subject;
mod threads;
mod zeroed;

use self::run::run_parts;
pub use self::run::{CASES_VARIABLE, cases};
pub use self::subject::MakeOverBacking;
use self::subject::{AllocatorFactory, Suite};
use crate::{ConformanceFault, SuiteProfile};
use orlop_alloc::AllocatorRef;
use orlop_alloc::backing::BackingRef;

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

fn run(suite: &Suite<'_>) {
    run_parts(suite.name, suite, PARTS);
}
