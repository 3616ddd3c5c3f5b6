//! Memory that is requested zeroed is zero, or the request fails.

use super::subject::{Suite, SuiteSetup};
use crate::fault::{ConformanceFault, equal, rule};
use crate::model::contents_mut;
use crate::pattern;
use orlop_alloc::{Block, Error, Request};
use orlop_core::MemoryKind;

/// Small sizes that are cached, large ones that are not, and some that are not multiples of anything.
const SIZES: [usize; 9] = [1, 63, 64, 1000, 4096, 65_537, 100_000, 1 << 20, (2 << 20) + 4096];

/// Over reused memory, and over fresh dirty memory.
pub(super) fn over_dirty_memory(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    for poisoned in [false, true] {
        is_zero(suite, suite.setup_with(poisoned))?;
    }
    Ok(())
}

/// The same with memory that the CPU must not access.
pub(super) fn on_a_device(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    suite.fake_device_setup().map_or(Ok(()), |setup| is_zero(suite, setup))
}

fn is_zero(suite: &Suite<'_>, setup: SuiteSetup) -> Result<(), ConformanceFault> {
    let get = |bytes: usize| {
        let fetch = |zeroed| {
            let request = Request::new(bytes);
            let request = if zeroed { request.zeroed() } else { request };
            match setup.allocator.allocate(&request) {
                Err(error) if suite.profile.limited && error.is_out_of_memory() => Ok(None),
                block => DirtyBlock::new(block?, zeroed).map(Some),
            }
        };
        // Some blocks are kept between freed ones, so that chunks are in all states.
        let blocks = [fetch(false)?, fetch(true)?, fetch(false)?, fetch(true)?];
        Ok::<_, ConformanceFault>(blocks)
    };
    let mut kept = Vec::new();
    for _ in 0..3 {
        for bytes in SIZES {
            let [first, second, third, fourth] = get(bytes)?;
            drop((first, third));
            kept.push(second);
            drop((get(bytes / 2 + 1)?, fourth));
        }
        kept.truncate(SIZES.len() / 2);
        setup.allocator.verify()?;
    }
    drop(kept);
    setup.finish()
}

/// A block with dirty contents.
#[derive(Debug)]
struct DirtyBlock(#[expect(dead_code, reason = "kept until dropped")] Block);

impl DirtyBlock {
    /// Checks the bytes, and makes them dirty.
    fn new(mut block: Block, zeroed: bool) -> Result<Self, ConformanceFault> {
        let address = block.as_ptr().as_ptr().addr();
        let bytes = contents_mut(&mut block).unwrap_or_default();
        if let (true, Some((offset, found))) = (zeroed, pattern::nonzero(bytes)) {
            return Err(ConformanceFault::NotZero { address, offset, found });
        }
        bytes.fill(0xab);
        Ok(Self(block))
    }
}

/// A backing that cannot zero: requests that need it fail with a typed error and without effect; all others
/// succeed.
pub(super) fn refused(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    for setup in [Some(suite.setup_with(true)), suite.fake_device_setup()].into_iter().flatten() {
        let Some(control) = &setup.backing else { return setup.finish() };
        let kept = setup.allocator.allocate(&Request::new(1000))?;
        for bytes in SIZES {
            drop(setup.allocator.allocate(&Request::new(bytes))?);
            let before = setup.allocator.stats();
            control.failures.refuse_zeros(true);
            match setup.allocator.allocate(&Request::new(bytes).zeroed()) {
                Err(Error::CannotZero { device }) => {
                    rule("the error names the device", device == setup.allocator.device())?;
                    let after = setup.allocator.stats();
                    equal("live bytes after a refusal", before.live(), after.live())?;
                    let allocations = |stats: &orlop_alloc::Stats| stats.totals.all.allocations;
                    equal("allocations after a refusal", allocations(&before), allocations(&after))?;
                }
                Err(other) => return Err(other.into()),
                // Not all free memory is dirty.
                Ok(block) => drop(DirtyBlock::new(block, true)?),
            }
            drop(setup.allocator.allocate(&Request::new(bytes).kind(MemoryKind::Workspace))?);
            control.failures.refuse_zeros(false);
            drop(DirtyBlock::new(setup.allocator.allocate(&Request::new(bytes).zeroed())?, true)?);
            setup.allocator.verify()?;
        }
        drop(kept);
        setup.finish()?;
    }
    Ok(())
}
