//! `lent.back`: what was replaced goes when nobody has a loan of it, and not before; and it does go.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use orlop_sync::Lent;

/// What is lent. Loom sees if a use is not ordered before its end.
#[derive(Clone)]
struct Value(Arc<Inner>);

struct Inner {
    number: UnsafeCell<u32>,
    ended: AtomicUsize,
}

// SAFETY: the protocol orders uses of `number` before its end; loom checks exactly that.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// A value of a slot: with it goes what it names. Clones, which a slot makes for who replaces, keep nothing.
struct Whole(Value, bool);

impl Clone for Whole {
    fn clone(&self) -> Self {
        Self(self.0.clone(), false)
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        if self.1 {
            // SAFETY: nobody uses it any more; loom checks.
            self.0.0.number.with_mut(|number| unsafe { *number = 0 });
            self.0.0.ended.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn value(number: u32) -> Value {
    Value(Arc::new(Inner { number: UnsafeCell::new(number), ended: AtomicUsize::new(0) }))
}

fn read(slot: &Lent<Whole>) -> Option<u32> {
    let loan = slot.get()?;
    // SAFETY: it is lent; loom checks.
    Some(loan.0.0.number.with(|number| unsafe { *number }))
}

#[test]
fn a_loan_outlives_its_replacement() {
    loom::model(|| {
        let (first, second) = (value(1), value(2));
        let slot = Arc::new(Lent::new());
        assert!(slot.set(Some(Whole(first.clone(), true))).is_none());
        let reader = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || read(&slot))
        };
        drop(slot.set(Some(Whole(second.clone(), true))));
        let seen = reader.join().unwrap();
        assert!(seen == Some(1) || seen == Some(2), "{seen:?}");
        slot.settle();
        assert_eq!(first.0.ended.load(Ordering::Relaxed), 1);
        drop(slot.set(None));
        assert_eq!((read(&slot), second.0.ended.load(Ordering::Relaxed)), (None, 1));
    });
}

#[test]
fn two_replace_while_one_reads() {
    loom::model(|| {
        let values = [value(1), value(2)];
        let slot = Arc::new(Lent::new());
        drop(slot.set(Some(Whole(values[0].clone(), true))));
        let (reader, other) = (Arc::clone(&slot), Arc::clone(&slot));
        let reader = thread::spawn(move || read(&reader));
        let other = thread::spawn(move || drop(other.set(None)));
        drop(slot.set(Some(Whole(values[1].clone(), true))));
        other.join().unwrap();
        assert_ne!(reader.join().unwrap(), Some(0));
        drop(slot.set(None));
        slot.settle();
        assert!(values.iter().all(|value| value.0.ended.load(Ordering::Relaxed) == 1));
    });
}
