//! `slots.*`: one at a time is inside, and sees what the one before wrote, whether it came by the handshake, by the
//! lock or as a visitor.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use orlop_sync::Slots;
use orlop_sync::thread_slot::{OWNED, Seat};

/// The seat of owned slot `index`.
fn own(index: usize) -> Seat {
    // SAFETY: each test gives an owned seat to one thread.
    unsafe { Seat::new(index) }
}

/// A seat that several may have.
fn shared() -> Seat {
    // SAFETY: a shared slot.
    unsafe { Seat::new(OWNED) }
}

fn sum(slots: &Slots<u32>) -> u32 {
    let mut sum = 0;
    slots.visit(|value, ()| sum += *value);
    sum
}

#[test]
fn owner_and_visitor_exclude_each_other() {
    loom::model(|| {
        let slots = Arc::new(Slots::<u32>::new());
        slots.with(own(0), |value| *value = 1);
        let owner = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || {
                for _ in 0..2 {
                    slots.with(own(0), |value| *value += 1);
                }
            })
        };
        slots.visit(|value, ()| *value += 10);
        owner.join().unwrap();
        assert_eq!(sum(&slots), 13);
    });
}

/// For forks: all slots together, with owners that come in all the same afterwards.
#[test]
fn while_all_are_held_nobody_is_half_way() {
    loom::model(|| {
        let slots = Arc::new(Slots::<u32>::new());
        slots.with(own(0), |value| *value = 1);
        let words = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
        let owner = {
            let (slots, words) = (Arc::clone(&slots), Arc::clone(&words));
            thread::spawn(move || {
                slots.with(own(0), |value| {
                    words.iter().for_each(|word| word.store(1, Ordering::Relaxed));
                    *value += 1;
                });
            })
        };
        let held = slots.hold_all();
        let [one, other] = [0, 1].map(|index| words[index].load(Ordering::Relaxed));
        assert_eq!(one, other);
        drop(held);
        owner.join().unwrap();
        assert_eq!(sum(&slots), 2);
    });
}

/// The way in that waits for nobody.
#[test]
fn an_owner_that_does_not_wait_is_excluded_too() {
    loom::model(|| {
        let slots = Arc::new(Slots::<u32>::new());
        slots.with(own(0), |value| *value = 1);
        let owner = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || {
                let mut entered = 0;
                for _ in 0..2 {
                    if let Some(mut held) = slots.try_hold(own(0)) {
                        *held += 1;
                        entered += 1;
                    }
                }
                entered
            })
        };
        slots.visit(|value, ()| *value += 10);
        let entered = owner.join().unwrap();
        assert_eq!(sum(&slots), 11 + entered);
    });
}

#[test]
fn visitors_exclude_each_other_and_the_owner_makes_the_slot() {
    loom::model(|| {
        let slots = Arc::new(Slots::<u32>::new());
        let visitors: Vec<_> = (0..2)
            .map(|_| {
                let slots = Arc::clone(&slots);
                thread::spawn(move || slots.visit(|value, ()| *value += 10))
            })
            .collect();
        slots.with(own(0), |value| *value += 1);
        for visitor in visitors {
            visitor.join().unwrap();
        }
        // A visitor that came before the owner found nothing.
        assert!([1, 11, 21].contains(&sum(&slots)));
    });
}

#[test]
fn sharers_exclude_each_other() {
    loom::model(|| {
        let slots = Arc::new(Slots::<u32>::new());
        let other = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || slots.with(shared(), |value| *value += 1))
        };
        slots.with(shared(), |value| *value += 1);
        slots.visit(|value, ()| *value += 10);
        other.join().unwrap();
        assert_eq!(sum(&slots), 12);
    });
}

#[test]
fn the_next_owner_sees_what_the_one_before_left() {
    loom::model(|| {
        let slots = Arc::new(Slots::<u32>::new());
        let first = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || slots.with(own(1), |value| *value += 1))
        };
        slots.visit(|value, ()| *value += 10);
        first.join().unwrap();
        slots.with(own(1), |value| *value += 1);
        assert!([2, 12].contains(&sum(&slots)));
    });
}

/// After `seal` every holder knows; before it, `seal` sees what the holder shared.
#[test]
fn sealing_misses_nobody() {
    use loom::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Count(AtomicU32);

    loom::model(|| {
        let slots = Arc::new(Slots::<(), Count>::new());
        let threads: Vec<_> = [own(0), shared()]
            .map(|seat| (seat.index(), Arc::clone(&slots)))
            .map(|(index, slots)| {
                thread::spawn(move || {
                    // SAFETY: this thread alone has the owned one.
                    let held = slots.hold(unsafe { Seat::new(index) });
                    let sealed = held.sealed();
                    if !sealed {
                        held.shared().0.store(1, Ordering::Relaxed);
                    }
                    u32::from(sealed)
                })
            })
            .into();
        let mut seen = 0;
        slots.seal(|count| seen += count.0.load(Ordering::Relaxed));
        let told: u32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(seen + told, 2);
    });
}

/// A cache as an engine uses it: freed here, taken there, flushed by a third; nothing is lost and nothing is
/// handed out twice.
#[test]
fn a_block_is_in_one_place() {
    loom::model(|| {
        let caches = Arc::new(Slots::<Vec<u32>>::new());
        caches.with(own(0), |cache| cache.push(7));
        let owner = {
            let caches = Arc::clone(&caches);
            thread::spawn(move || usize::from(caches.with(own(0), Vec::pop).is_some()))
        };
        let trimmer = {
            let caches = Arc::clone(&caches);
            thread::spawn(move || {
                let mut gone = 0;
                caches.visit(|cache, ()| gone += cache.drain(..).count());
                gone
            })
        };
        assert_eq!(owner.join().unwrap() + trimmer.join().unwrap(), 1);
    });
}
