//! Trimmed memory goes back to the system: measured by the resident set of a process of its own.
#![cfg(all(target_os = "linux", not(miri), not(loom)))]

use orlop_alloc::backing::{HugePages, Mmap};
use orlop_alloc::caching::Caching;
use orlop_alloc::{Allocator, Block, Request};
use std::fs;
use std::sync::{Barrier, mpsc};
use std::thread;

/// Returns the resident bytes of this process.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("resident set size");
    let kib: usize = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
    kib << 10
}

fn fill(bytes: usize, allocator: &orlop_alloc::AllocatorRef) -> Block {
    let mut block = allocator.allocate(&Request::new(bytes)).expect("memory");
    block.bytes_mut().expect("of the host").fill(1);
    block
}

/// Threads that cached, planned and freed each other's blocks are idle; one trims; the process is as small as
/// before.
#[test]
fn after_trimming_all_the_process_is_as_small_as_before() {
    const THREADS: usize = 4;
    if std::env::var_os("ASAN_OPTIONS").is_some() {
        eprintln!("skipped: AddressSanitizer keeps what is freed");
        return;
    }
    // First the threads, their stacks and the test's own allocations.
    let before_threads = Barrier::new(THREADS + 1);
    let (used, over) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    let allocator = Caching::new(Mmap::new().huge_pages(HugePages::Never)).into_ref().erase();
    let (to_next, blocks) = mpsc::channel::<Block>();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (allocator, to_next) = (&allocator, to_next.clone());
            let (before_threads, used, over) = (&before_threads, &used, &over);
            scope.spawn(move || {
                before_threads.wait();
                for round in 0..200 {
                    let mut live = Vec::new();
                    for step in 0..40 {
                        live.push(fill(1000 + 40_000 * ((step * 7 + number) % 40), allocator));
                        if live.len() > 4 {
                            drop(live.remove(step % 4));
                        }
                    }
                    // Sizes without a period, and blocks for another thread.
                    drop(fill(100_000 + 1777 * round, allocator));
                    to_next.send(fill(50_000, allocator)).expect("main listens");
                }
                used.wait();
                over.wait();
            });
        }
        drop(to_next);
        let before = resident();
        before_threads.wait();
        // They end when all blocks are sent: received meanwhile, freed by this thread.
        let returned = blocks.iter().take(200 * THREADS).count();
        used.wait();
        let between = resident();
        allocator.trim(0);
        let after = resident();
        let held = (allocator.stats().live(), allocator.stats().usage.reserved);
        // Up to here the threads are idle, not ended.
        over.wait();
        // Many live blocks, and their records.
        drop((0..100_000).map(|_| fill(64, &allocator)).collect::<Vec<_>>());
        allocator.trim(0);
        #[cfg(target_env = "gnu")]
        // SAFETY: it may be called at any time. Records come from malloc, whose cache is not orlop's.
        unsafe {
            libc::malloc_trim(0);
        }
        let at_last = resident();
        assert_eq!((returned, held), (200 * THREADS, (0, 0)));
        assert!(between > before + (4 << 20), "it did use memory: {before} {between}");
        assert!(after <= before + (2 << 20), "{before} before, {between} between, {after} after");
        assert!(
            cfg!(not(target_env = "gnu")) || at_last <= before + (2 << 20),
            "{before} before, {at_last} at last"
        );
    });
}
