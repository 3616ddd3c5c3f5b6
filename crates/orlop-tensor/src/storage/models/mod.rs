//! Loom models of the storage's protocols: borrow state, lazy copies, the last handle.
//!
//! The bytes are a [`Payload`] whose accesses loom checks: two concurrent accesses of which one writes, or a
//! missing happens-before edge, fail the model.

mod parts;

use super::Storage;
use super::cell::{NewCell, StorageCell};
use crate::borrows::Flags;
use crate::error::Result;
use crate::shared::Shared;
use crate::storage::TensorImpl;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use orlop_alloc::{Access, Block, Deleter, MemoryBlock, engine_support::Record};
use orlop_context::ContextId;
use orlop_core::{DType, Device, Layout, Shape};
use std::ptr::NonNull;

struct Payload(UnsafeCell<u32>);

/// Returns a block whose bytes are a payload that is leaked.
fn block(value: u32) -> MemoryBlock {
    let payload = NonNull::from(Box::leak(Box::new(Payload(UnsafeCell::new(value)))));
    let mut record = Record::new(payload.cast(), size_of::<Payload>(), Device::CPU, Access::Host);
    record.requested = record.granted;
    // SAFETY: it is never freed, and models access it through the storage only.
    unsafe { Block::borrowed(record) }.share()
}

fn payload(block: &MemoryBlock) -> &Payload {
    // SAFETY: `block` put it there.
    unsafe { block.ptr.cast().as_ref() }
}

fn read(block: &MemoryBlock) -> u32 {
    // SAFETY: loom checks that there is no concurrent write.
    payload(block).0.with(|value| unsafe { *value })
}

fn write(block: &MemoryBlock, value: u32) {
    // SAFETY: loom checks that there is no concurrent access.
    payload(block).0.with_mut(|place| unsafe { *place = value });
}

fn copy(from: &MemoryBlock, _: usize) -> Result<MemoryBlock> {
    Ok(block(read(from)))
}

/// Makes a lazy clone: the models' blocks may be shared, although they have no allocator.
fn lazy_clone(cell: &StorageCell) -> Result<StorageCell> {
    let copied = |from: &MemoryBlock, bytes| Ok((copy(from, bytes)?, bytes));
    cell.lazy_clone(|_| true, copied)
}

fn cell(value: u32) -> Shared<StorageCell> {
    Shared::new(StorageCell::new(block(value), size_of::<Payload>(), Flags::NONE, None, ContextId::NONE))
}

/// Writes by the fast path or by the other one.
fn try_write(cell: &StorageCell, value: u32) -> bool {
    let guard = cell.try_write().map_or_else(|| cell.write_by(0..usize::MAX, copy), Ok);
    let Ok(guard) = guard else { return false };
    write(guard.block(), value);
    true
}

/// Reads as accesses do: uncounted if the storage is constant.
fn try_read(cell: &StorageCell) -> Option<u32> {
    cell.read().ok().map(|guard| read(guard.block()))
}

/// A writer and readers of one storage: a refused access sees nothing; a granted one is exclusive or among
/// readers.
#[test]
fn readers_or_a_writer() {
    loom::model(|| {
        let mine = cell(0);
        let theirs = mine.clone();
        let writer = thread::spawn(move || try_write(&theirs, 1));
        let seen = try_read(&mine);
        let again = try_read(&mine);
        assert!(seen.is_none_or(|seen| seen <= 1) && (seen, again) != (Some(1), Some(0)));
        let wrote = writer.join().unwrap();
        assert_eq!(try_read(&mine), Some(u32::from(wrote)));
    });
}

/// Two writers: at least one succeeds, and the last one's value stays.
#[test]
fn two_writers() {
    loom::model(|| {
        let mine = cell(0);
        let theirs = mine.clone();
        let other = thread::spawn(move || try_write(&theirs, 1));
        let wrote = try_write(&mine, 2);
        let other = other.join().unwrap();
        assert!(wrote || other);
        let value = try_read(&mine);
        assert!(value == Some(1) && other || value == Some(2) && wrote);
    });
}

/// Two lazy clones, both written concurrently: each sees only its own value.
#[test]
fn lazy_clones_are_written_apart() {
    loom::model(|| {
        let mine = cell(7);
        let theirs = Shared::new(lazy_clone(&mine).unwrap());
        let other = thread::spawn(move || {
            assert!(try_write(&theirs, 8));
            try_read(&theirs)
        });
        assert_eq!(try_read(&mine), Some(7));
        assert!(try_write(&mine, 9));
        assert_eq!(try_read(&mine), Some(9));
        assert_eq!(other.join().unwrap(), Some(8));
    });
}

/// One clone reads while the other one writes, and while it is dropped.
#[test]
fn a_clone_reads_while_the_other_writes() {
    loom::model(|| {
        let mine = cell(7);
        let theirs = Shared::new(lazy_clone(&mine).unwrap());
        let other = thread::spawn(move || {
            let seen = try_read(&theirs);
            drop(theirs);
            seen
        });
        assert!(try_write(&mine, 9));
        assert_eq!(other.join().unwrap(), Some(7));
        assert_eq!(try_read(&mine), Some(9));
    });
}

/// Cloning lazily during a write: it fails, or the clone has one of the two values and keeps it.
#[test]
fn cloning_during_a_write() {
    loom::model(|| {
        let mine = cell(7);
        let theirs = mine.clone();
        let writer = thread::spawn(move || try_write(&theirs, 9));
        let clone = lazy_clone(&mine).ok();
        let seen = clone.as_ref().map(|clone| try_read(clone).unwrap());
        let wrote = writer.join().unwrap();
        assert_eq!(try_read(&mine), Some(if wrote { 9 } else { 7 }));
        assert_eq!(clone.as_ref().map(|clone| try_read(clone).unwrap()), seen);
    });
}

/// The last of several clones takes the block without a copy, and sees what the others did.
#[test]
fn the_last_owner_copies_nothing() {
    loom::model(|| {
        let mine = cell(7);
        let address = mine.read().unwrap().block().address();
        let theirs = Shared::new(lazy_clone(&mine).unwrap());
        let other = thread::spawn(move || {
            assert_eq!(try_read(&theirs), Some(7));
        });
        other.join().unwrap();
        assert!(try_write(&mine, 9));
        assert_eq!(mine.read().unwrap().block().address(), address);
    });
}

struct Watched {
    seen: UnsafeCell<u32>,
    dropped: Arc<loom::sync::atomic::AtomicUsize>,
}

crate::recycle::recycled!(Watched);

// SAFETY: loom checks the accesses.
unsafe impl Sync for Watched {}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: loom checks that there is no concurrent read.
        self.seen.with_mut(|seen| unsafe { *seen += 1 });
        self.dropped.fetch_add(1, loom::sync::atomic::Ordering::Relaxed);
    }
}

/// Handles are dropped on two threads: the value is dropped once, after the last use.
#[test]
fn the_last_handle() {
    loom::model(|| {
        let dropped = Arc::new(loom::sync::atomic::AtomicUsize::new(0));
        let mine = Shared::new(Watched { seen: UnsafeCell::new(0), dropped: Arc::clone(&dropped) });
        let theirs = mine.clone();
        // SAFETY: loom checks that there is no concurrent write.
        let look = |watched: &Watched| watched.seen.with(|seen| unsafe { *seen });
        let other = thread::spawn(move || {
            assert_eq!(look(&theirs), 0);
            drop(theirs);
        });
        assert_eq!(look(&mine), 0);
        drop(mine);
        other.join().unwrap();
        assert_eq!(dropped.load(loom::sync::atomic::Ordering::Relaxed), 1);
    });
}

/// Returns a block whose owner records its drop.
fn watched_block(dropped: &Arc<loom::sync::atomic::AtomicUsize>) -> MemoryBlock {
    let owner = Box::new(Watched { seen: UnsafeCell::new(0), dropped: Arc::clone(dropped) });
    let watched = NonNull::from(&*owner);
    let mut record = Record::new(watched.cast(), size_of::<Watched>(), Device::CPU, Access::Host);
    record.requested = record.granted;
    // SAFETY: valid as long as its owner, and models access it through the storage only.
    unsafe { Block::foreign(record, Deleter::from_owner(owner)) }.share()
}

/// The first tensor, which is inside the cell of its storage, is dropped before or after the others: the cell
/// is freed after both.
#[test]
fn the_first_tensor_goes_while_others_look() {
    loom::model(|| {
        let dropped = Arc::new(loom::sync::atomic::AtomicUsize::new(0));
        let cell = NewCell::new(watched_block(&dropped), size_of::<Watched>(), ContextId::NONE);
        let layout = || Layout::contiguous(Shape::scalar());
        let first = TensorImpl::first_of(cell, layout, DType::U8);
        let view = first.storage().clone();
        let look = |storage: &Storage| {
            let address = storage.cell().read().unwrap().block().ptr;
            // SAFETY: the contents of the block, which is valid while the storage has a handle; loom checks
            // that there is no concurrent write.
            unsafe { address.cast::<Watched>().as_ref() }.seen.with(|seen| unsafe { *seen })
        };
        let other = thread::spawn(move || {
            assert_eq!(look(&view), 0);
            drop(view);
        });
        let clone = first.clone();
        let third = thread::spawn(move || drop(clone));
        assert_eq!(look(first.storage()), 0);
        drop(first);
        other.join().unwrap();
        third.join().unwrap();
        assert_eq!(dropped.load(loom::sync::atomic::Ordering::Relaxed), 1);
    });
}

/// A handle gives mutable access only when it is the last, and sees what the others did.
#[test]
fn unique_after_the_others() {
    loom::model(|| {
        let dropped = Arc::new(loom::sync::atomic::AtomicUsize::new(0));
        let mut mine = Shared::new(Watched { seen: UnsafeCell::new(0), dropped });
        let theirs = mine.clone();
        let other = thread::spawn(move || {
            // SAFETY: loom checks that there is no concurrent write.
            assert_eq!(theirs.seen.with(|seen| unsafe { *seen }), 0);
        });
        if let Some(watched) = mine.get_mut() {
            // SAFETY: loom checks that there is no concurrent access.
            watched.seen.with_mut(|seen| unsafe { *seen = 5 });
        }
        other.join().unwrap();
    });
}
