//! Limits, caches and occupancy: accepted, with plausible answers, and without effect on the simulation.

use crate::abi::{MemoryLocation, Out};
use crate::call::calls;
use crate::codes::{Failure, Outcome};
use crate::state::work::{Submission, Work};

/// Multiprocessors of a simulated device.
pub(super) const MULTIPROCESSORS: i32 = 4;

/// Threads that a simulated multiprocessor holds.
const THREADS: i32 = 2048;

/// Shared memory of a block.
const SHARED: usize = 49_152;

/// The number of limits of `CUlimit`.
const LIMITS: u32 = 11;

/// Returns how many blocks of this size a multiprocessor holds.
fn blocks(threads: i32) -> Option<i32> {
    (1..=1024).contains(&threads).then(|| (THREADS / threads).min(32))
}

/// Writes the block that fills a multiprocessor and the grid that fills the device.
fn potential(grid: &Out<i32>, block: &Out<i32>, limit: i32) -> Outcome {
    let threads = if limit == 0 { 1024 } else { limit.min(1024) };
    let blocks = blocks(threads).ok_or(Failure::INVALID_VALUE)?;
    block.set(threads)?;
    grid.set(blocks * MULTIPROCESSORS)
}

calls! {
    fn cuCtxGetLimit(value: Out<usize>, limit: u32) Context |_driver| {
        if limit < LIMITS { value.set(1 << 20) } else { Err(Failure::UNSUPPORTED_LIMIT) }
    }

    fn cuCtxSetLimit(limit: u32, _value: usize) Context |_driver| {
        if limit < LIMITS { Ok(()) } else { Err(Failure::UNSUPPORTED_LIMIT) }
    }

    fn cuCtxGetCacheConfig(config: Out<i32>) Context |_driver| { config.set(0) }

    fn cuCtxSetCacheConfig(_config: i32) Context |_driver| { Ok(()) }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        count: Out<i32>,
        function: u64,
        threads: i32,
        _shared: usize,
    ) Context |driver| {
        driver.modules.function(function)?;
        count.set(blocks(threads).ok_or(Failure::INVALID_VALUE)?)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        count: Out<i32>,
        function: u64,
        threads: i32,
        _shared: usize,
        _flags: u32,
    ) Context |driver| {
        driver.modules.function(function)?;
        count.set(blocks(threads).ok_or(Failure::INVALID_VALUE)?)
    }

    fn cuOccupancyMaxPotentialBlockSize(
        grid: Out<i32>,
        block: Out<i32>,
        function: u64,
        _shared_of: usize,
        _shared: usize,
        limit: i32,
    ) Context |driver| {
        driver.modules.function(function)?;
        potential(&grid, &block, limit)
    }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<i32>,
        block: Out<i32>,
        function: u64,
        _shared_of: usize,
        _shared: usize,
        limit: i32,
        _flags: u32,
    ) Context |driver| {
        driver.modules.function(function)?;
        potential(&grid, &block, limit)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: Out<usize>,
        function: u64,
        count: i32,
        threads: i32,
    ) Context |driver| {
        driver.modules.function(function)?;
        let fits = blocks(threads).is_some_and(|blocks| (1..=blocks).contains(&count));
        let count = usize::try_from(count).map_err(|_| Failure::INVALID_VALUE)?;
        if fits { bytes.set(SHARED / count) } else { Err(Failure::INVALID_VALUE) }
    }

    fn cuProfilerStart() Context |_driver| { Ok(()) }

    fn cuProfilerStop() Context |_driver| { Ok(()) }

    fn cuMemPrefetchAsync_v2(
        address: usize,
        bytes: usize,
        _place: MemoryLocation,
        _flags: u32,
        stream: u64,
    ) Context |driver| {
        driver.check_range(address, bytes)?;
        let id = driver.stream_of(stream)?;
        driver.submit(id, Submission::new("cuMemPrefetchAsync", Work::Nothing, Vec::new()))
    }

    fn cuMemAdvise_v2(address: usize, bytes: usize, _advice: i32, _place: MemoryLocation) Context |driver| {
        driver.check_range(address, bytes)
    }
}
