//! The child of a `fork` has a working allocator: if no other thread was inside a call, or in any case if the
//! allocator is fork-safe.
#![cfg(all(unix, not(miri), not(loom)))]

use orlop_alloc::backing::{Mmap, Visited, Visitor};
use orlop_alloc::caching::{Caching, Maintenance};
use orlop_alloc::{Allocator, AllocatorRef, Block, Request};
use orlop_context::{AllocatorConfig, Context};
use orlop_core::{Device, MemoryKind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
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
    let allocator = Caching::new(Mmap::new()).into_ref().erase();
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
        // SAFETY: the child only uses the allocator, whose locks are free, and then ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the alarm ends the child if it hangs.
            unsafe { libc::alarm(20) };
            let works = work(&allocator, &mut blocks);
            blocks.clear();
            // Visits the slots, that of the thread missing in the child included.
            allocator.trim(0);
            let sound = allocator.verify().is_ok() && work(&allocator, &mut blocks);
            // SAFETY: ends the child without the exit handlers of the test harness.
            unsafe { libc::_exit(if works && sound { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: the process is our child, and the pointer is valid for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        // The parent is not affected.
        let works = work(&allocator, &mut blocks);
        over.wait();
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status}");
        assert!(works);
        allocator.verify().unwrap();
    });
    assert_eq!(allocator.stats().live(), 0);
}

/// Runs `act` in a child with an alarm. Returns its result; `false` if the child hangs.
fn child_does(act: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child only uses fork-safe allocators, or ones without threads inside, and then ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the alarm ends the child if it hangs.
        unsafe { libc::alarm(20) };
        let done = act();
        // SAFETY: ends the child without the exit handlers of the test harness.
        unsafe { libc::_exit(if done { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the process is our child, and the pointer is valid for its status.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    waited == child && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

/// Forks `times` times while two other threads allocate, free, trim and verify.
fn fork_meanwhile(allocator: &AllocatorRef, times: usize) -> usize {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..2 {
            let over = &over;
            scope.spawn(move || {
                let mut blocks = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    assert!(work(allocator, &mut blocks));
                    if number == 0 {
                        allocator.trim(0);
                        assert!(allocator.verify().is_ok());
                    }
                }
            });
        }
        let mut blocks = Vec::new();
        assert!(work(allocator, &mut blocks));
        let done = (0..times)
            .filter(|_| {
                child_does(|| {
                    let works = work(allocator, &mut blocks);
                    blocks.clear();
                    allocator.trim(0);
                    works && allocator.verify().is_ok() && work(allocator, &mut blocks)
                })
            })
            .count();
        // The parent is not affected.
        let works = work(allocator, &mut blocks);
        over.store(true, Ordering::Relaxed);
        assert!(works);
        done
    })
}

#[test]
fn a_fork_safe_allocator_works_whatever_other_threads_do() {
    let allocator = Caching::new(Mmap::new()).into_ref();
    allocator.hold_over_forks().unwrap();
    allocator.hold_over_forks().unwrap();
    let allocator = allocator.erase();
    assert_eq!(fork_meanwhile(&allocator, 50), 50);
    allocator.verify().unwrap();
    assert_eq!(allocator.stats().live(), 0);
    // Forks after the allocator is dropped do not access it.
    drop(allocator);
    assert!(child_does(|| true));
}

#[test]
fn so_does_that_of_a_context_and_so_do_several() {
    let context = Context::with(Device::CPU, AllocatorConfig::new().fork_safe());
    let outer = context.allocator(Device::CPU, MemoryKind::Default).unwrap();
    assert_eq!(fork_meanwhile(&outer, 10), 10);
    let other = Caching::new(Mmap::new()).into_ref();
    other.hold_over_forks().unwrap();
    let other = other.erase();
    assert_eq!(fork_meanwhile(&other, 5) + fork_meanwhile(&outer, 5), 10);
}

/// Its thread does not exist in the child.
#[test]
fn a_maintenance_can_be_dropped_in_the_child() {
    let maintenance = Maintenance::builder(Caching::new(Mmap::new()).into_ref()).spawn().unwrap();
    let mut held = Some(maintenance);
    assert!(child_does(
        || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(held.take()))).is_ok()
    ));
    drop(held);
}

/// A caching engine that is fork-safe and calls `visit` under its growth lock.
fn visited(visit: impl Fn() + Send + Sync + 'static) -> AllocatorRef {
    let visitor: Visitor = Arc::new(move |_, _, _| visit());
    let allocator = Caching::new(Visited::new(Mmap::new(), vec![visitor])).into_ref();
    allocator.hold_over_forks().expect("handlers are registered");
    allocator.erase()
}

#[test]
fn a_visitor_may_fork() {
    let known: Arc<OnceLock<AllocatorRef>> = Arc::default();
    let (seen, forked) = (Arc::clone(&known), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&forked);
    let allocator = visited(move || {
        let uses = || {
            let Some(allocator) = seen.get() else { return true };
            // It may not grow here; it reads what it has.
            allocator.verify().is_ok()
        };
        count.fetch_add(usize::from(child_does(uses)), Ordering::Relaxed);
    });
    assert!(known.set(allocator.clone()).is_ok());
    let mut blocks = Vec::new();
    assert!(work(&allocator, &mut blocks));
    let forks = forked.load(Ordering::Relaxed);
    assert!(forks > 0);
    // The growth lock was not released by the fork, nor lost.
    blocks.clear();
    allocator.trim(0);
    assert!(forked.load(Ordering::Relaxed) > forks && work(&allocator, &mut blocks));
}

/// Visitors of several engines fork at the same time, and one drops an engine while another thread forks:
/// none waits for another for ever.
#[test]
fn forks_inside_of_visitors_do_not_wait_for_each_other() {
    let grows = || {
        let other = Caching::new(Mmap::new()).into_ref();
        other.hold_over_forks().unwrap();
        drop(other);
        assert!(child_does(|| true));
    };
    let engines = [visited(grows), visited(grows)];
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let forking = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                assert!(child_does(|| true));
            }
        });
        let growing = engines.each_ref().map(|engine| {
            scope.spawn(move || {
                for _ in 0..50 {
                    drop(engine.allocate(&Request::new(1 << 20)).unwrap());
                    engine.trim(0);
                }
            })
        });
        for thread in growing {
            thread.join().unwrap();
        }
        over.store(true, Ordering::Relaxed);
        forking.join().unwrap();
    });
}
