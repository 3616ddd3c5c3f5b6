//! Deleters of foreign memory: a plain function with a context of its own, and closures.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

use orlop_alloc::{Access, Block, Deleter, engine_support::Record};
use orlop_core::Device;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The calls of [`note`]: context and data.
static CALLS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

fn note(context: *mut c_void, data: *mut u8) {
    CALLS.lock().unwrap().push((context.addr(), data.addr()));
}

/// A constant: a deleter of a plain function needs no allocation.
// SAFETY: `note` uses neither pointer.
const PLAIN: Deleter = unsafe { Deleter::from_fn(note, ptr::without_provenance_mut(77)) };

/// Foreign memory of eight bytes.
fn block(bytes: &mut [u8; 8], deleter: Deleter) -> Block {
    let mut record = Record::new(NonNull::from(bytes).cast(), 8, Device::CPU, Access::Host);
    record.requested = 8;
    // SAFETY: the bytes are initialised, outlive the block, and are not used meanwhile.
    unsafe { Block::foreign(record, deleter) }
}

#[test]
fn a_plain_function_gets_its_context_and_the_data_once() {
    let mut bytes = [3; 8];
    let address = bytes.as_ptr().addr();
    let owned = block(&mut bytes, PLAIN);
    assert_eq!(owned.bytes().unwrap(), [3; 8]);
    assert!(CALLS.lock().unwrap().is_empty());
    let shared = owned.share();
    let other = shared.clone();
    drop(shared);
    assert!(CALLS.lock().unwrap().is_empty());
    drop(other);
    assert_eq!(CALLS.lock().unwrap().split_off(0), [(77, address)]);
    // Ownership is given away: nothing is called until the receiver drops it.
    let (ptr, deleter) = block(&mut bytes, PLAIN).into_foreign().unwrap();
    assert_eq!((ptr.as_ptr().addr(), deleter.context().addr()), (address, 77));
    assert!(CALLS.lock().unwrap().is_empty());
    drop(deleter);
    assert_eq!(CALLS.lock().unwrap().split_off(0), [(77, 0)]);
}

#[test]
fn a_closure_is_called_once_and_dropped() {
    let (calls, mut bytes) = (Arc::new(AtomicUsize::new(0)), [0; 8]);
    let count = Arc::clone(&calls);
    let address = bytes.as_ptr().addr();
    let closure = Deleter::from_closure(move |data| {
        assert_eq!(data.addr(), address);
        count.fetch_add(1, Ordering::Relaxed);
    });
    assert_ne!(closure.context().addr(), address);
    drop(block(&mut bytes, closure));
    assert_eq!((calls.load(Ordering::Relaxed), Arc::strong_count(&calls)), (1, 1));
}
