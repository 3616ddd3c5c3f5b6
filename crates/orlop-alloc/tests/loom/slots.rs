//! `slots.take`, `slots.give`: what one holder wrote, the next one sees, and there is one at a time.

use loom::sync::Arc;
use loom::thread;
use orlop_alloc::protocol::Slots;

#[test]
fn holders_exclude_each_other_and_see_what_was_written() {
    loom::model(|| {
        let slots = Arc::new(Slots::new(2, || 0u32));
        let other = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || {
                slots.with(0, |value| *value += 1);
                slots.with(1, |value| *value += 1);
            })
        };
        slots.with(0, |value| *value += 1);
        other.join().unwrap();
        let mut sum = 0;
        slots.for_each(|value| sum += *value);
        assert_eq!(sum, 3);
    });
}

#[test]
fn trying_does_not_wait_and_does_not_share() {
    loom::model(|| {
        let slots = Arc::new(Slots::new(1, || 0u32));
        let other = {
            let slots = Arc::clone(&slots);
            thread::spawn(move || slots.try_hold(0).map(|mut value| *value += 1).is_some())
        };
        let mine = slots.try_hold(0).map(|mut value| *value += 1).is_some();
        let theirs = other.join().unwrap();
        assert!(mine || theirs);
        assert_eq!(slots.with(0, |value| *value), u32::from(mine) + u32::from(theirs));
    });
}

/// A thread-local cache as an engine uses it: freed here, taken there, flushed by a third; nothing is lost
/// and nothing is handed out twice.
#[test]
fn a_block_is_in_one_place() {
    loom::model(|| {
        let caches = Arc::new(Slots::new(2, Vec::<u32>::new));
        caches.with(0, |cache| cache.push(7));
        let thief = {
            let caches = Arc::clone(&caches);
            thread::spawn(move || {
                let own = caches.with(1, Vec::pop);
                usize::from(own.or_else(|| caches.with(0, Vec::pop)).is_some())
            })
        };
        let trimmer = {
            let caches = Arc::clone(&caches);
            thread::spawn(move || {
                let mut gone = 0;
                caches.for_each(|cache| gone += cache.drain(..).count());
                gone
            })
        };
        assert_eq!(thief.join().unwrap() + trimmer.join().unwrap(), 1);
    });
}
