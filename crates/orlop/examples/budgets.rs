//! Budgets: how many bytes each kind of memory may hold, and what happens when a kind needs more.
//!
//! ```text
//! cargo run -p orlop --example budgets
//! ```
//!
//! A kind says what memory is for. Here the KV cache may hold 1 MiB and workspace 256 KiB. The program keeps
//! a list of sequences it can recompute; a callback drops the oldest ones when the budget of the KV cache is
//! reached.

use orlop::memory::{Budget, Pressure};
use orlop::prelude::*;
use orlop::types::ByteSize;
use std::collections::VecDeque;
use std::error::Error;
use std::sync::{Arc, Mutex};

/// The KV cache of one sequence.
const SEQUENCE_BYTES: usize = 256 << 10;

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let context = Context::new();
    // Set budgets before the first allocation: blocks from before are not charged. `strict` means that a kind
    // neither borrows unused budget of other kinds nor lends its own.
    context.set_budget(Device::CPU, MemoryKind::KvCache, Budget::hard(1 << 20).strict())?;
    context.set_budget(Device::CPU, MemoryKind::Workspace, Budget::hard(256 << 10).strict())?;

    // The callback runs on the thread whose request did not fit, with no lock of orlop's held, so it may drop
    // blocks.
    let sequences = Arc::new(Mutex::new(VecDeque::<Block>::new()));
    let evictable = Arc::clone(&sequences);
    context.on_pressure(
        MemoryKind::KvCache,
        Arc::new(move |pressure: &Pressure| {
            let mut freed = 0;
            while freed < pressure.bytes {
                let Some(oldest) = evictable.lock().unwrap_or_else(|e| e.into_inner()).pop_front() else {
                    break;
                };
                freed += oldest.capacity() as u64;
            }
            println!("  callback: {} needed, {} evicted", ByteSize(pressure.bytes), ByteSize(freed));
            freed
        }),
    );

    println!("six sequences, room for four:");
    for number in 1..=6 {
        // The lock is not held here: the callback takes it.
        let block = context.allocate(Device::CPU, &Request::new(SEQUENCE_BYTES).kind(MemoryKind::KvCache))?;
        sequences.lock().unwrap_or_else(|e| e.into_inner()).push_back(block);
        let status = context.budget_status(Device::CPU, MemoryKind::KvCache);
        println!("  sequence {number}: the KV cache holds {}", ByteSize(status.live));
    }

    // Another kind has a budget of its own, and nothing to evict.
    let workspace = Request::new(300 << 10).kind(MemoryKind::Workspace);
    if let Err(error) = context.allocate(Device::CPU, &workspace) {
        println!("\nworkspace is refused, whatever the KV cache holds:\n  {error}");
    }

    println!("\nthree requests did not fit at once; the steps that were tried for them:");
    for count in context.ladder() {
        let times = if count.taken == 1 { "time" } else { "times" };
        let (step, bytes, effect) = (count.step.to_string(), ByteSize(count.bytes), count.step.effect());
        println!("  {step:<20} {} {times}, {bytes} {effect}", count.taken);
    }
    Ok(())
}
