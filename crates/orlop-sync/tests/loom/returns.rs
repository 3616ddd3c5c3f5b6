//! What is brought back is taken once, whole and written.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use orlop_sync::{Linked, Returns};
use std::ptr::NonNull;

struct Element {
    link: Option<NonNull<Self>>,
    value: UnsafeCell<u32>,
}

// SAFETY: a field of its own.
unsafe impl Linked for Element {
    fn link(&self) -> Option<NonNull<Self>> {
        self.link
    }

    fn set_link(&mut self, link: Option<NonNull<Self>>) {
        self.link = link;
    }
}

// SAFETY: the link is to an element that the list owns.
unsafe impl Send for Element {}

fn element(value: u32) -> Box<Element> {
    let element = Box::new(Element { link: None, value: UnsafeCell::new(0) });
    // A write that loom knows of. SAFETY: nobody else has it.
    element.value.with_mut(|place| unsafe { *place = value });
    element
}

fn sum(returns: &Returns<Element>) -> u32 {
    // SAFETY: what was taken is ours.
    returns.take().map(|element| element.value.with(|value| unsafe { *value })).sum()
}

/// `returns.push` with `returns.take`: the taker reads what the other wrote.
#[test]
fn two_bring_back_while_one_takes() {
    loom::model(|| {
        let returns = Arc::new(Returns::new());
        let others = [1, 10].map(|value| {
            let returns = Arc::clone(&returns);
            thread::spawn(move || returns.push(element(value)))
        });
        let meanwhile = sum(&returns);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(meanwhile + sum(&returns), 11);
        assert!(returns.is_empty());
    });
}

/// What nobody takes goes with the list.
#[test]
fn what_is_left_is_dropped() {
    loom::model(|| {
        let returns = Arc::new(Returns::new());
        let other = {
            let returns = Arc::clone(&returns);
            thread::spawn(move || returns.push(element(1)))
        };
        returns.push(element(2));
        other.join().unwrap();
    });
}
