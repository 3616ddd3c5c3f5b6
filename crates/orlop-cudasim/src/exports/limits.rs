//! Limits, caches and occupancy: accepted, with plausible answers, and without effect on the simulation.

use crate::abi::Out;
use crate::call::calls;
use crate::codes::Failure;
use crate::streams::Submission;
use crate::work::Work;

/// Threads that a simulated multiprocessor holds.
const THREADS: i32 = 2048;

/// The number of limits of `CUlimit`.
const LIMITS: u32 = 11;

/// Returns how many blocks of this size a multiprocessor holds.
fn blocks(threads: i32) -> Option<i32> {
    (1..=1024).contains(&threads).then(|| (THREADS / threads).min(32))
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

    fn cuMemPrefetchAsync_v2(
        address: usize,
        bytes: usize,
        _place: u64,
        _flags: u32,
        stream: u64,
    ) Context |driver| {
        driver.check_range(address, bytes)?;
        let id = driver.stream_of(stream)?;
        driver.submit(id, Submission::new("cuMemPrefetchAsync", Work::Nothing, Vec::new()))
    }

    fn cuMemAdvise_v2(address: usize, bytes: usize, _advice: i32, _place: u64) Context |driver| {
        driver.check_range(address, bytes)
    }
}
