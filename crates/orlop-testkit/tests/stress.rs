//! A stress test: eight threads, sizes from a byte to 64 MiB, frees on other threads, checked contents, for
//! two seconds per engine, or `ORLOP_STRESS_SECONDS` (`cargo xtask stress`).

use orlop_alloc::backing::Mmap;
use orlop_alloc::bfc::Bfc;
use orlop_alloc::caching::Caching;
use orlop_alloc::engine::{Pool, Pow2};
use orlop_alloc::{Allocator, AllocatorRef, Block, Request};
use orlop_testkit::device::Random;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

const THREADS: usize = 8;

/// The largest number of blocks that a thread keeps, and of their bytes.
const KEEP: usize = 64;
const KEEP_BYTES: usize = 96 << 20;

fn duration() -> Duration {
    let seconds = std::env::var("ORLOP_STRESS_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(2))
}

/// Returns the size of a request, mostly small: the magnitude is drawn first.
fn size(random: &mut Random) -> usize {
    let log2 = if random.one_in(200) { 26 } else { random.below(18) };
    (1 + random.below(1 << log2)).min(64 << 20)
}

/// Returns a block with its first and last byte written.
fn stamped(allocator: &AllocatorRef, random: &mut Random) -> Option<(Block, u8)> {
    let mut request = Request::new(size(random));
    if random.one_in(16) {
        request = request.zeroed();
    }
    let mut block = allocator.allocate(&request).ok()?;
    let stamp = random.number().to_le_bytes()[0];
    let bytes = block.bytes_mut().expect("host memory");
    let ends = [0, bytes.len() - 1];
    assert!(!request.zeroed || ends.iter().all(|&end| bytes[end] == 0), "zeroed memory is zero");
    ends.iter().for_each(|&end| bytes[end] = stamp);
    Some((block, stamp))
}

fn check(block: &Block, stamp: u8) {
    let bytes = block.bytes().expect("host memory");
    assert!(bytes[0] == stamp && bytes[bytes.len() - 1] == stamp, "the block was overwritten");
}

fn work(
    allocator: &AllocatorRef,
    seed: u64,
    over: &AtomicBool,
    to: &SyncSender<(Block, u8)>,
    from: &Receiver<(Block, u8)>,
) {
    let mut random = Random::new(seed);
    let mut kept: Vec<(Block, u8)> = Vec::new();
    let mut bytes = 0;
    while !over.load(Ordering::Relaxed) {
        if let Some((block, stamp)) = stamped(allocator, &mut random) {
            bytes += block.len();
            kept.push((block, stamp));
        }
        while kept.len() > KEEP || bytes > KEEP_BYTES {
            let (block, stamp) = kept.swap_remove(random.below(kept.len()));
            bytes -= block.len();
            check(&block, stamp);
            // Every third block goes to the next thread, if its queue has room.
            if random.one_in(3) {
                let _ = to.try_send((block, stamp));
            }
        }
        for (block, stamp) in from.try_iter() {
            check(&block, stamp);
        }
        match random.below(20_000) {
            0 => drop(allocator.trim(0)),
            1 => assert!(allocator.stats().totals.all.live_bytes < u64::MAX / 2),
            2 => allocator.verify().expect("the invariants hold"),
            _ => {}
        }
    }
}

fn stress(allocator: &AllocatorRef) {
    let over = AtomicBool::new(false);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| sync_channel(256)).unzip();
    thread::scope(|scope| {
        let mut receivers = receivers;
        receivers.rotate_left(1);
        for ((seed, to), from) in (1..).zip(senders).zip(receivers) {
            let over = &over;
            scope.spawn(move || {
                work(allocator, seed, over, &to, &from);
            });
        }
        thread::sleep(duration());
        over.store(true, Ordering::Relaxed);
    });
    allocator.verify().expect("the invariants hold");
    let all = allocator.stats().totals.all;
    assert_eq!((all.allocations - all.frees, all.live_bytes, all.requested_bytes), (0, 0, 0));
    assert!(all.allocations > 1000, "{} allocations", all.allocations);
    allocator.trim(0);
    assert_eq!(allocator.usage().reserved, 0);
}

#[test]
fn caching() {
    stress(&Caching::new(Mmap::new()).into_ref().erase());
}

#[test]
fn bfc() {
    stress(&Bfc::new(Mmap::new()).into_ref().erase());
}

#[test]
fn pow2() {
    stress(&Pow2::new(Mmap::new()).into_ref().erase());
}

#[test]
fn pool() {
    stress(&Pool::new(Mmap::new()).into_ref().erase());
}
