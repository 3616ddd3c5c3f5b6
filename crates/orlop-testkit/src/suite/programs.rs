//! Random programs against the model.

use super::run::runner;
use super::subject::{Suite, SuiteSetup};
use crate::fault::{ConformanceFault, rule};
use crate::model::RequestOutcome;
use crate::program::{ProgramMix, ProgramOp, program};
use proptest::test_runner::TestCaseError;

pub(super) fn random(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    run(suite, ProgramMix::default(), || Some(suite.setup()))
}

pub(super) fn poisoned(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    run(suite, DIRTY, || Some(suite.setup_with(true)))
}

pub(super) fn far(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    run(suite, DIRTY, || suite.fake_device_setup())
}

/// For memory that is written completely before it is returned.
const DIRTY: ProgramMix = ProgramMix { steps: 40, max_bytes: 100_000, max_align_log2: 12, failures: true };

pub(super) fn failing(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    run(suite, ProgramMix { failures: true, ..ProgramMix::default() }, || Some(suite.setup()))
}

fn run(
    suite: &Suite<'_>,
    mix: ProgramMix,
    setup: impl Fn() -> Option<SuiteSetup>,
) -> Result<(), ConformanceFault> {
    let outcome = runner(suite.name, suite.cases).run(&program(mix), |ops| {
        let Some(setup) = setup() else { return Ok(()) };
        run_one(suite, setup, &ops).map_err(|fault| TestCaseError::fail(fault.to_string()))
    });
    // The message has the smallest program that fails.
    assert!(outcome.is_ok(), "{}", outcome.err().map(|error| error.to_string()).unwrap_or_default());
    Ok(())
}

fn run_one(suite: &Suite<'_>, setup: SuiteSetup, ops: &[ProgramOp]) -> Result<(), ConformanceFault> {
    let mut model = suite.model(&setup);
    for op in ops {
        if let (ProgramOp::InjectFailure(count), Some(control)) = (op, &setup.backing) {
            control.failures.fail_next(u64::from(*count));
            // Zeroing fails until the next injection.
            control.failures.refuse_zeros(*count == 1);
        }
        let refused = setup.refused();
        let possible = match op {
            ProgramOp::Allocate(request) => request.kind.check_on(setup.allocator.device()).is_ok(),
            _ => true,
        };
        if let (Some(RequestOutcome::Refused), true) = (model.step(op)?, possible) {
            let backing_refused = setup.refused() > refused;
            rule("a request fails only if the backing failed", suite.profile.limited || backing_refused)?;
        }
        if let Some(control) = &setup.backing {
            control.counts.check()?;
        }
    }
    if let Some(control) = &setup.backing {
        control.failures.heal();
    }
    model.finish()?;
    setup.finish()
}
