//! External memory: adopted, and counted under its kind.

use super::{KIND, context};
use orlop_alloc::{Access, Block, Deleter, engine_support::Record};
use orlop_context::Source;
use orlop_core::{Device, MemoryKind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// External memory, freed with the block; `gone` counts that.
pub(crate) fn foreign(bytes: usize, kind: MemoryKind, gone: &Arc<AtomicUsize>) -> Block {
    let mut memory = vec![0u8; bytes];
    let mut record =
        Record::new(NonNull::from(memory.as_mut_slice()).cast(), bytes, Device::CPU, Access::Host);
    (record.requested, record.kind) = (bytes, kind);
    let gone = Arc::clone(gone);
    let deleter = Deleter::from_closure(move |_| {
        drop(memory);
        gone.fetch_add(1, Ordering::Relaxed);
    });
    // SAFETY: the memory is owned by the closure, initialised, and used through the block only.
    unsafe { Block::foreign(record, deleter) }
}

#[test]
fn external_memory_counts_under_its_kind_until_it_is_dropped() {
    let gone = Arc::new(AtomicUsize::new(0));
    let context = context();
    let block = context.adopt(foreign(1000, MemoryKind::Persistent, &gone));
    let mapped = context.adopt_mapped(foreign(3000, MemoryKind::Persistent, &gone));
    let stats = context.stats(Device::CPU);
    assert_eq!(
        (stats.kind(MemoryKind::Persistent).live_bytes, stats.usage.reserved, stats.cached()),
        (4000, 4000, 0)
    );
    let map = context.memory_map();
    assert_eq!((map.live_from(Source::Foreign), map.live_from(Source::Mapped)), (1000, 3000));
    // An account serves no requests.
    assert!(!block.has_allocator() && block.allocator().is_none());
    // Adopted only once.
    let mapped = context.adopt(mapped);
    assert_eq!(context.stats(Device::CPU).live(), 4000);
    drop(mapped);
    assert_eq!((gone.load(Ordering::Relaxed), context.stats(Device::CPU).live()), (1, 1000));
    drop(context);
    assert_eq!(gone.load(Ordering::Relaxed), 1);
    drop(block);
    assert_eq!(gone.load(Ordering::Relaxed), 2);
}

#[test]
fn external_memory_that_is_taken_back_is_counted_out_and_not_freed() {
    let gone = Arc::new(AtomicUsize::new(0));
    let context = context();
    let block = context.adopt(foreign(1000, KIND, &gone));
    let (_, deleter) = block.into_foreign().unwrap();
    assert_eq!((gone.load(Ordering::Relaxed), context.stats(Device::CPU).live()), (0, 0));
    drop(deleter);
    assert_eq!(gone.load(Ordering::Relaxed), 1);
}

#[test]
fn a_deleter_may_do_anything() {
    // It drops the last handle to the context, and another block of the same account.
    let gone = Arc::new(AtomicUsize::new(0));
    let first = context();
    let inner = first.adopt(foreign(10, KIND, &gone));
    let mut byte = Box::new(0u8);
    let record = Record::new(NonNull::from(&mut *byte), 1, Device::CPU, Access::Host);
    let held = Mutex::new(Some((first.clone(), inner)));
    let deleter = Deleter::from_closure(move |_| drop((held.lock().unwrap().take(), byte)));
    // SAFETY: the byte is owned by the closure, and used through the block only.
    let outer = first.adopt(unsafe { Block::foreign(record, deleter) });
    drop(first);
    drop(outer);
    assert_eq!(gone.load(Ordering::Relaxed), 1);
    // A block whose deleter panics is counted out all the same.
    let second = context();
    let mut byte = 0u8;
    let record = Record::new(NonNull::from(&mut byte), 1, Device::CPU, Access::Host);
    // SAFETY: the byte outlives the block.
    let block = second.adopt(unsafe { Block::foreign(record, Deleter::from_closure(|_| panic!("deleter"))) });
    assert_eq!(second.stats(Device::CPU).live(), 1);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(block))).is_err());
    assert_eq!(second.stats(Device::CPU).live(), 0);
}
