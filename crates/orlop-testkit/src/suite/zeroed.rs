//! Memory requested zeroed is zero, or the request fails.

use super::{Rig, Suite};
use crate::fault::{ConformanceFault, equal, rule};
use crate::model::contents_mut;
use crate::pattern;
use orlop_alloc::{Block, Error, Request};
use orlop_core::MemoryKind;

/// Small ones that are cached, large ones that are not, and some that are no multiple of anything.
const SIZES: [usize; 9] = [1, 63, 64, 1000, 4096, 65_537, 100_000, 1 << 20, (2 << 20) + 4096];

/// Over memory that was used before, and over fresh memory that is dirty.
pub(super) fn over_dirty_memory(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    for poisoned in [false, true] {
        is_zero(suite, suite.rig_with(poisoned))?;
    }
    Ok(())
}

/// The same with memory that the processor is not to touch.
pub(super) fn on_a_device(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    suite.far_rig().map_or(Ok(()), |rig| is_zero(suite, rig))
}

fn is_zero(suite: &Suite<'_>, rig: Rig) -> Result<(), ConformanceFault> {
    let get = |bytes: usize| {
        let fetch = |zeroed| {
            let request = Request::new(bytes);
            let request = if zeroed { request.zeroed() } else { request };
            match rig.allocator.allocate(&request) {
                Err(error) if suite.profile.limited && error.is_out_of_memory() => Ok(None),
                block => Dirtied::new(block?, zeroed).map(Some),
            }
        };
        // One that stays between two that go, so that what is free is neither all nor nothing.
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
        rig.allocator.verify()?;
    }
    drop(kept);
    rig.finish()
}

/// A block that nobody is to find zero afterwards.
#[derive(Debug)]
struct Dirtied(#[expect(dead_code, reason = "held")] Block);

impl Dirtied {
    /// Looks at the bytes, and makes them dirty.
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

/// A backing that cannot zero: requests that need it fail, typed, and cost nothing; all others go on.
pub(super) fn refused(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    for rig in [Some(suite.rig_with(true)), suite.far_rig()].into_iter().flatten() {
        let Some(hand) = &rig.backing else { return rig.finish() };
        let kept = rig.allocator.allocate(&Request::new(1000))?;
        for bytes in SIZES {
            drop(rig.allocator.allocate(&Request::new(bytes))?);
            let before = rig.allocator.stats();
            hand.failures.refuse_zeros(true);
            match rig.allocator.allocate(&Request::new(bytes).zeroed()) {
                Err(Error::CannotZero { device }) => {
                    rule("the error names the device", device == rig.allocator.device())?;
                    let after = rig.allocator.stats();
                    equal("live bytes after a refusal", before.live(), after.live())?;
                    let allocations = |stats: &orlop_alloc::Stats| stats.totals.all.allocations;
                    equal("allocations after a refusal", allocations(&before), allocations(&after))?;
                }
                Err(other) => return Err(other.into()),
                // Not all that is free is dirty.
                Ok(block) => drop(Dirtied::new(block, true)?),
            }
            drop(rig.allocator.allocate(&Request::new(bytes).kind(MemoryKind::Workspace))?);
            hand.failures.refuse_zeros(false);
            drop(Dirtied::new(rig.allocator.allocate(&Request::new(bytes).zeroed())?, true)?);
            rig.allocator.verify()?;
        }
        drop(kept);
        rig.finish()?;
    }
    Ok(())
}
