//! Callbacks that panic, and callbacks that call what called them.

use orlop_sync::thread_slot::{self, OWNED};
use orlop_sync::{Mutex, ShardedCounters, Slots, SwapCell};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;

use crate::panics;

#[test]
fn a_slot_is_left_by_a_panic() {
    let slots = Slots::<Vec<u32>>::new();
    assert!(panics(|| slots.with(|_| panic!("inside"))));
    slots.with(|values| values.push(1));
    assert!(panics(|| slots.for_each_slot(|_, ()| panic!("in a visit"))));
    slots.with(|values| values.push(2));
    thread::scope(|scope| {
        scope.spawn(|| slots.with(|values| values.push(3))).join().unwrap();
    });
    // The visit ends at the first slot; the gates of all are open again.
    assert!(panics(|| slots.for_each_slot(|_, ()| panic!("in a visit"))));
    let mut all = Vec::new();
    slots.for_each_slot(|values, ()| all.append(values));
    all.sort_unstable();
    assert_eq!(all, [1, 2, 3]);
    let counters = ShardedCounters::<Vec<u32>>::default();
    assert!(panics(|| counters.count_in_with::<()>(|_, _| panic!("inside"))));
    counters.with(|values| values.push(1));
    assert_eq!(counters.totals().all.allocations, 0);
}

#[test]
fn a_default_that_panics_or_enters_its_own_slots() {
    struct Hostile(u32);

    static SLOTS: LazyLock<Slots<Hostile>> = LazyLock::new(Slots::new);
    thread_local! {
        static CALLS: Cell<u32> = const { Cell::new(0) };
    }
    impl Default for Hostile {
        fn default() -> Self {
            match CALLS.replace(CALLS.get() + 1) {
                0 => panic!("in `default`"),
                1 => Self(SLOTS.with(|inner| inner.0 + 1)),
                _ => Self(10),
            }
        }
    }

    let made = thread::spawn(|| {
        assert!(panics(|| SLOTS.with(|value| value.0)));
        // The innermost one is made first, and kept.
        SLOTS.with(|value| value.0)
    });
    assert_eq!(made.join().unwrap(), 10);
}

#[test]
fn a_visit_that_enters_its_slots_panics() {
    if thread_slot::index() >= OWNED {
        return;
    }
    let slots = Slots::<u32>::new();
    slots.with(|value| *value = 1);
    slots.for_each_slot(|value, ()| {
        assert!(panics(|| slots.with(|_| ())));
        assert!(panics(|| slots.for_each_slot(|_, ()| ())));
        *value += 1;
    });
    assert_eq!(slots.with(|value| *value), 2);
}

static DROPS: AtomicUsize = AtomicUsize::new(0);

/// A value whose clone and whose destructor may panic.
struct Panics {
    in_clone: bool,
    in_drop: bool,
}

impl Clone for Panics {
    fn clone(&self) -> Self {
        assert!(!self.in_clone, "in `clone`");
        Self { in_clone: false, in_drop: false }
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        DROPS.fetch_add(1, Ordering::Relaxed);
        assert!(!self.in_drop || thread::panicking(), "in `drop`");
    }
}

#[test]
fn a_cell_is_whole_after_a_panic() {
    let quiet = || Panics { in_clone: false, in_drop: false };
    let cell = SwapCell::new();
    drop(cell.set(Some(Panics { in_clone: true, in_drop: false })));
    assert!(panics(|| cell.cloned()) && panics(|| cell.with(|_| panic!("inside"))));
    assert!(panics(|| cell.set_if(None, |_| panic!("in the condition"))));
    assert!(cell.with(|value| value.in_clone).unwrap());

    let cell = SwapCell::new();
    drop(cell.set(Some(Panics { in_clone: false, in_drop: true })));
    let before = DROPS.load(Ordering::Relaxed);
    assert!(panics(|| drop(cell.set(Some(quiet())))), "the destructor of the previous value");
    assert!(DROPS.load(Ordering::Relaxed) > before);
    // Not dropped again, and nothing is locked.
    drop(cell.set(None));
    drop(cell.settle());
    assert!(cell.is_empty());
}

#[test]
fn a_condition_that_sets_its_cell_panics() {
    let cell = SwapCell::new();
    drop(cell.set(Some(Arc::new(1))));
    let set = cell.set_if(Some(Arc::new(2)), |now| {
        assert!(panics(|| drop(cell.set(None))));
        now.is_some_and(|now| cell.with(|inner| Arc::ptr_eq(now, inner)) == Some(true))
    });
    assert!(set.is_ok_and(|unread| !unread.is_empty()));
    assert_eq!(cell.cloned().as_deref(), Some(&2));
}

#[test]
fn a_value_whose_destructor_uses_its_cell() {
    static CELL: LazyLock<SwapCell<Arc<Reentrant>>> = LazyLock::new(SwapCell::new);

    struct Reentrant(u32);
    impl Drop for Reentrant {
        fn drop(&mut self) {
            let next = self.0.checked_sub(1).map(|next| Arc::new(Self(next)));
            CELL.with(|value| value.0);
            drop(CELL.set(next));
        }
    }

    drop(CELL.set(Some(Arc::new(Reentrant(5)))));
    drop(CELL.set(None));
    for _ in 0..10 {
        drop(CELL.settle());
        drop(CELL.set(None));
    }
    assert!(CELL.is_empty());
}

#[test]
fn a_lock_that_is_locked_twice_panics_and_stays_usable() {
    let mutex = Mutex::new(1);
    let held = mutex.lock();
    assert!(panics(|| mutex.lock()));
    assert_eq!(*held, 1);
    drop(held);
    assert_eq!(*mutex.lock(), 1);
}
