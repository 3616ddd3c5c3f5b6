//! Raw pointers, and misuse that the allocator can detect.

use super::subject::Suite;
use crate::fault::{ConformanceFault, equal, rule};
use orlop_alloc::{Allocator, Error, Request};
use std::ptr::NonNull;

fn refused<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::ForeignPointer { .. } | Error::DoubleFree { .. }))
}

/// Blocks are converted to raw pointers and freed by address; any other address is an error, and errors have
/// no effect.
pub(super) fn bare_pointers(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    let setup = suite.setup();
    let allocator = &setup.allocator;
    let mut elsewhere = 0u8;
    let foreign = NonNull::from(&mut elsewhere);
    let block = allocator.allocate(&Request::new(1000))?;
    if !allocator.has_raw_deleter() {
        let Err(block) = block.into_raw_ptr() else {
            return Err(ConformanceFault::Rule("without a raw deleter a block is not converted"));
        };
        // SAFETY: rejected before the address is used.
        let result = unsafe { allocator.free(foreign, None) };
        rule("without a raw deleter nothing is freed", matches!(result, Err(Error::NoRawDeleter)))?;
        drop(block);
        return setup.finish();
    }
    let neighbour = allocator.allocate(&Request::new(1000))?;
    let ptr =
        block.into_raw_ptr().map_err(|_| ConformanceFault::Rule("a raw deleter accepts raw pointers"))?;
    equal("live blocks with one given away", 2, allocator.stats().totals.all.live_blocks())?;
    // SAFETY: inside the block just converted: 1000 bytes.
    let inside = unsafe { ptr.add(64) };
    // SAFETY: violates the contract on purpose, here and below: an allocator with a raw deleter looks the
    // address up and rejects what is not a live block's.
    let result = unsafe { allocator.free(inside, None) };
    rule("an address inside a block is rejected", refused(result))?;
    // SAFETY: as above.
    let result = unsafe { allocator.free(foreign, Some(1)) };
    rule("a foreign pointer is rejected as such", matches!(result, Err(Error::ForeignPointer { .. })))?;
    // SAFETY: converted, not in use, freed for the first time. The size is wrong, which is tolerated.
    unsafe { allocator.free(ptr, Some(7)) }?;
    // SAFETY: as for the foreign pointer. Nothing was allocated since.
    let result = unsafe { allocator.free(ptr, Some(1000)) };
    rule("a double free is rejected", refused(result))?;
    equal("refused frees", 3, allocator.stats().refused_frees)?;
    equal("live blocks after refusals", 1, allocator.stats().totals.all.live_blocks())?;
    allocator.verify()?;
    drop(neighbour);
    let mut model = suite.model(&setup);
    drop(allocator.allocate(&Request::new(1000))?);
    equal("live bytes at the end", 0, allocator.stats().live())?;
    model.trim(0)?;
    drop(model);
    setup.finish()
}
