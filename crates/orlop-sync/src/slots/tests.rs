//! Tests of re-entry by the same thread. The interleavings of several threads are in the loom tests.

use super::*;
use crate::thread_slot;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// `try_enter` is refused while the thread is inside, and the slot then still looks occupied to visitors.
#[test]
fn a_thread_inside_its_slot_cannot_enter_again() {
    let slots = Slots::<u32>::new();
    slots.with(|value| *value = 1);
    let Some(owned) = thread_slot::owned() else { return };
    // SAFETY: the guard is dropped at once, or used in `call`.
    let try_enter = || unsafe { slots.try_enter() };
    let assert_refused = || {
        assert!(try_enter().is_none() && try_enter().is_none());
        assert_eq!(slots.slot(owned).busy.load(Ordering::Relaxed), BUSY, "still inside");
    };
    slots.with(|value| {
        assert_refused();
        *value += 1;
    });
    let mut guard = try_enter().unwrap();
    guard.call(|value| {
        assert_refused();
        *value += 1;
    });
    let panics = || guard.call(|_| panic!("inside"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    drop(guard);
    assert_eq!(try_enter().map(|guard| *guard), Some(3));
    let mut sum = 0;
    slots.for_each_slot(|value, ()| sum += *value);
    assert_eq!(sum, 3);
}

#[test]
#[cfg(all(unix, not(miri)))]
fn entering_twice_ends_the_process() {
    aborts_inside("slots::tests::entering_twice_ends_the_process", |slots| {
        slots.with(|value| *value += 1);
    });
}

#[test]
#[cfg(all(unix, not(miri)))]
fn visiting_from_inside_ends_the_process() {
    aborts_inside("slots::tests::visiting_from_inside_ends_the_process", |slots| {
        slots.for_each_slot(|value, ()| *value += 1);
    });
}

/// Checks that `action` ends the process if it is called inside the thread's slot.
#[cfg(all(unix, not(miri)))]
fn aborts_inside(test: &str, action: impl FnOnce(&Slots<u32>)) {
    let errors = orlop_testkit::aborts::assert_aborts(test, || {
        let slots = Slots::<u32>::new();
        if !has_owned_slot() {
            std::process::abort();
        }
        slots.with(|_| action(&slots));
    });
    assert!(errors.contains("from inside of itself") || !has_owned_slot(), "{errors}");
}

/// Returns `false` where the system has no asymmetric fence.
#[cfg(all(unix, not(miri)))]
fn has_owned_slot() -> bool {
    thread_slot::index() < OWNED
}
