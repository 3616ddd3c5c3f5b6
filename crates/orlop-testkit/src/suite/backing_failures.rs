//! Failures of the backing, and the allocator afterwards.

use super::subject::Suite;
use crate::fault::{ConformanceFault, rule};
use crate::model::RequestOutcome;
use crate::{ProgramOp, ProgramRequest};
use orlop_alloc::{Allocator, Error, Request};

/// The number of the backing's results that are varied.
const VARIED: u32 = 6;

/// A short program under every combination of failed and granted regions: after each failure all invariants
/// hold, and the allocator works once the backing does.
pub(super) fn every_combination(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    let steps = [
        ProgramOp::Allocate(ProgramRequest::new(1000)),
        ProgramOp::Allocate(ProgramRequest::new(300_000).zeroed()),
        ProgramOp::Allocate(ProgramRequest::new(100).align_log2(16)),
        ProgramOp::FreeOldest,
        ProgramOp::Allocate(ProgramRequest::new(3 << 20)),
        ProgramOp::Allocate(ProgramRequest::new(2000)),
        ProgramOp::FreeNewest,
        ProgramOp::Allocate(ProgramRequest::new(70_000).zeroed()),
        ProgramOp::Trim(0),
        ProgramOp::Allocate(ProgramRequest::new(5 << 20)),
    ];
    for mask in 0..1u64 << VARIED {
        let setup = suite.setup();
        let Some(control) = &setup.backing else { return setup.finish() };
        control.failures.fail_calls(mask);
        let mut model = suite.model(&setup);
        for step in &steps {
            model.step(step)?;
            control.counts.check()?;
        }
        control.failures.heal();
        let mut granted = model.step(&ProgramOp::Allocate(ProgramRequest::new(1234)))?;
        if suite.profile.limited && !matches!(granted, Some(RequestOutcome::Granted)) {
            // Live blocks may fill a bounded pool: chunks may be twice the requested size, and the positions
            // of aligned blocks vary.
            model.step(&ProgramOp::FreeNewest)?;
            granted = model.step(&ProgramOp::Allocate(ProgramRequest::new(1234)))?;
        }
        rule("the allocator works after a failure", matches!(granted, Some(RequestOutcome::Granted)))?;
        model.step(&ProgramOp::CheckContents)?;
        model.finish()?;
        setup.finish()?;
    }
    Ok(())
}

/// The backing becomes full; the error reports it; freed memory can be allocated again.
pub(super) fn out_of_memory(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    const BLOCK: usize = 1 << 20;
    let setup = suite.setup();
    let Some(control) = &setup.backing else { return setup.finish() };
    control.failures.capacity(9 * BLOCK as u64);
    for round in 0..3 {
        let mut blocks = Vec::new();
        let error = loop {
            match setup.allocator.allocate(&Request::new(BLOCK - 1000)) {
                Ok(block) => blocks.push(block),
                Err(error) => break error,
            }
            rule("a full backing is detected", blocks.len() <= 9)?;
        };
        let Error::OutOfMemory(report) = error else { return Err(error.into()) };
        rule("the report has the requested bytes", report.requested == BLOCK - 1000)?;
        rule("the report has the bytes by kind", !report.by_kind.is_empty() || !suite.profile.counted)?;
        rule("some of it can be allocated", !blocks.is_empty())?;
        setup.allocator.verify()?;
        let had = blocks.len();
        blocks.pop();
        if suite.profile.reuses {
            // Not more than the freed block, so it must fit.
            let again = setup.allocator.allocate(&Request::new(BLOCK - 1000));
            rule("freed memory can be allocated again", again.is_ok())?;
        }
        drop(blocks);
        if !suite.profile.reuses || round == 1 {
            setup.allocator.trim(0);
        }
        rule("memory does not leak", round > 0 || had >= 4)?;
    }
    setup.finish()
}
