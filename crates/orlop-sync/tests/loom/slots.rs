//! `slots.*`: one thread at a time is inside, and sees what the previous one wrote, whether it entered by the
//! handshake, by the lock or as a visitor.

use crate::owner::in_slot;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use orlop_sync::{Slots, thread_slot::OWNED};

/// A slot that several threads may use.
const SHARED: usize = OWNED;

fn sum(slots: &Slots<u32>) -> u32 {
    let mut sum = 0;
    slots.for_each_slot(|value, ()| sum += *value);
    sum
}

#[test]
fn owner_and_visitor_exclude_each_other() {
    loom::model(|| {
        let slots = Arc::new(Slots::<u32>::new());
        in_slot(0, || slots.with(|value| *value = 1));
        let owner = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || {
                for _ in 0..2 {
                    in_slot(0, || slots.with(|value| *value += 1));
                }
            })
        };
        slots.for_each_slot(|value, ()| *value += 10);
        owner.join().unwrap();
        assert_eq!(sum(&slots), 13);
    });
}

/// For forks: no owner is inside a quiesced slot, and owners enter again afterwards.
#[test]
fn quiesced_slots_have_no_half_done_update() {
    loom::model(|| {
        let slots = Arc::new(Slots::<u32>::new());
        in_slot(0, || slots.with(|value| *value = 1));
        let words = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let owner = {
            let (slots, words) = (Arc::clone(&slots), Arc::clone(&words));
            thread::spawn(move || {
                let update = |value: &mut u32| {
                    words.iter().for_each(|word| word.store(1, Ordering::Relaxed));
                    *value += 1;
                };
                in_slot(0, || slots.with(update));
            })
        };
        let quiesced = slots.quiesce();
        let [one, other] = [0, 1].map(|index| words[index].load(Ordering::Relaxed));
        assert_eq!(one, other);
        drop(quiesced);
        owner.join().unwrap();
        assert_eq!(sum(&slots), 2);
    });
}

/// The thread caches of device allocators: what closes them sets a flag and empties all slots. No owner fills
/// its slot afterwards, even if it enters for the first time.
#[test]
fn owners_see_a_flag_that_was_set_before_a_visit() {
    loom::model(|| {
        let slots = Arc::new(Slots::<u32>::new());
        let is_open = Arc::new(AtomicU32::new(1));
        let owner = {
            let (slots, is_open) = (Arc::clone(&slots), Arc::clone(&is_open));
            thread::spawn(move || {
                let mut filled = 0;
                for _ in 0..2 {
                    // SAFETY: the guard is dropped before anything else is called.
                    let entered = in_slot(0, || unsafe { slots.try_enter() });
                    match entered {
                        Some(mut guard) if is_open.load(Ordering::Relaxed) == 1 => {
                            *guard += 1;
                            filled += 1;
                        }
                        Some(_) => {}
                        None => in_slot(0, || slots.with(|_| ())),
                    }
                }
                filled
            })
        };
        is_open.store(0, Ordering::Relaxed);
        let mut emptied = 0;
        slots.for_each_slot(|value, ()| emptied += std::mem::take(value));
        let filled = owner.join().unwrap();
        assert_eq!((emptied, sum(&slots)), (filled, 0));
    });
}

/// `try_enter` does not wait.
#[test]
fn an_owner_that_does_not_wait_is_excluded_too() {
    loom::model(|| {
        let slots = Arc::new(Slots::<u32>::new());
        in_slot(0, || slots.with(|value| *value = 1));
        let owner = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || {
                let mut entered = 0;
                for _ in 0..2 {
                    // SAFETY: the guard is dropped before anything else is called.
                    if let Some(mut guard) = in_slot(0, || unsafe { slots.try_enter() }) {
                        *guard += 1;
                        entered += 1;
                    }
                }
                entered
            })
        };
        slots.for_each_slot(|value, ()| *value += 10);
        let entered = owner.join().unwrap();
        assert_eq!(sum(&slots), 11 + entered);
    });
}

#[test]
fn visitors_exclude_each_other_and_the_owner_creates_the_slot() {
    loom::model(|| {
        let slots = Arc::new(Slots::<u32>::new());
        let visitors: Vec<_> = (0..2)
            .map(|_| {
                let slots = Arc::clone(&slots);
                thread::spawn(move || slots.for_each_slot(|value, ()| *value += 10))
            })
            .collect();
        in_slot(0, || slots.with(|value| *value += 1));
        for visitor in visitors {
            visitor.join().unwrap();
        }
        // A visitor that ran before the owner found no value.
        assert!([1, 11, 21].contains(&sum(&slots)));
    });
}

#[test]
fn sharers_exclude_each_other() {
    loom::model(|| {
        let slots = Arc::new(Slots::<u32>::new());
        let other = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || in_slot(SHARED, || slots.with(|value| *value += 1)))
        };
        in_slot(SHARED, || slots.with(|value| *value += 1));
        slots.for_each_slot(|value, ()| *value += 10);
        other.join().unwrap();
        assert_eq!(sum(&slots), 12);
    });
}

#[test]
fn the_next_owner_sees_the_previous_value() {
    loom::model(|| {
        let slots = Arc::new(Slots::<u32>::new());
        let first = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || in_slot(1, || slots.with(|value| *value += 1)))
        };
        slots.for_each_slot(|value, ()| *value += 10);
        first.join().unwrap();
        in_slot(1, || slots.with(|value| *value += 1));
        assert!([2, 12].contains(&sum(&slots)));
    });
}

/// An entry after `seal` is sealed; `seal` sees what an earlier one wrote to the shared part.
#[test]
fn sealing_misses_no_thread() {
    use loom::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Count(AtomicU32);

    loom::model(|| {
        let slots = Arc::new(Slots::<(), Count>::new());
        let threads: Vec<_> = [0, SHARED]
            .map(|index| (index, Arc::clone(&slots)))
            .map(|(index, slots)| {
                thread::spawn(move || {
                    let count_unless_sealed = |count: &Count, sealed: bool| {
                        if !sealed {
                            count.0.store(1, Ordering::Relaxed);
                        }
                        u32::from(sealed)
                    };
                    in_slot(index, || slots.with_seal(count_unless_sealed))
                })
            })
            .into();
        let mut seen = 0;
        slots.seal_slots(|count| seen += count.0.load(Ordering::Relaxed));
        let after: u32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(seen + after, 2);
    });
}

/// A cache as an engine uses it: one thread frees, one allocates, one flushes. No block is lost or handed out
/// twice.
#[test]
fn a_block_is_in_one_place() {
    loom::model(|| {
        let caches = Arc::new(Slots::<Vec<u32>>::new());
        in_slot(0, || caches.with(|cache| cache.push(7)));
        let owner = {
            let caches = Arc::clone(&caches);
            thread::spawn(move || usize::from(in_slot(0, || caches.with(Vec::pop)).is_some()))
        };
        let trimmer = {
            let caches = Arc::clone(&caches);
            thread::spawn(move || {
                let mut flushed = 0;
                caches.for_each_slot(|cache, ()| flushed += cache.drain(..).count());
                flushed
            })
        };
        assert_eq!(owner.join().unwrap() + trimmer.join().unwrap(), 1);
    });
}
