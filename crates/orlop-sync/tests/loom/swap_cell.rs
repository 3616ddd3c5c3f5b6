//! `swap_cell.release`: a replaced value is dropped when it has no reader, not before; and it is dropped.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use orlop_sync::SwapCell;

/// The content of a cell. Loom reports a use that is not ordered before its end.
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

/// A value of the cell: its drop ends the content.
struct Whole(Value);

impl Drop for Whole {
    fn drop(&mut self) {
        // SAFETY: no reader is left; loom checks.
        self.0.0.number.with_mut(|number| unsafe { *number = 0 });
        self.0.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

fn value(number: u32) -> Value {
    Value(Arc::new(Inner { number: UnsafeCell::new(number), ended: AtomicUsize::new(0) }))
}

fn read(cell: &SwapCell<Whole>) -> Option<u32> {
    // SAFETY: the cell keeps the content while it is read; loom checks.
    cell.with(|value| value.0.0.number.with(|number| unsafe { *number }))
}

#[test]
fn a_reader_keeps_a_replaced_value() {
    loom::model(|| {
        let (first, second) = (value(1), value(2));
        let cell = Arc::new(SwapCell::new());
        assert!(cell.set(Some(Whole(first.clone()))).is_empty());
        let reader = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || read(&cell))
        };
        drop(cell.set(Some(Whole(second.clone()))));
        let seen = reader.join().unwrap();
        assert!(seen == Some(1) || seen == Some(2), "{seen:?}");
        drop(cell.settle());
        assert_eq!(first.0.ended.load(Ordering::Relaxed), 1);
        drop(cell.set(None));
        assert_eq!((read(&cell), second.0.ended.load(Ordering::Relaxed)), (None, 1));
    });
}

#[test]
fn two_replace_while_one_reads() {
    loom::model(|| {
        let values = [value(1), value(2)];
        let cell = Arc::new(SwapCell::new());
        drop(cell.set(Some(Whole(values[0].clone()))));
        let (reader, other) = (Arc::clone(&cell), Arc::clone(&cell));
        let reader = thread::spawn(move || read(&reader));
        let other = thread::spawn(move || drop(other.set(None)));
        drop(cell.set(Some(Whole(values[1].clone()))));
        other.join().unwrap();
        assert_ne!(reader.join().unwrap(), Some(0));
        drop(cell.set(None));
        drop(cell.settle());
        assert!(values.iter().all(|value| value.0.ended.load(Ordering::Relaxed) == 1));
    });
}
