//! What criterion has no form for: two threads at once, every page touched, cold first passes, and memory.
//!
//! Each figure is the median of some windows; contenders take turns within one run.

use crate::peers::{self, Peer};
use crate::{Named, Operation, Operations, operations};
use orlop_alloc::{AllocatorRef, Block, Request};
use orlop_trace::formats::text::Trace;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How much of a block a pass writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Touch {
    /// Its first byte.
    First,
    /// A byte in each of its 4 KiB.
    Pages,
}

const PAGE: usize = 4096;

/// One pass of a trace through an orlop allocator. `slots` is empty before and after.
///
/// # Panics
///
/// If there is no memory for the trace, or `slots` is too short.
pub fn pass(allocator: &AllocatorRef, operations: &Operations, touch: Touch, slots: &mut [Option<Block>]) {
    pass_with(
        |request| allocator.allocate(request).expect("memory for the traces"),
        operations,
        touch,
        slots,
    );
}

/// [`pass`], with any allocator.
#[inline]
pub fn pass_with(
    mut allocate: impl FnMut(&Request) -> Block,
    operations: &Operations,
    touch: Touch,
    slots: &mut [Option<Block>],
) {
    for &Operation { bytes, slot, returned } in operations.iter() {
        if returned {
            slots[slot as usize] = None;
            continue;
        }
        let mut block = allocate(&Request::new(bytes));
        if let Ok(bytes) = block.bytes_mut() {
            write(bytes, touch);
        }
        slots[slot as usize] = Some(block);
    }
    slots.fill_with(|| None);
}

fn write(bytes: &mut [u8], touch: Touch) {
    match touch {
        Touch::First => {
            if let Some(first) = bytes.first_mut() {
                *first = 1;
            }
        }
        Touch::Pages => bytes.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1),
    }
}

/// Room for the blocks of a trace.
#[must_use]
pub fn slots(trace: &Trace) -> Vec<Option<Block>> {
    (0..trace.slots()).map(|_| None).collect()
}

/// Who is compared.
pub enum Contender<'a> {
    /// An orlop allocator.
    Orlop(AllocatorRef),
    /// Another allocator's.
    Peer(&'a dyn Peer),
}

impl std::fmt::Debug for Contender<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Contender")
    }
}

impl Contender<'_> {
    fn loops(&self, trace: &Trace, go_on: impl Fn() -> bool) -> (u64, Duration) {
        let operations = operations(trace);
        let (mut passes, begin) = (0, Instant::now());
        match self {
            Self::Orlop(allocator) => {
                let mut slots = slots(trace);
                while go_on() {
                    pass(allocator, &operations, Touch::First, &mut slots);
                    passes += 1;
                }
            }
            Self::Peer(peer) => {
                let mut slots = vec![None; trace.slots()];
                while go_on() {
                    peers::pass(*peer, &operations, &mut slots);
                    passes += 1;
                }
            }
        }
        (passes, begin.elapsed())
    }
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds per operation")]
fn per_operation(trace: &Trace, (passes, time): (u64, Duration)) -> f64 {
    time.as_nanos() as f64 / (passes * trace.len() as u64) as f64
}

/// Nanoseconds per operation of threads that run side by side for `window`, each with a trace of its own.
///
/// # Panics
///
/// If there is no memory for the traces.
#[must_use]
pub fn threads(contender: &Contender<'_>, traces: &[&Trace], window: Duration) -> Vec<f64> {
    let (start, over) = (Barrier::new(traces.len() + 1), AtomicBool::new(false));
    thread::scope(|scope| {
        let run = |&trace| {
            let (start, over) = (&start, &over);
            scope.spawn(move || {
                let first = std::cell::Cell::new(true);
                contender.loops(trace, || first.replace(false));
                start.wait();
                // Relaxed: a stop sign.
                per_operation(trace, contender.loops(trace, || !over.load(Ordering::Relaxed)))
            })
        };
        let threads: Vec<_> = traces.iter().map(run).collect();
        start.wait();
        thread::sleep(window);
        over.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("the passes do not panic")).collect()
    })
}

/// The time of a steady pass that writes each page, over that of the same writes at addresses known in
/// advance.
///
/// # Panics
///
/// If there is no memory for the trace.
#[must_use]
pub fn pages_over_known(allocator: &AllocatorRef, trace: &Trace, window: Duration) -> f64 {
    let (operations, mut slots) = (operations(trace), slots(trace));
    // In one piece of memory of our own: as far apart as they were.
    let known = places(allocator, &operations, Touch::Pages, &mut slots);
    let end = known.iter().map(|&(offset, bytes)| offset + bytes).max().unwrap_or(0);
    let mut memory = vec![1u8; end];
    let mut best = [f64::INFINITY; 2];
    let begin = Instant::now();
    while begin.elapsed() < window {
        let start = Instant::now();
        for &(offset, bytes) in &known {
            write(&mut memory[offset..][..bytes], Touch::Pages);
        }
        best[0] = best[0].min(start.elapsed().as_secs_f64());
        let start = Instant::now();
        pass(allocator, &operations, Touch::Pages, &mut slots);
        best[1] = best[1].min(start.elapsed().as_secs_f64());
    }
    best[1] / best[0]
}

/// The time of a first pass that writes each page, through a new allocator each time: the least of five.
///
/// # Panics
///
/// If there is no memory for the trace.
pub fn cold(make: impl Fn() -> AllocatorRef, trace: &Trace) -> Duration {
    let (operations, mut slots) = (operations(trace), slots(trace));
    let passes = (0..5).map(|_| {
        let allocator = make();
        let start = Instant::now();
        pass(&allocator, &operations, Touch::Pages, &mut slots);
        start.elapsed()
    });
    passes.min().unwrap_or_default()
}

/// Nanoseconds of a block's allocation by one thread, and of its return by another: blocks are handed over in
/// batches.
///
/// # Panics
///
/// If there is no memory.
#[must_use]
pub fn handed_over(allocator: &AllocatorRef, bytes: usize, window: Duration) -> [f64; 2] {
    const BATCH: usize = 256;
    let (give, take) = std::sync::mpsc::sync_channel::<Vec<Block>>(4);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let source = scope.spawn(|| {
            let give = give;
            let (mut blocks, mut spent) = (0u64, Duration::ZERO);
            while !over.load(Ordering::Relaxed) {
                let mut batch = Vec::with_capacity(BATCH);
                let start = Instant::now();
                batch.extend((0..BATCH).map(|_| allocator.allocate(&Request::new(bytes)).expect("memory")));
                spent += start.elapsed();
                blocks += BATCH as u64;
                if give.send(batch).is_err() {
                    break;
                }
            }
            (blocks, spent)
        });
        let sink = scope.spawn(move || {
            let mut spent = Duration::ZERO;
            for batch in take {
                let start = Instant::now();
                drop(batch);
                spent += start.elapsed();
            }
            spent
        });
        thread::sleep(window);
        over.store(true, Ordering::Relaxed);
        let (blocks, allocating) = source.join().expect("the passes do not panic");
        let returning = sink.join().expect("the passes do not panic");
        #[expect(clippy::cast_precision_loss, reason = "nanoseconds per block")]
        let each = [allocating, returning].map(|spent| spent.as_nanos() as f64 / blocks as f64);
        each
    })
}

/// Peak reserved over peak live after `passes` passes of two threads' traces, or of one.
///
/// # Panics
///
/// If there is no memory for the traces.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a ratio")]
pub fn reserved_over_live(allocator: &AllocatorRef, traces: &[&Named], passes: u64) -> f64 {
    thread::scope(|scope| {
        for (_, trace) in traces {
            scope.spawn(move || {
                let (operations, mut slots) = (operations(trace), slots(trace));
                for _ in 0..passes {
                    pass(allocator, &operations, Touch::First, &mut slots);
                }
            });
        }
    });
    let live: u64 = traces.iter().map(|(_, trace)| trace.peak().bytes).sum();
    allocator.stats().usage.peak_reserved as f64 / live as f64
}

/// Where the blocks of a pass are, from the lowest page on, and how large; after enough passes for an
/// allocator that learns.
fn places(
    allocator: &AllocatorRef,
    operations: &Operations,
    touch: Touch,
    slots: &mut [Option<Block>],
) -> Vec<(usize, usize)> {
    for _ in 0..20 {
        pass(allocator, operations, touch, slots);
    }
    let mut places = Vec::new();
    let note = |request: &Request| {
        let block = allocator.allocate(request).expect("memory for the traces");
        places.push((block.as_ptr().as_ptr().addr(), request.bytes));
        block
    };
    pass_with(note, operations, Touch::First, slots);
    let lowest = places.iter().map(|&(address, _)| address).min().unwrap_or(0) / PAGE * PAGE;
    places.iter_mut().for_each(|(address, _)| *address -= lowest);
    places
}

/// Addresses that are known in advance: what replaying itself costs, and the first touch.
#[derive(Debug)]
pub struct Known {
    memory: Vec<u8>,
    /// By operation: where in the memory.
    offsets: Vec<usize>,
}

impl Known {
    /// The addresses of a pass through `allocator`, which has learned what there is to learn.
    ///
    /// # Panics
    ///
    /// If there is no memory for the trace.
    #[must_use]
    pub fn new(allocator: &AllocatorRef, operations: &Operations, slots: &mut [Option<Block>]) -> Self {
        let places = places(allocator, operations, Touch::First, slots);
        let offsets: Vec<_> = places.into_iter().map(|(offset, _)| offset).collect();
        let end = offsets.iter().copied().max().unwrap_or(0) + 1;
        Self { memory: vec![1; end], offsets }
    }

    /// One pass. `slots` has room for as many as the trace needs.
    pub fn pass(&mut self, operations: &Operations, slots: &mut [Option<usize>]) {
        let mut offsets = self.offsets.iter();
        for operation in operations.iter() {
            let slot = &mut slots[operation.slot as usize];
            *slot = if operation.returned { None } else { offsets.next().copied() };
            if let Some(offset) = *slot {
                self.memory[offset] = 1;
            }
        }
    }
}

/// The geometric mean.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a handful of figures")]
pub fn mean(figures: &[f64]) -> f64 {
    (figures.iter().map(|figure| figure.ln()).sum::<f64>() / figures.len() as f64).exp()
}
