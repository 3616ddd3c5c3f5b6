//! Requests at the edges: zero bytes, one byte, impossible sizes, every alignment, host kinds on devices.

use super::subject::Suite;
use crate::fault::{ConformanceFault, equal, rule};
use crate::model::RequestOutcome;
use crate::program::{MAX_ALIGN_LOG2, alignment};
use crate::{ProgramOp, ProgramRequest};
use orlop_alloc::{AllocationId, Allocator, Error, Request};
use orlop_core::{Alignment, MemoryKind};

/// Zero bytes never reach the backing, and the block has its device and kind.
pub(super) fn zero_bytes(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    let setup = suite.setup();
    if setup.allocator.has_opaque_handles() {
        return setup.finish();
    }
    let before = setup.backing.as_ref().map(|control| control.counts.stats());
    for kind in [MemoryKind::Default, MemoryKind::Persistent, MemoryKind::KvCache] {
        for log2 in [0, 6, MAX_ALIGN_LOG2] {
            let request = Request::new(0).kind(kind).align(alignment(log2)).zeroed();
            let mut block = setup.allocator.allocate(&request)?;
            rule("an empty block has length and capacity 0", (block.len(), block.capacity()) == (0, 0))?;
            rule("an empty block knows its device", block.device() == setup.allocator.device())?;
            rule("an empty block knows its kind", block.kind() == kind)?;
            rule("an empty block is aligned", request.align.is_aligned(block.as_ptr().as_ptr().addr()))?;
            rule("an empty block has no id", block.id() == AllocationId::NONE)?;
            rule("an empty block has no bytes", block.bytes_mut()?.is_empty())?;
        }
    }
    let stats = setup.allocator.stats();
    equal("allocations after empty requests", 0, stats.totals.all.allocations)?;
    equal("reserved bytes after empty requests", 0, stats.usage.reserved)?;
    if let (Some(before), Some(control)) = (before, &setup.backing) {
        rule("an empty request does not reach the backing", before == control.counts.stats())?;
    }
    setup.finish()
}

pub(super) fn small_sizes(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    let setup = suite.setup();
    let mut model = suite.model(&setup);
    for log2 in 0..16 {
        for bytes in [(1usize << log2) - 1, 1 << log2, (1 << log2) + 1] {
            let granted = model.step(&ProgramOp::Allocate(ProgramRequest::new(bytes)))?;
            rule("small requests are granted", matches!(granted, Some(RequestOutcome::Granted)))?;
        }
    }
    model.finish()?;
    setup.finish()
}

/// Impossible sizes are typed errors, after which the allocator works. Address space may be that large.
pub(super) fn impossible_sizes(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    let setup = suite.setup();
    let mut model = suite.model(&setup);
    model.step(&ProgramOp::Allocate(ProgramRequest::new(1000)))?;
    let largest = isize::MAX.unsigned_abs();
    let sizes = [
        usize::MAX,
        usize::MAX - 1,
        usize::MAX - 255,
        usize::MAX - 4096,
        usize::MAX - (8 << 30),
        largest,
        largest + 1,
        largest - 1,
        largest - 4095,
        largest / 2 + 1,
        1 << 60,
        1 << 52,
    ];
    for bytes in sizes {
        for log2 in [0, 6, 8, 12, MAX_ALIGN_LOG2] {
            model.step(&ProgramOp::Allocate(ProgramRequest::new(bytes).align_log2(log2).zeroed()))?;
            model.step(&ProgramOp::Allocate(ProgramRequest::new(100)))?;
            model.step(&ProgramOp::FreeNewest)?;
            if model.live() > 1 {
                model.step(&ProgramOp::FreeNewest)?;
            }
        }
    }
    for log2 in [40, 50, usize::BITS - 2, usize::BITS - 1] {
        model.step(&ProgramOp::Allocate(ProgramRequest::new(64).align_log2(log2)))?;
        model.step(&ProgramOp::Allocate(ProgramRequest::new(100)))?;
    }
    model.finish()?;
    setup.finish()
}

/// Every alignment up to 2 MiB is supported.
pub(super) fn alignments(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    let setup = suite.setup();
    let mut model = suite.model(&setup);
    for log2 in (0..=MAX_ALIGN_LOG2).rev() {
        for bytes in [1, 64, 1000, 5000] {
            let granted = model.step(&ProgramOp::Allocate(ProgramRequest::new(bytes).align_log2(log2)))?;
            let granted = matches!(granted, Some(RequestOutcome::Granted));
            rule("alignments up to 2 MiB are granted", granted || suite.profile.limited)?;
        }
        model.step(&ProgramOp::FreeOldest)?;
        model.step(&ProgramOp::FreeNewest)?;
    }
    model.finish()?;
    setup.finish()
}

/// Many free chunks are large enough but misaligned: the search must continue, or get a new region that fits.
pub(super) fn alignments_among_fragments(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    let setup = suite.setup();
    let mut model = suite.model(&setup).without_verify();
    for _ in 0..64 {
        model.step(&ProgramOp::Allocate(ProgramRequest::new(4096)))?;
        model.step(&ProgramOp::Allocate(ProgramRequest::new(256)))?;
    }
    // Frees every other block: 64 holes.
    for hole in 0..64u16 {
        model.step(&ProgramOp::Free(hole))?;
    }
    for log2 in [16, MAX_ALIGN_LOG2] {
        let refused = setup.refused();
        let granted = model.step(&ProgramOp::Allocate(ProgramRequest::new(4000).align_log2(log2)))?;
        let excused = suite.profile.limited || setup.refused() > refused;
        rule(
            "fragments do not make requests fail",
            matches!(granted, Some(RequestOutcome::Granted)) || excused,
        )?;
    }
    setup.allocator.verify()?;
    model.finish()?;
    setup.finish()
}

/// Host kinds exist on the CPU only.
pub(super) fn host_kinds(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    let setup = suite.setup();
    for kind in MemoryKind::ALL {
        for bytes in [0, 100] {
            let result = setup.allocator.allocate(&Request::new(bytes).kind(kind).align(Alignment::ONE));
            match (kind.check_on(setup.allocator.device()), result) {
                (Ok(()), Ok(block)) => rule("the block knows its kind", block.kind() == kind)?,
                (Err(expected), Err(Error::InvalidRequest(found))) => {
                    rule("a host kind on a device fails as such", expected == found)?;
                }
                (Ok(()), Err(error)) => return Err(error.into()),
                (Err(_), _) => {
                    return Err(ConformanceFault::Rule("a host kind on a device fails as such"));
                }
            }
        }
    }
    setup.finish()
}
