//! A backing that refuses, and what the allocator makes of it.

use super::Suite;
use crate::fault::{ConformanceFault, rule};
use crate::model::RequestOutcome;
use crate::{ProgramOp, ProgramRequest};
use orlop_alloc::{Allocator, Error, Request};

/// So many of the backing's answers are varied.
const VARIED: u32 = 6;

/// A short program under every combination of refused and granted regions: after each refusal all
/// invariants hold, and the allocator works once the backing does.
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
        let rig = suite.rig();
        let Some(hand) = &rig.backing else { return rig.finish() };
        hand.failures.fail_calls(mask);
        let mut model = suite.model(&rig);
        for step in &steps {
            model.step(step)?;
            hand.counts.check()?;
        }
        hand.failures.heal();
        let mut granted = model.step(&ProgramOp::Allocate(ProgramRequest::new(1234)))?;
        if suite.profile.limited && !matches!(granted, Some(RequestOutcome::Granted)) {
            // What lives may fill a bounded pool: chunks may be twice what was asked for, and where aligned
            // blocks lie differs from run to run.
            model.step(&ProgramOp::FreeNewest)?;
            granted = model.step(&ProgramOp::Allocate(ProgramRequest::new(1234)))?;
        }
        rule("the allocator works after a refusal", matches!(granted, Some(RequestOutcome::Granted)))?;
        model.step(&ProgramOp::CheckContents)?;
        model.finish()?;
        rig.finish()?;
    }
    Ok(())
}

/// The backing runs full; the error says so; what is freed can be had again.
pub(super) fn out_of_memory(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    const BLOCK: usize = 1 << 20;
    let rig = suite.rig();
    let Some(hand) = &rig.backing else { return rig.finish() };
    hand.failures.capacity(9 * BLOCK as u64);
    for round in 0..3 {
        let mut blocks = Vec::new();
        let error = loop {
            match rig.allocator.allocate(&Request::new(BLOCK - 1000)) {
                Ok(block) => blocks.push(block),
                Err(error) => break error,
            }
            rule("a full backing is noticed", blocks.len() <= 9)?;
        };
        let Error::OutOfMemory(report) = error else { return Err(error.into()) };
        rule("the report has what was asked", report.requested == BLOCK - 1000)?;
        rule("the report has what is held by kind", !report.by_kind.is_empty() || !suite.profile.counted)?;
        rule("some of it can be had", !blocks.is_empty())?;
        rig.allocator.verify()?;
        let had = blocks.len();
        blocks.pop();
        if suite.profile.reuses {
            // Not more than what just went: it must fit.
            let again = rig.allocator.allocate(&Request::new(BLOCK - 1000));
            rule("what was freed can be had again", again.is_ok())?;
        }
        drop(blocks);
        if !suite.profile.reuses || round == 1 {
            rig.allocator.trim(0);
        }
        rule("memory does not leak away", round > 0 || had >= 4)?;
    }
    rig.finish()
}
