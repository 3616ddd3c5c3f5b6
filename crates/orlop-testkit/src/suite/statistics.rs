//! Statistics, trimming, bounded memory.

use super::subject::Suite;
use crate::fault::{ConformanceFault, at_least, equal, rule};
use crate::{ProgramOp, ProgramRequest};
use orlop_alloc::{Allocator, Request};

/// Each step updates the statistics, which the model checks.
pub(super) fn counted(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    let setup = suite.setup();
    let mut model = suite.model(&setup);
    for round in 0..3 {
        for bytes in [1, 100, 70_000, 4096, 200_000] {
            model.step(&ProgramOp::Allocate(ProgramRequest::new(bytes)))?;
        }
        model.step(&ProgramOp::FreeOldest)?;
        model.step(&ProgramOp::Free(round))?;
    }
    rule(
        "the table is printed",
        setup.allocator.stats().to_string().contains("default") || !suite.profile.counted,
    )?;
    model.finish()?;
    setup.finish()
}

pub(super) fn peaks_start_again(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    let setup = suite.setup();
    let kept = setup.allocator.allocate(&Request::new(1000))?;
    drop(setup.allocator.allocate(&Request::new(500_000))?);
    setup.allocator.trim(0);
    setup.allocator.reset_peaks();
    let stats = setup.allocator.stats();
    if suite.profile.counted {
        equal("the peak of live bytes after a reset", kept.capacity() as u64, stats.totals.all.peak_bytes)?;
    }
    equal("the peak of reserved bytes after a reset", stats.usage.reserved, stats.usage.peak_reserved)?;
    drop(kept);
    setup.finish()
}

/// `trim` releases what it reports, never live blocks, and everything if there are none.
pub(super) fn trim(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    let setup = suite.setup();
    let mut model = suite.model(&setup);
    for _ in 0..4 {
        for bytes in [300_000, 10_000, 100] {
            model.step(&ProgramOp::Allocate(ProgramRequest::new(bytes)))?;
        }
    }
    for target in [u64::MAX, 1 << 20, 1 << 16, 0] {
        for _ in 0..3 {
            model.step(&ProgramOp::FreeOldest)?;
        }
        model.step(&ProgramOp::Trim(target))?;
        model.step(&ProgramOp::CheckContents)?;
    }
    model.step(&ProgramOp::Trim(0))?;
    model.step(&ProgramOp::Allocate(ProgramRequest::new(5000).zeroed()))?;
    model.finish()?;
    setup.finish()
}

/// A loop that frees what it allocates reaches a steady state, with constant and with varying sizes.
pub(super) fn bounded(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    if !suite.profile.reuses {
        return Ok(());
    }
    let setup = suite.setup();
    for bytes in [24, 1000, 5000, 70_000] {
        let mut round = |step: usize| {
            let first = setup.allocator.allocate(&Request::new(bytes))?;
            let second = setup.allocator.allocate(&Request::new(bytes / 2 + 1))?;
            if step.is_multiple_of(2) {
                drop(first);
                drop(second);
            } else {
                drop(second);
                drop(first);
            }
            Ok::<(), ConformanceFault>(())
        };
        (0..50).try_for_each(&mut round)?;
        let settled = setup.allocator.stats().usage.reserved;
        (0..300).try_for_each(&mut round)?;
        at_least(
            "reserved bytes of a settled loop, against later",
            setup.allocator.stats().usage.reserved,
            settled,
        )?;
    }
    setup.allocator.verify()?;
    setup.finish()
}
