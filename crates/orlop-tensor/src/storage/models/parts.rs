//! Loom models of borrowed parts, inspections and constant storages.

use super::{Payload, block, cell, copy, lazy_clone, payload, read, try_read, try_write, write};
use crate::borrows::Flags;
use crate::shared::Shared;
use crate::storage::StorageCell;
use loom::cell::UnsafeCell;
use loom::thread;
use orlop_alloc::{Access, Block, MemoryBlock, engine_support::Record};
use orlop_context::ContextId;
use orlop_core::Device;
use std::ops::Range;
use std::ptr::NonNull;

/// The halves of the eight bytes that a cell has in the models.
const FIRST: Range<usize> = 0..4;
const SECOND: Range<usize> = 4..8;

/// Returns a cell of two halves, each with a payload.
fn halves() -> Shared<StorageCell> {
    let payloads = Box::leak(Box::new([0, 0].map(|value| Payload(UnsafeCell::new(value)))));
    let payloads = NonNull::from(payloads);
    let mut record = Record::new(payloads.cast(), size_of::<[Payload; 2]>(), Device::CPU, Access::Host);
    record.requested = record.granted;
    // SAFETY: it is never freed, and models access it through the storage only.
    let block = unsafe { Block::borrowed(record) }.share();
    Shared::new(StorageCell::new(block, 8, Flags::NONE, None, ContextId::NONE))
}

/// Returns a cell whose first half has a payload. The second is accessed by nothing.
fn half() -> Shared<StorageCell> {
    Shared::new(StorageCell::new(block(0), 8, Flags::NONE, None, ContextId::NONE))
}

fn write_second(block: &MemoryBlock, value: u32) {
    // SAFETY: the second payload of `halves`.
    let second = unsafe { NonNull::from(payload(block)).add(1).as_ref() };
    // SAFETY: loom checks that there is no concurrent access.
    second.0.with_mut(|place| unsafe { *place = value });
}

fn write_first(cell: &StorageCell, value: u32) -> bool {
    let Ok(guard) = cell.write_by(FIRST, copy) else { return false };
    write(guard.block(), value);
    true
}

fn read_first(cell: &StorageCell) -> Option<u32> {
    cell.read_range(FIRST).ok().map(|guard| read(guard.block()))
}

/// Two writers of one part, and a writer of another: the first two exclude each other, the third succeeds.
#[test]
fn parts_and_parts() {
    loom::model(|| {
        let mine = half();
        let theirs = mine.clone();
        let other = thread::spawn(move || {
            assert!(theirs.write_by(SECOND, copy).is_ok(), "disjoint");
            write_first(&theirs, 1)
        });
        let wrote = write_first(&mine, 2);
        let other = other.join().unwrap();
        assert!(wrote || other);
        assert!(matches!((read_first(&mine), wrote, other), (Some(1), _, true) | (Some(2), true, _)));
        assert_eq!(mine.version(), 1 + u64::from(wrote) + u64::from(other));
    });
}

/// A part is read while it is written, beside a third access that keeps the word's bits set.
#[test]
fn a_reader_and_a_writer_of_a_part() {
    loom::model(|| {
        let mine = half();
        let theirs = mine.clone();
        let beside = mine.write_by(SECOND, copy).unwrap();
        let writer = thread::spawn(move || write_first(&theirs, 1));
        let seen = read_first(&mine);
        assert!(seen.is_none_or(|seen| seen <= 1));
        drop(beside);
        let wrote = writer.join().unwrap();
        assert_eq!(try_read(&mine), Some(u32::from(wrote)));
    });
}

/// A writer of the whole and one of a part.
#[test]
fn the_whole_and_a_written_part() {
    loom::model(|| {
        let mine = half();
        let theirs = mine.clone();
        let other = thread::spawn(move || write_first(&theirs, 1));
        let wrote = try_write(&mine, 2);
        let other = other.join().unwrap();
        assert!(wrote || other);
        let value = try_read(&mine);
        assert!(value == Some(1) && other || value == Some(2) && wrote);
    });
}

/// A writer of the whole and a reader of a part, and the other way round.
#[test]
fn the_whole_and_a_read_part() {
    loom::model(|| {
        let mine = half();
        let theirs = mine.clone();
        let writer = thread::spawn(move || try_write(&theirs, 1));
        let seen = read_first(&mine);
        assert!(seen.is_none_or(|seen| seen <= 1));
        let wrote = writer.join().unwrap();
        assert_eq!(try_read(&mine), Some(u32::from(wrote)));
    });
    loom::model(|| {
        let mine = half();
        let theirs = mine.clone();
        let writer = thread::spawn(move || write_first(&theirs, 1));
        let seen = try_read(&mine);
        let again = try_read(&mine);
        assert!(seen.is_none_or(|seen| seen <= 1) && (seen, again) != (Some(1), Some(0)));
        let wrote = writer.join().unwrap();
        assert_eq!(try_read(&mine), Some(u32::from(wrote)));
    });
}

/// Two parts are written on two threads; then the whole is, which happens after both.
#[test]
fn the_whole_after_two_parts() {
    loom::model(|| {
        let mine = halves();
        let theirs = mine.clone();
        let other = thread::spawn(move || {
            if let Ok(guard) = theirs.write_by(SECOND, copy) {
                write_second(guard.block(), 1);
            }
        });
        let first = write_first(&mine, 1);
        assert!(first, "disjoint");
        if let Some(whole) = mine.try_write() {
            write(whole.block(), 2);
            write_second(whole.block(), 2);
        }
        other.join().unwrap();
    });
}

/// A lazy clone is made while a part is written: it fails, or has one of the two values and keeps it. The
/// writer of the part copies for the whole storage.
#[test]
fn parts_and_a_lazy_clone() {
    loom::model(|| {
        let mine = half();
        let theirs = mine.clone();
        let writer = thread::spawn(move || write_first(&theirs, 9));
        let clone = lazy_clone(&mine).ok();
        let seen = clone.as_ref().map(|clone| try_read(clone).unwrap());
        let wrote = writer.join().unwrap();
        assert_eq!(try_read(&mine), Some(if wrote { 9 } else { 0 }));
        assert_eq!(clone.as_ref().map(|clone| try_read(clone).unwrap()), seen);
    });
}

/// The clones of a storage are written concurrently, one by a part.
#[test]
fn a_part_of_a_lazy_clone_is_written() {
    loom::model(|| {
        let mine = cell(7);
        let theirs = Shared::new(lazy_clone(&mine).unwrap());
        let other = thread::spawn(move || {
            assert!(theirs.write_by(0..1, copy).map(|guard| write(guard.block(), 8)).is_ok());
            try_read(&theirs)
        });
        assert!(try_write(&mine, 9));
        assert_eq!((try_read(&mine), other.join().unwrap()), (Some(9), Some(8)));
    });
}

/// The block is inspected while it is replaced by the copy for a part, or for the whole.
#[test]
fn inspections_see_a_block() {
    for part in [FIRST, 0..usize::MAX] {
        loom::model(move || {
            let mine = half();
            let _clone = lazy_clone(&mine).unwrap();
            let (theirs, part) = (mine.clone(), part.clone());
            let writer = thread::spawn(move || theirs.write_by(part, copy).map(drop).is_ok());
            if let Ok(guard) = mine.inspect() {
                assert_eq!(guard.block().requested, guard.block().granted);
            }
            writer.join().unwrap();
        });
    }
}

/// A mark comes while another thread writes and a third reads: no reader sees a write in progress, and none
/// is left registered.
#[test]
fn a_mark_during_accesses() {
    for part in [FIRST, 0..usize::MAX] {
        loom::model(move || {
            let mine = half();
            let (theirs, part) = (mine.clone(), part.clone());
            let others = mine.clone();
            let writer = thread::spawn(move || match theirs.write_by(part, copy) {
                Ok(guard) => {
                    write(guard.block(), 1);
                    true
                }
                Err(_) => false,
            });
            let counted = others.read();
            others.mark_immutable();
            assert!(counted.is_err() || try_read(&mine).is_some());
            drop(counted);
            let seen = try_read(&mine);
            assert!(seen.is_none_or(|seen| seen <= 1));
            let wrote = writer.join().unwrap();
            assert_eq!(try_read(&mine), Some(u32::from(wrote)));
            assert!(!try_write(&mine, 2) && mine.inspect().is_ok());
        });
    }
}

/// A reader finds the storage constant after a writer's end: it sees what was written, by this alone.
#[test]
fn a_constant_is_read_after_its_writer() {
    for part in [FIRST, 0..usize::MAX] {
        loom::model(move || {
            let mine = half();
            let (theirs, part) = (mine.clone(), part.clone());
            let writer = thread::spawn(move || {
                let written = theirs.write_by(part, copy).map(|guard| write(guard.block(), 1));
                theirs.mark_immutable();
                written.is_ok()
            });
            // Loom does not preempt the first operation after the spawn.
            drop(mine.clone());
            let seen = mine.try_read_constant().map(|guard| read(guard.block()));
            assert!(seen.is_none_or(|seen| seen == 1), "marked after the write");
            assert!(writer.join().unwrap());
        });
    }
}
