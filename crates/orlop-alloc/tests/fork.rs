//! After `fork`, while no other thread is inside a call, the child has an allocator that works.
#![cfg(all(unix, not(miri), not(loom)))]

use orlop_alloc::backing::Mmap;
use orlop_alloc::caching::Caching;
use orlop_alloc::{AllocatorRef, Block, Request};
use std::sync::Barrier;
use std::thread;

fn work(allocator: &AllocatorRef, blocks: &mut Vec<Block>) -> bool {
    for round in 0..100 {
        let Ok(mut block) = allocator.allocate(&Request::new(1000 + 7000 * (round % 13))) else {
            return false;
        };
        let Ok(bytes) = block.bytes_mut() else { return false };
        bytes.fill(1);
        blocks.push(block);
        if blocks.len() > 5 {
            drop(blocks.remove(round % 5));
        }
    }
    true
}

#[test]
fn the_child_goes_on_with_what_the_parent_had() {
    let allocator = Caching::builder(Mmap::new()).build().erase();
    let (used, over) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        // Another thread has blocks and a cache, and is idle.
        scope.spawn(|| {
            let mut blocks = Vec::new();
            assert!(work(&allocator, &mut blocks));
            used.wait();
            over.wait();
        });
        used.wait();
        let mut blocks = Vec::new();
        assert!(work(&allocator, &mut blocks));
        // SAFETY: the child only uses the allocator, whose locks nobody holds, and ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: a way out if it should hang.
            unsafe { libc::alarm(20) };
            let works = work(&allocator, &mut blocks);
            blocks.clear();
            // Visits the slots, also that of the thread which is not there any more.
            allocator.trim(0);
            let sound = allocator.verify().is_ok() && work(&allocator, &mut blocks);
            // SAFETY: ends the child, without what the test harness would do at exit.
            unsafe { libc::_exit(if works && sound { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: our child, and a place for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        // The parent goes on as if nothing had been.
        let works = work(&allocator, &mut blocks);
        over.wait();
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status}");
        assert!(works);
        allocator.verify().unwrap();
    });
    assert_eq!(allocator.stats().live(), 0);
}
