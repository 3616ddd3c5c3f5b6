//! What criterion has no form for: two threads at once, every page touched, cold first passes, and memory.
//!
//! Each figure is the median of some windows; contenders take turns within one run.

use crate::Named;
use crate::peers::{self, Peer};
use orlop_alloc::{AllocatorRef, Block, Request};
use orlop_trace::{Step, Trace};
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
pub fn pass(allocator: &AllocatorRef, trace: &Trace, touch: Touch, slots: &mut [Option<Block>]) {
    for step in trace.steps() {
        match step {
            Step::Allocate { slot, bytes, .. } => {
                let mut block = allocator.allocate(&Request::new(bytes)).expect("memory for the traces");
                if let Ok(bytes) = block.bytes_mut() {
                    write(bytes, touch);
                }
                slots[slot] = Some(block);
            }
            Step::Free { slot } => slots[slot] = None,
        }
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

fn slots(trace: &Trace) -> Vec<Option<Block>> {
    (0..trace.slots()).map(|_| None).collect()
}

/// Who is compared.
pub enum Contender<'a> {
    /// An orlop allocator.
    Orlop(AllocatorRef),
    /// Somebody else's.
    Peer(&'a dyn Peer),
}

impl std::fmt::Debug for Contender<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Contender")
    }
}

impl Contender<'_> {
    fn loops(&self, trace: &Trace, go_on: impl Fn() -> bool) -> (u64, Duration) {
        let (mut passes, begin) = (0, Instant::now());
        match self {
            Self::Orlop(allocator) => {
                let mut slots = slots(trace);
                while go_on() {
                    pass(allocator, trace, Touch::First, &mut slots);
                    passes += 1;
                }
            }
            Self::Peer(peer) => {
                let mut slots = vec![None; trace.slots()];
                while go_on() {
                    peers::pass(*peer, trace, &mut slots);
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

/// Two threads, each with a trace of its own, for `window`: nanoseconds per operation of either.
///
/// # Panics
///
/// If there is no memory for the traces.
#[must_use]
pub fn two_threads(contender: &Contender<'_>, traces: [&Trace; 2], window: Duration) -> [f64; 2] {
    let (start, over) = (Barrier::new(3), AtomicBool::new(false));
    thread::scope(|scope| {
        let threads = traces.map(|trace| {
            let (start, over) = (&start, &over);
            scope.spawn(move || {
                // Relaxed: a stop sign.
                let first = std::cell::Cell::new(true);
                contender.loops(trace, || first.replace(false));
                start.wait();
                per_operation(trace, contender.loops(trace, || !over.load(Ordering::Relaxed)))
            })
        });
        start.wait();
        thread::sleep(window);
        over.store(true, Ordering::Relaxed);
        threads.map(|thread| thread.join().expect("the passes do not panic"))
    })
}

/// The time of a steady pass that writes each page, over that of the same writes at addresses known in advance.
///
/// # Panics
///
/// If there is no memory for the trace.
#[must_use]
pub fn pages_over_known(allocator: &AllocatorRef, trace: &Trace, window: Duration) -> f64 {
    let mut slots = slots(trace);
    for _ in 0..3 {
        pass(allocator, trace, Touch::Pages, &mut slots);
    }
    // The addresses of one more pass, in one piece of memory of our own: as far apart as they were.
    let mut known = Vec::new();
    for step in trace.steps() {
        match step {
            Step::Allocate { slot, bytes, .. } => {
                let block = allocator.allocate(&Request::new(bytes)).expect("memory for the traces");
                known.push((block.as_ptr().as_ptr().addr(), bytes));
                slots[slot] = Some(block);
            }
            Step::Free { slot } => slots[slot] = None,
        }
    }
    slots.fill_with(|| None);
    let lowest = known.iter().map(|&(address, _)| address).min().unwrap_or(0) / PAGE * PAGE;
    let end = known.iter().map(|&(address, bytes)| address + bytes).max().unwrap_or(0);
    let mut memory = vec![1u8; end - lowest];
    let mut best = [f64::INFINITY; 2];
    let begin = Instant::now();
    while begin.elapsed() < window {
        let start = Instant::now();
        for &(address, bytes) in &known {
            write(&mut memory[address - lowest..][..bytes], Touch::Pages);
        }
        best[0] = best[0].min(start.elapsed().as_secs_f64());
        let start = Instant::now();
        pass(allocator, trace, Touch::Pages, &mut slots);
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
    let mut slots = slots(trace);
    let passes = (0..5).map(|_| {
        let allocator = make();
        let start = Instant::now();
        pass(&allocator, trace, Touch::Pages, &mut slots);
        start.elapsed()
    });
    passes.min().unwrap_or_default()
}

/// Nanoseconds from one thread's allocation to another's return of the same block, per block: one thread allocates
/// and hands over in batches, the other returns.
///
/// # Panics
///
/// If there is no memory.
#[must_use]
pub fn handed_over(allocator: &AllocatorRef, bytes: usize, window: Duration) -> f64 {
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
        let each = (allocating + returning).as_nanos() as f64 / blocks as f64;
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
                let mut slots = slots(trace);
                for _ in 0..passes {
                    pass(allocator, trace, Touch::First, &mut slots);
                }
            });
        }
    });
    let live: u64 = traces.iter().map(|(_, trace)| trace.peak().bytes).sum();
    allocator.stats().usage.peak_reserved as f64 / live as f64
}

/// The geometric mean.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a handful of figures")]
pub fn mean(figures: &[f64]) -> f64 {
    (figures.iter().map(|figure| figure.ln()).sum::<f64>() / figures.len() as f64).exp()
}
