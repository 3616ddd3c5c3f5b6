//! Who is inside of a slot, and cannot enter it again. Loom has the interleavings of threads.

use super::*;
use crate::thread_slot;

/// The thread's own slot is refused while it is inside, and stays what it is for visitors.
#[test]
fn a_thread_that_is_inside_does_not_get_in_again() {
    let slots = Slots::<u32>::new();
    let seat = thread_slot::current();
    slots.with(seat, |value| *value = 1);
    let Some(seat) = thread_slot::owned() else { return };
    let mut held = slots.try_hold(seat).unwrap();
    assert!(slots.try_hold(seat).is_none() && slots.try_hold(seat).is_none());
    assert_eq!(slots.slot(seat).busy.load(Ordering::Relaxed), BUSY, "still inside");
    *held += 1;
    drop(held);
    assert_eq!(slots.try_hold(seat).map(|held| *held), Some(2));
    let mut sum = 0;
    slots.visit(|value, ()| sum += *value);
    assert_eq!(sum, 2);
}

#[test]
#[cfg(all(unix, not(miri)))]
fn entering_twice_ends_the_process() {
    let errors = orlop_testkit::dies::dies("slots::tests::entering_twice_ends_the_process", || {
        let slots = Slots::<u32>::new();
        let Some(seat) = seat_of_its_own() else { std::process::abort() };
        slots.with(seat, |outer| slots.with(seat, |inner| *inner = *outer + 1));
    });
    assert!(errors.contains("from inside of itself") || seat_of_its_own().is_none(), "{errors}");
}

#[test]
#[cfg(all(unix, not(miri)))]
fn visiting_from_inside_ends_the_process() {
    let errors = orlop_testkit::dies::dies("slots::tests::visiting_from_inside_ends_the_process", || {
        let slots = Slots::<u32>::new();
        let Some(seat) = seat_of_its_own() else { std::process::abort() };
        slots.with(seat, |outer| slots.visit(|inner, ()| *inner = *outer + 1));
    });
    assert!(errors.contains("from inside of itself") || seat_of_its_own().is_none(), "{errors}");
}

/// None where the system has no asymmetric fence.
#[cfg(all(unix, not(miri)))]
fn seat_of_its_own() -> Option<Seat> {
    let _asked = thread_slot::current();
    thread_slot::owned()
}
