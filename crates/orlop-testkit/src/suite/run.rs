//! How the parts of a suite run, and how many random programs each has.

use crate::fault::ConformanceFault;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The environment variable with the number of random programs.
pub const CASES_VARIABLE: &str = "ORLOP_CONFORMANCE_CASES";

const DEFAULT_CASES: u32 = 4;

/// Returns the number of random programs of each sort: the value of [`CASES_VARIABLE`], or 4.
#[must_use]
pub fn cases() -> u32 {
    std::env::var(CASES_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(DEFAULT_CASES)
}

/// Returns a runner with a fixed seed for each name.
pub(crate) fn runner(name: &str, cases: u32) -> TestRunner {
    let mut seed = [0u8; 32];
    for (index, byte) in name.bytes().enumerate() {
        let place = &mut seed[index % 32];
        *place = place.wrapping_mul(31).wrapping_add(byte);
    }
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
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
pub(super) fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
