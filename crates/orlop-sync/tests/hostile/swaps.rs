//! `mem::swap`, `mem::take` and `mem::forget` of everything that is handed out.

use orlop_core::MemoryKind;
use orlop_sync::thread_slot::{self, OWNED};
use orlop_sync::{
    CentralHeap, ColdMutex, GrowableHeap, HeapGrowth, Mutex, RetainingCell, ShardedCounters, Slots, SwapCell,
};
use std::mem;
use std::sync::Arc;
use std::thread;

use crate::panics;

#[test]
fn values_of_two_slots_are_swapped() {
    let (one, other) = (Slots::<Vec<u32>>::new(), Slots::<Vec<u32>>::new());
    one.with(|values| values.push(1));
    other.with(|values| values.push(2));
    one.with(|value| other.with(|inner| mem::swap(value, inner)));
    one.for_each_slot(|value, ()| other.with(|inner| mem::swap(value, inner)));
    let taken = one.with(mem::take);
    other.with(|value| *value = mem::replace(value, taken));
    assert_eq!((one.with(|value| value.len()), other.with(|value| value[0])), (0, 2));
}

#[test]
fn a_slot_left_by_a_guard_that_is_forgotten_is_entered_by_none() {
    if thread_slot::index() >= OWNED {
        return;
    }
    let slots = Slots::<Vec<u32>>::new();
    slots.with(|values| values.push(1));
    mem::forget(slots.quiesce());
    assert!(panics(|| slots.with(|values| values.push(2))));
    assert!(panics(|| slots.for_each_slot(|values, ()| values.push(2))));
    let counters = ShardedCounters::<Vec<u32>>::default();
    counters.count_in(MemoryKind::Default, 64, 10);
    mem::forget(counters.quiesce());
    assert!(panics(|| counters.with(|values| values.push(2))));
    assert!(panics(|| counters.totals()), "the lock of the peaks is held");
}

#[test]
fn guards_of_locks_are_swapped_and_forgotten() {
    let (one, other) = (Mutex::new(vec![1]), Mutex::new(vec![2]));
    let (mut first, mut second) = (one.lock(), other.lock());
    mem::swap(&mut first, &mut second);
    mem::swap(&mut *first, &mut *second);
    drop(first);
    assert!(other.try_lock().is_some() && one.try_lock().is_none());
    mem::forget(second);
    assert!(one.lock_unless_held().is_none() && panics(|| drop(one.lock())));
    thread::scope(|scope| {
        assert!(scope.spawn(|| one.try_lock().is_none()).join().unwrap());
    });
    let (one, other) = (ColdMutex::new(vec![1]), ColdMutex::new(vec![2]));
    let (mut first, mut second) = (one.lock(), other.lock());
    mem::swap(&mut first, &mut second);
    mem::swap(&mut *first, &mut *second);
    drop(first);
    assert!(other.try_lock().is_some() && one.try_lock().is_none());
    mem::forget(second);
    assert!(one.lock_unless_held().is_none() && panics(|| drop(one.lock())));
    // Moved while a forgotten guard holds it.
    let moved = one;
    assert!(moved.try_lock().is_none());
}

/// A heap of numbers.
#[derive(Debug, Default)]
struct Numbers(Vec<u32>);

impl CentralHeap for Numbers {
    type Request<'a> = ();
    type Chunk = u32;
    type Region = Vec<u32>;

    fn take(&mut self, (): &()) -> Option<u32> {
        self.0.pop()
    }

    fn add(&mut self, region: Vec<u32>) {
        self.0.extend(region);
    }
}

/// Growth that swaps the heap for another one, and then calls the heap that it grows.
struct Swapping<'a>(Numbers, &'a GrowableHeap<Numbers>);

impl HeapGrowth<Numbers> for Swapping<'_> {
    type Error = ();

    fn grow(&mut self, heap: &Mutex<Numbers>, (): &()) -> Result<Vec<u32>, ()> {
        mem::swap(&mut *heap.lock(), &mut self.0);
        assert!(panics(|| drop(self.1.stop_growing())), "growth is locked");
        mem::forget(heap.lock());
        Err(())
    }
}

#[test]
fn a_heap_is_swapped_while_it_grows() {
    let heap = GrowableHeap::new(Numbers::default());
    let mut growth = Swapping(Numbers(vec![1]), &heap);
    assert!(heap.take_or_grow(&(), &mut growth).is_err());
    assert!(panics(|| drop(heap.lock())), "a forgotten guard holds it");
    drop(heap.stop_growing());
}

#[test]
fn values_of_cells_are_replaced_while_they_are_read() {
    let cell = SwapCell::new();
    let value = Arc::new(5);
    drop(cell.set(Some(Arc::clone(&value))));
    let sum = cell.with(|outer| {
        for number in 0..10 {
            drop(cell.set(Some(Arc::new(number))));
        }
        drop(cell.settle());
        cell.with(|inner| **outer + **inner)
    });
    assert_eq!(sum, Some(Some(14)));
    drop(cell.settle());
    assert_eq!(Arc::strong_count(&value), 1);
    let moved = cell;
    assert_eq!(moved.cloned().as_deref(), Some(&9));

    let retaining = RetainingCell::default();
    retaining.set(Some(String::from("one")));
    let first = retaining.get();
    for _ in 0..10 {
        retaining.set(Some(String::from("other")));
    }
    assert_eq!((first.map(String::as_str), retaining.all().len()), (Some("one"), 11));
}

/// Sums wrap around instead of a panic: the counts are the caller's.
#[test]
fn counts_that_make_no_sense_break_nothing() {
    let counters = ShardedCounters::<()>::default();
    for bytes in [usize::MAX, usize::MAX / 2, usize::MAX, 1] {
        for kind in [MemoryKind::Default, MemoryKind::Workspace] {
            counters.count_in(kind, bytes, bytes);
            counters.count_growth(kind, bytes, 0, bytes);
        }
        let _totals = counters.totals();
        counters.reset_peaks();
    }
    assert_eq!(counters.totals().all.live_blocks(), 8);
}
