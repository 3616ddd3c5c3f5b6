//! `remote.*`: each element is taken once, with everything that its pusher wrote.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use orlop_sync::{Linked, RemoteFreeList};
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
    // A write that loom tracks. SAFETY: no other thread has the element.
    element.value.with_mut(|place| unsafe { *place = value });
    element
}

fn sum(list: &RemoteFreeList<Element>) -> u32 {
    // SAFETY: taken elements are owned.
    list.take().map(|element| element.value.with(|value| unsafe { *value })).sum()
}

/// `remote.push` with `remote.take`: the taker reads what the pusher wrote.
#[test]
fn two_threads_push_while_one_takes() {
    loom::model(|| {
        let list = Arc::new(RemoteFreeList::new());
        let others = [1, 10].map(|value| {
            let list = Arc::clone(&list);
            thread::spawn(move || list.push(element(value)))
        });
        let meanwhile = sum(&list);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(meanwhile + sum(&list), 11);
        assert!(list.is_empty());
    });
}

/// Elements that are not taken are dropped with the list.
#[test]
fn remaining_elements_are_dropped() {
    loom::model(|| {
        let list = Arc::new(RemoteFreeList::new());
        let other = {
            let list = Arc::clone(&list);
            thread::spawn(move || list.push(element(1)))
        };
        list.push(element(2));
        other.join().unwrap();
    });
}
