//! What a pair of an allocation and its free costs with several threads.

use super::{Costs, Result, head, row};
use orlop_alloc::{Allocator, AllocatorRef, Block, Request};
use orlop_core::StreamId;
use orlop_cuda::caching_allocator_with;
use orlop_device::{Policy, TorchConf};
use std::sync::{Barrier, mpsc};
use std::time::{Duration, Instant};

const BYTES: usize = 1 << 20;

/// Nanoseconds of a pair with 1, 2, 4 and 8 threads, each on its own stream, and of a block that another
/// thread frees.
pub(super) fn threads(costs: &Costs) -> Result<()> {
    let pairs = costs.or_quick(300_000, 200);
    println!("ns per pair of 1 MiB through `dyn Allocator`, each thread on its own stream\n");
    head(&["allocator", "1 thread", "2", "4", "8", "allocated, freed by another thread"]);
    for policy in [Policy::orlop(), Policy::torch(&TorchConf::default())] {
        let name = policy.name;
        let allocator: AllocatorRef = caching_allocator_with(&costs.device, policy)?.into_ref().erase();
        let mut cells = Vec::new();
        for threads in [1, 2, 4, 8] {
            cells.push(format!("{:.0}", pairs_of(costs, &allocator, threads, pairs)?));
        }
        let [allocated, freed] = foreign_frees(costs, &allocator, pairs)?;
        cells.push(format!("{allocated:.0}, {freed:.0}"));
        row(format!("`{name}`"), cells);
    }
    Ok(())
}

/// Returns the mean of the threads' nanoseconds for a pair, after as many to warm up.
fn pairs_of(costs: &Costs, allocator: &AllocatorRef, threads: usize, pairs: u32) -> Result<f64> {
    let streams =
        (0..threads).map(|_| costs.device.create_stream()).collect::<std::result::Result<Vec<_>, _>>()?;
    let start = Barrier::new(threads);
    let run = |stream: StreamId| -> Result<f64> {
        let request = Request::new(BYTES).stream(stream);
        let half = || (0..pairs).try_for_each(|_| allocator.allocate(&request).map(drop));
        let warm = half();
        start.wait();
        warm?;
        let begin = Instant::now();
        half()?;
        Ok(begin.elapsed().as_nanos() as f64 / f64::from(pairs))
    };
    let run = &run;
    std::thread::scope(|scope| {
        let threads: Vec<_> = streams.iter().map(|stream| scope.spawn(move || run(stream.id()))).collect();
        let count = threads.len() as f64;
        let times = threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?);
        Ok(times.collect::<Result<Vec<_>>>()?.iter().sum::<f64>() / count)
    })
}

/// Returns the nanoseconds of an allocation on one thread, and of its free on another, without the channel
/// between them.
fn foreign_frees(costs: &Costs, allocator: &AllocatorRef, pairs: u32) -> Result<[f64; 2]> {
    const BATCH: u32 = 64;
    let stream = costs.device.create_stream()?;
    let request = Request::new(BYTES).stream(stream.id());
    // As much as is on the way at once, and more: nothing grows later.
    let warm = (0..5 * BATCH).map(|_| allocator.allocate(&request));
    drop(warm.collect::<orlop_alloc::Result<Vec<_>>>()?);
    let (send, receive) = mpsc::sync_channel::<Vec<Block>>(2);
    let batches = pairs.div_ceil(BATCH);
    let mut allocating = Duration::ZERO;
    let freeing = std::thread::scope(|scope| -> Result<Duration> {
        let freeing = scope.spawn(move || {
            let mut spent = Duration::ZERO;
            for blocks in receive {
                let start = Instant::now();
                drop(blocks);
                spent += start.elapsed();
            }
            spent
        });
        for _ in 0..batches {
            let start = Instant::now();
            let blocks = (0..BATCH).map(|_| allocator.allocate(&request));
            let blocks = blocks.collect::<orlop_alloc::Result<_>>()?;
            allocating += start.elapsed();
            send.send(blocks)?;
        }
        drop(send);
        Ok(freeing.join().map_err(|_| "a thread panicked")?)
    })?;
    Ok([allocating, freeing].map(|time| time.as_nanos() as f64 / f64::from(batches * BATCH)))
}
