//! Thread-locals that are destroyed after the thread's number was released, while another thread has it.

use orlop_core::MemoryKind;
use orlop_sync::{ScopedRef, ShardedCounters, Slots, SwapCell, thread_slot};
use std::cell::Cell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock};
use std::thread;

const ROUNDS: usize = if cfg!(miri) { 8 } else { 2000 };

/// Runs its code when it is destroyed.
#[derive(Default)]
struct AtExit(Cell<Option<Box<dyn FnOnce()>>>);

impl Drop for AtExit {
    fn drop(&mut self) {
        if let Some(act) = self.0.take() {
            act();
        }
    }
}

thread_local! {
    static OLDER: AtExit = AtExit::default();
    static YOUNGER: AtExit = AtExit::default();
}

/// Where the two threads of a test meet.
struct Meeting(Sender<()>, Receiver<()>);

impl Meeting {
    fn new() -> [Self; 2] {
        let ((to_b, from_a), (to_a, from_b)) = (channel(), channel());
        [Self(to_b, from_b), Self(to_a, from_a)]
    }

    fn meet(&self) {
        self.0.send(()).expect("the other thread");
        self.1.recv().expect("the other thread");
    }
}

/// Runs `act` on two threads at the same time. The first has released its number: it is in the destructor of
/// an older thread-local. The second has taken the number.
fn with_one_number(act: fn()) {
    let [ending, next] = Meeting::new();
    let ending = thread::spawn(move || {
        // Registered before the number, so destroyed after its release.
        OLDER.with(|older| {
            older.0.set(Some(Box::new(move || {
                ending.meet();
                ending.meet();
                (0..ROUNDS).for_each(|_| act());
            })));
        });
        act();
        YOUNGER.with(|younger| younger.0.set(Some(Box::new(act))));
        thread_slot::index()
    });
    next.meet();
    let number = thread::spawn(move || {
        act();
        next.meet();
        (0..ROUNDS).for_each(|_| act());
        thread_slot::index()
    });
    // Usually equal; another test may have taken the number meanwhile.
    let _numbers = (ending.join().expect("ends"), number.join().expect("ends"));
}

#[test]
fn two_threads_of_one_number_are_not_in_one_slot() {
    static SLOTS: LazyLock<Slots<Vec<usize>>> = LazyLock::new(Slots::new);
    with_one_number(|| SLOTS.with(|values| values.push(1)));
    let mut pushed = 0;
    SLOTS.for_each_slot(|values, ()| pushed += values.len());
    assert_eq!(pushed, 2 * ROUNDS + 3);
}

#[test]
fn no_block_is_lost_that_is_counted_while_a_thread_ends() {
    static COUNTERS: LazyLock<ShardedCounters<Vec<usize>>> = LazyLock::new(ShardedCounters::default);
    with_one_number(|| {
        COUNTERS.count_in(MemoryKind::Default, 64, 10);
        COUNTERS.count_growth(MemoryKind::Default, 64, 10, 128);
        COUNTERS.with(|values| values.push(1));
    });
    let blocks = 2 * ROUNDS as u64 + 3;
    let all = COUNTERS.totals().all;
    assert_eq!((all.live_blocks(), all.live_bytes, all.requested_bytes), (blocks, 128 * blocks, 20 * blocks));
}

/// A reader of each thread is counted, and none is lost: the value is dropped only after it was read.
#[test]
fn a_value_outlives_its_readers_while_threads_end() {
    static CELL: LazyLock<SwapCell<Arc<Vec<u64>>>> = LazyLock::new(SwapCell::new);
    with_one_number(|| {
        drop(CELL.set(Some(Arc::new(vec![7; 64]))));
        let sum = CELL.with(|outer| {
            let outer_is_read = CELL.with(|inner| inner.len()) == Some(64);
            drop(CELL.set(Some(Arc::new(vec![7; 64]))));
            CELL.release_replaced();
            assert!(outer_is_read && Arc::strong_count(outer) > 0);
            outer.iter().sum::<u64>()
        });
        assert_eq!(sum, Some(7 * 64));
    });
    // With no reader left, the last value has one owner: none was leaked or kept.
    let last = Arc::new(vec![1]);
    drop(CELL.set(Some(Arc::clone(&last))));
    drop(CELL.set(None));
    drop(CELL.settle());
    assert_eq!(Arc::strong_count(&last), 1);
}

#[test]
fn a_reference_is_lent_and_returned_while_a_thread_ends() {
    thread_local! {
        static LENT: ScopedRef<u64> = const { ScopedRef::new() };
    }
    fn lend() {
        let value = 7;
        ScopedRef::lend(&LENT, &value, || {
            assert_eq!(ScopedRef::with(&LENT, |lent| lent.copied()), Some(7));
        });
        assert!(ScopedRef::with(&LENT, |lent| lent.is_none()));
    }
    with_one_number(lend);
}
