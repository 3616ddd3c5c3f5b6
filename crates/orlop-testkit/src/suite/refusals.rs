//! A backing that refuses, and what the allocator makes of it.

use super::Suite;
use crate::fault::{Fault, rule};
use crate::model::Outcome;
use crate::{Ask, Op};
use orlop_alloc::{Allocator, Error, Request};

/// So many of the backing's answers are varied.
const VARIED: u32 = 6;

/// A short program under every combination of refused and granted regions: after each refusal all
/// invariants hold, and the allocator works once the backing does.
pub(super) fn every_combination(suite: &Suite<'_>) -> Result<(), Fault> {
    let steps = [
        Op::Allocate(Ask::new(1000)),
        Op::Allocate(Ask::new(300_000).zeroed()),
        Op::Allocate(Ask::new(100).align_log2(16)),
        Op::FreeOldest,
        Op::Allocate(Ask::new(3 << 20)),
        Op::Allocate(Ask::new(2000)),
        Op::FreeNewest,
        Op::Allocate(Ask::new(70_000).zeroed()),
        Op::Trim(0),
        Op::Allocate(Ask::new(5 << 20)),
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
        let mut granted = model.step(&Op::Allocate(Ask::new(1234)))?;
        if suite.profile.limited && !matches!(granted, Some(Outcome::Granted)) {
            // What lives may fill a bounded pool: chunks may be twice what was asked for, and where aligned
            // blocks lie differs from run to run.
            model.step(&Op::FreeNewest)?;
            granted = model.step(&Op::Allocate(Ask::new(1234)))?;
        }
        rule("the allocator works after a refusal", matches!(granted, Some(Outcome::Granted)))?;
        model.step(&Op::CheckContents)?;
        model.finish()?;
        rig.finish()?;
    }
    Ok(())
}

/// The backing runs full; the error says so; what is freed can be had again.
pub(super) fn out_of_memory(suite: &Suite<'_>) -> Result<(), Fault> {
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
