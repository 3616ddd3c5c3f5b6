//! Threads, and lifetimes of blocks and handles.

use super::subject::{Suite, SuiteSetup};
use crate::fault::{ConformanceFault, equal, rule};
use crate::model::check_contents;
use crate::pattern;
use orlop_alloc::{Allocator, AllocatorRef, Block, Request};
use std::sync::mpsc;
use std::thread;

const THREADS: usize = 4;
const BLOCKS: u64 = 60;

/// Allocates a block and fills it with the pattern of `seed`, if the host can access it.
fn filled(allocator: &AllocatorRef, bytes: usize, seed: u64) -> Result<Block, ConformanceFault> {
    let mut block = allocator.allocate(&Request::new(bytes))?;
    if let Ok(bytes) = block.bytes_mut() {
        pattern::fill(seed, bytes);
    }
    Ok(block)
}

/// Each thread allocates, and frees its neighbour's blocks.
pub(super) fn frees_from_other_threads(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    let setup = suite.setup();
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..THREADS).map(|_| mpsc::channel::<(u64, Block)>()).unzip();
    let results: Vec<Result<(), ConformanceFault>> = thread::scope(|scope| {
        let mut workers = Vec::new();
        for (number, inbox) in receivers.into_iter().enumerate() {
            let outbox = senders[(number + 1) % THREADS].clone();
            let allocator = &setup.allocator;
            workers.push(scope.spawn(move || {
                let first = number as u64 * BLOCKS;
                for seed in first..first + BLOCKS {
                    let bytes = [40, 1000, 4096, 30_000][usize::try_from(seed % 4).unwrap_or(0)];
                    // The channel is closed only if the neighbour has failed.
                    if outbox.send((seed, filled(allocator, bytes, seed)?)).is_err() {
                        break;
                    }
                    while let Ok((seed, block)) = inbox.try_recv() {
                        check_contents(&block, seed)?;
                    }
                }
                drop(outbox);
                inbox.into_iter().try_for_each(|(seed, block)| check_contents(&block, seed))
            }));
        }
        drop(senders);
        let died = || Err(ConformanceFault::Rule("no thread panics"));
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| died())).collect()
    });
    results.into_iter().collect::<Result<(), _>>()?;
    let stats = setup.allocator.stats();
    equal("allocations by all threads", THREADS as u64 * BLOCKS, stats.totals.all.allocations)?;
    equal("frees by all threads", THREADS as u64 * BLOCKS, stats.totals.all.frees)?;
    equal("live bytes at the end", 0, stats.live())?;
    setup.allocator.verify()?;
    setup.finish()
}

/// Blocks work after the last handle was dropped, and the allocator is freed with the last of them.
pub(super) fn blocks_outlive_handles(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    let SuiteSetup { allocator, backing } = suite.setup();
    let second = allocator.clone();
    let blocks: Vec<(u64, Block)> = [100, 5000, 300_000]
        .into_iter()
        .zip(1..)
        .map(|(bytes, seed)| Ok((seed, filled(&allocator, bytes, seed)?)))
        .collect::<Result<_, ConformanceFault>>()?;
    drop(allocator);
    drop(second);
    blocks.iter().try_for_each(|(seed, block)| check_contents(block, *seed))?;
    if let Some(control) = &backing {
        rule("the memory of live blocks is still reserved", control.counts.check_returned().is_err())?;
    }
    thread::scope(|scope| {
        let last =
            scope.spawn(|| blocks.into_iter().try_for_each(|(seed, block)| check_contents(&block, seed)));
        last.join().unwrap_or(Err(ConformanceFault::Rule("no thread panics")))
    })?;
    backing.map_or(Ok(()), |control| Ok(control.counts.check_returned()?))
}

/// The last handle and the last blocks are dropped concurrently, in different threads.
pub(super) fn handles_dropped_elsewhere(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    for round in 0..8 {
        let SuiteSetup { allocator, backing } = suite.setup();
        let blocks: Vec<(u64, Block)> = (1..20)
            .map(|seed| Ok((seed, filled(&allocator, 500 + 100 * round, seed)?)))
            .collect::<Result<_, ConformanceFault>>()?;
        thread::scope(|scope| {
            scope.spawn(move || drop(allocator));
            let frees =
                scope.spawn(|| blocks.into_iter().try_for_each(|(seed, block)| check_contents(&block, seed)));
            frees.join().unwrap_or(Err(ConformanceFault::Rule("no thread panics")))
        })?;
        backing.map_or(Ok(()), |control| control.counts.check_returned())?;
    }
    Ok(())
}
