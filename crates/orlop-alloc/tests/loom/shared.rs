//! Blocks with several owners: the last owner sees what the others did, and is unique.

use loom::cell::UnsafeCell;
use loom::thread;
use orlop_alloc::{Access, Block, Deleter, MemoryBlock, engine_support::Record};
use orlop_core::Device;
use std::ptr::NonNull;

struct Bytes(UnsafeCell<u32>);

/// A block whose bytes loom tracks, and which the thread that frees it writes.
fn block() -> MemoryBlock {
    let bytes = NonNull::from(Box::leak(Box::new(Bytes(UnsafeCell::new(7)))));
    let record = Record::new(bytes.cast(), size_of::<Bytes>(), Device::CPU, Access::Host);
    let free = |ptr: *mut u8| {
        // SAFETY: the box from above, freed once.
        let bytes = unsafe { Box::from_raw(ptr.cast::<Bytes>()) };
        // SAFETY: loom checks that no thread reads meanwhile.
        bytes.0.with_mut(|value| unsafe { *value = 0 });
    };
    // SAFETY: the memory is valid until it is freed, and the model uses it through the block only.
    unsafe { Block::foreign(record, Deleter::from_closure(free)) }.share()
}

fn read(block: &MemoryBlock) -> u32 {
    // SAFETY: the pointer that `block` put there.
    let bytes = unsafe { block.ptr.cast::<Bytes>().as_ref() };
    // SAFETY: loom checks that no thread writes meanwhile.
    bytes.0.with(|value| unsafe { *value })
}

#[test]
fn the_last_owner_frees_it() {
    loom::model(|| {
        let mine = block();
        let theirs = mine.clone();
        let other = thread::spawn(move || assert_eq!(read(&theirs), 7));
        assert_eq!(read(&mine), 7);
        drop(mine);
        other.join().unwrap();
    });
}

/// Marked memory has its last owner too, whichever owner marks it.
#[test]
fn a_mark_is_not_an_owner() {
    loom::model(|| {
        let mine = block();
        let theirs = mine.clone();
        let other = thread::spawn(move || assert_eq!(read(&theirs), 7));
        mine.mark_read_only();
        assert_eq!(read(&mine), 7);
        drop(mine.try_into_block().unwrap_err());
        other.join().unwrap();
    });
}

#[test]
fn three_owners() {
    loom::model(|| {
        let mine = block();
        let others = [mine.clone(), mine.clone()];
        let threads = others.map(|theirs| thread::spawn(move || assert_eq!(read(&theirs), 7)));
        drop(mine);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
