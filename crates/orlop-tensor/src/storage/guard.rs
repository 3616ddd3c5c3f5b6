//! Read and write guards of a storage's bytes.

use super::cell::StorageCell;
use super::memory::Origin;
use crate::borrows::Flags;
use crate::error::Result;
use orlop_alloc::{Access, Error as AllocError, MemoryBlock};
use orlop_context::Context;
use std::ptr::NonNull;
use std::sync::Arc;

/// The block and origin of a storage before a change. Dropping it runs user code, so it is dropped after the
/// guard: see the documentation of `cell`.
#[must_use = "drop it after the guard"]
#[derive(Debug)]
pub(super) struct ReplacedMemory {
    _block: MemoryBlock,
    _origin: Option<Arc<Origin>>,
}

/// A read guard: nothing writes while it exists.
#[derive(Debug)]
pub(crate) struct ReadGuard<'a> {
    cell: &'a StorageCell,
}

/// A write guard: nothing else reads or writes while it exists.
#[derive(Debug)]
pub(crate) struct WriteGuard<'a> {
    cell: &'a StorageCell,
    /// The previous block of a storage that was copied. Fields are dropped after `drop` has run, so the guard
    /// is released when this runs user code: see the documentation of `cell`.
    former: Option<MemoryBlock>,
}

impl<'a> ReadGuard<'a> {
    /// Creates the guard of a registered reader.
    #[inline]
    pub(super) fn new(cell: &'a StorageCell) -> Self {
        Self { cell }
    }

    /// Returns the block, for the life of the guard.
    #[inline]
    pub(crate) fn block(&self) -> &MemoryBlock {
        // SAFETY: the block does not change while there is a reader.
        self.cell.block().with(|block| unsafe { &*block })
    }

    /// Bytes in use.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.cell.bytes()
    }

    /// Returns the address of the bytes for reading by the CPU.
    ///
    /// # Errors
    ///
    /// [`NotHostAccessible`](AllocError::NotHostAccessible).
    #[inline]
    pub(crate) fn host(&self) -> Result<NonNull<u8>> {
        host(self.block())
    }
}

impl<'a> WriteGuard<'a> {
    /// Creates the guard of the registered writer.
    #[inline]
    pub(super) fn new(cell: &'a StorageCell) -> Self {
        Self { cell, former: None }
    }

    /// Returns the block, for the life of the guard.
    #[inline]
    pub(crate) fn block(&self) -> &MemoryBlock {
        // SAFETY: only the writer changes the block, and only through `&mut` of its guard (`replace`).
        self.cell.block().with(|block| unsafe { &*block })
    }

    /// Replaces the block, and returns the old one.
    #[inline]
    pub(super) fn replace(&mut self, block: MemoryBlock) -> MemoryBlock {
        // SAFETY: nothing else reads or writes, and references from `block` borrow the guard.
        self.cell.block().with_mut(|place| std::mem::replace(unsafe { &mut *place }, block))
    }

    /// Gives the storage another block, of which `bytes` are in use and which has no other owner, and sets
    /// the origin of later memory. Nothing in here fails or runs user code.
    pub(super) fn install(
        &mut self,
        block: MemoryBlock,
        bytes: usize,
        origin: Option<Arc<Origin>>,
    ) -> ReplacedMemory {
        let origin = self.cell.replace_origin(origin);
        let block = self.replace(block);
        self.cell.set_bytes(bytes);
        self.cell.borrows.clear(Flags::COPY_ON_WRITE.and(Flags::ESCAPED));
        self.cell.bump();
        ReplacedMemory { _block: block, _origin: origin }
    }

    /// Swaps the blocks of two storages.
    pub(super) fn swap(&mut self, other: &mut WriteGuard<'_>) {
        let (mine, theirs) = (self.cell.block(), other.cell.block());
        // SAFETY: nothing else reads or writes either, and they are distinct: a cell has one writer.
        mine.with_mut(|mine| theirs.with_mut(|theirs| unsafe { std::ptr::swap(mine, theirs) }));
    }

    /// Grows the block in place, within the current context's budgets. Returns whether that succeeded.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        self.cell.block().with_mut(|place| {
            // SAFETY: as in `replace`.
            let block = unsafe { &mut *place };
            Context::with_current(|context| context.grow_in_place(block, bytes))
        })
    }

    /// Returns the bytes in use.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.cell.bytes()
    }

    /// Ensures that the block has no other owner, by a copy if necessary.
    pub(super) fn be_alone(
        &mut self,
        copy: impl FnOnce(&MemoryBlock, usize) -> Result<MemoryBlock>,
    ) -> Result<()> {
        if self.block().is_unique() {
            self.cell.borrows.clear(Flags::COPY_ON_WRITE);
            return Ok(());
        }
        let alone = copy(self.block(), self.bytes())?;
        // The other owners may be gone by now: then the block is freed with the guard. There was no former
        // block, because a guard does this once.
        self.former = Some(self.replace(alone));
        self.cell.borrows.clear(Flags::COPY_ON_WRITE);
        Ok(())
    }

    /// Returns the address of the bytes for reading and writing by the CPU.
    ///
    /// # Errors
    ///
    /// [`NotHostAccessible`](AllocError::NotHostAccessible).
    #[inline]
    pub(crate) fn host(&self) -> Result<NonNull<u8>> {
        host(self.block())
    }
}

#[inline]
fn host(block: &MemoryBlock) -> Result<NonNull<u8>> {
    match block.access {
        Access::Host => Ok(block.ptr),
        Access::Device | Access::None => Err(AllocError::NotHostAccessible { device: block.device }.into()),
    }
}

impl Drop for ReadGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.cell.borrows.end_read();
    }
}

impl Drop for WriteGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.cell.borrows.end_write();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::storage::{Storage, cow::copy_of};
    use crate::{Result, TensorOptions};
    use orlop_alloc::backing::System;
    use orlop_alloc::engine::Direct;
    use orlop_alloc::{Allocator, Event, Observer};
    use std::sync::{Arc, Mutex};

    /// Uses a storage while memory is freed, once.
    #[derive(Default)]
    struct Reenters {
        storage: Mutex<Option<Storage>>,
        outcome: Mutex<Option<Result<()>>>,
    }

    impl Observer for Reenters {
        fn observe(&self, event: &Event<'_>) {
            let storage = self.storage.lock().expect("no panic").take();
            if let (Event::Freed { .. }, Some(storage)) = (event, storage) {
                *self.outcome.lock().expect("no panic") = Some(storage.write().map(|_| ()));
            }
        }
    }

    /// The other owner of a lazy copy's block is dropped during the copy.
    #[test]
    fn a_copied_block_is_freed_after_the_write() {
        let allocator = Direct::new(System::new()).into_ref().erase();
        let storage = Storage::new(100, &TensorOptions::new().allocator(&allocator)).unwrap();
        let mut clone = Some(storage.lazy_clone().unwrap());
        let reenters = Arc::new(Reenters::default());
        allocator.add_observer(Arc::clone(&reenters) as Arc<dyn Observer>);
        let guard = storage.cell().write_by(|block, bytes| {
            clone = None;
            let copy = copy_of(block, bytes);
            *reenters.storage.lock().unwrap() = Some(storage.clone());
            copy
        });
        let guard = guard.unwrap();
        assert!(guard.block().is_unique() && reenters.outcome.lock().unwrap().is_none());
        drop(guard);
        let outcome = reenters.outcome.lock().unwrap().take();
        assert!(matches!(outcome, Some(Ok(()))), "{outcome:?}");
    }
}
