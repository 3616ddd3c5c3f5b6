//! Random programs against the model.

use super::{Rig, Suite};
use crate::fault::{ConformanceFault, rule};
use crate::model::RequestOutcome;
use crate::program::{Mix, ProgramOp, program};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

pub(super) fn random(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    run(suite, Mix::default(), || Some(suite.rig()))
}

pub(super) fn poisoned(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    run(suite, DIRTY, || Some(suite.rig_with(true)))
}

pub(super) fn far(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    run(suite, DIRTY, || suite.far_rig())
}

/// For memory of which every byte is written before it is handed out.
const DIRTY: Mix = Mix { steps: 40, max_bytes: 100_000, max_align_log2: 12, failures: true };

pub(super) fn failing(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    run(suite, Mix { failures: true, ..Mix::default() }, || Some(suite.rig()))
}

/// The same programs each time, others for each name.
fn runner(suite: &Suite<'_>) -> TestRunner {
    let mut seed = [0u8; 32];
    for (index, byte) in suite.name.bytes().enumerate() {
        let place = &mut seed[index % 32];
        *place = place.wrapping_mul(31).wrapping_add(byte);
    }
    let config =
        Config { cases: suite.cases, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}

fn run(suite: &Suite<'_>, mix: Mix, rig: impl Fn() -> Option<Rig>) -> Result<(), ConformanceFault> {
    let outcome = runner(suite).run(&program(mix), |ops| {
        let Some(rig) = rig() else { return Ok(()) };
        run_one(suite, rig, &ops).map_err(|fault| TestCaseError::fail(fault.to_string()))
    });
    // The text names the smallest program that fails.
    assert!(outcome.is_ok(), "{}", outcome.err().map(|error| error.to_string()).unwrap_or_default());
    Ok(())
}

fn run_one(suite: &Suite<'_>, rig: Rig, ops: &[ProgramOp]) -> Result<(), ConformanceFault> {
    let mut model = suite.model(&rig);
    for op in ops {
        if let (ProgramOp::InjectFailure(count), Some(hand)) = (op, &rig.backing) {
            hand.failures.fail_next(u64::from(*count));
            // For as long as nothing else is injected.
            hand.failures.refuse_zeros(*count == 1);
        }
        let refused = rig.refused();
        let possible = match op {
            ProgramOp::Allocate(ask) => ask.kind.check_on(rig.allocator.device()).is_ok(),
            _ => true,
        };
        if let (Some(RequestOutcome::Refused), true) = (model.step(op)?, possible) {
            let backing_refused = rig.refused() > refused;
            rule(
                "a request is refused only if the backing refused",
                suite.profile.limited || backing_refused,
            )?;
        }
        if let Some(hand) = &rig.backing {
            hand.counts.check()?;
        }
    }
    if let Some(hand) = &rig.backing {
        hand.failures.heal();
    }
    model.finish()?;
    rig.finish()
}
