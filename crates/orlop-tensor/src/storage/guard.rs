//! The right to read or to write a storage's bytes, for as long as it is held.

use super::cell::Cell;
use super::memory::Origin;
use crate::borrows::Flags;
use crate::error::Result;
use orlop_alloc::{Access, Context, Error as AllocError, MemoryBlock};
use std::ptr::NonNull;
use std::sync::Arc;

/// What a storage had before a change. Dropping it runs user code: see the head of `cell`. To be dropped after the guard.
#[must_use = "it is to be dropped after the guard"]
#[derive(Debug)]
pub(super) struct Former {
    _block: MemoryBlock,
    _origin: Option<Arc<Origin>>,
}

/// Nobody writes while this lives.
#[derive(Debug)]
pub(crate) struct ReadGuard<'a> {
    cell: &'a Cell,
}

/// Nobody else reads or writes while this lives.
#[derive(Debug)]
pub(crate) struct WriteGuard<'a> {
    cell: &'a Cell,
    /// The block of which the storage got a copy. Fields are dropped after `drop` has run, so nobody writes any more when
    /// this runs user code: see the head of `cell`.
    former: Option<MemoryBlock>,
}

impl<'a> ReadGuard<'a> {
    /// For who is a reader now.
    #[inline]
    pub(super) fn new(cell: &'a Cell) -> Self {
        Self { cell }
    }

    /// The block, while the guard lives.
    #[inline]
    pub(crate) fn block(&self) -> &MemoryBlock {
        // SAFETY: nobody changes the block while there is a reader.
        self.cell.block().with(|block| unsafe { &*block })
    }

    /// Bytes in use.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.cell.bytes()
    }

    /// Where the bytes begin, for the processor to read.
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
    /// For who is the writer now.
    #[inline]
    pub(super) fn new(cell: &'a Cell) -> Self {
        Self { cell, former: None }
    }

    /// The block, while the guard lives.
    #[inline]
    pub(crate) fn block(&self) -> &MemoryBlock {
        // SAFETY: only the writer changes the block, and only through `&mut` of its guard (`replace`).
        self.cell.block().with(|block| unsafe { &*block })
    }

    /// Puts another block in the place of this one.
    #[inline]
    pub(super) fn replace(&mut self, block: MemoryBlock) -> MemoryBlock {
        // SAFETY: nobody else reads or writes, and references from `block` borrow the guard.
        self.cell.block().with_mut(|place| std::mem::replace(unsafe { &mut *place }, block))
    }

    /// Gives the storage another block, of which `bytes` are in use and which has no other owner, and notes where more is to
    /// come from. Nothing in here fails or runs user code.
    pub(super) fn install(
        &mut self,
        block: MemoryBlock,
        bytes: usize,
        origin: Option<Arc<Origin>>,
    ) -> Former {
        let origin = self.cell.replace_origin(origin);
        let block = self.replace(block);
        self.cell.set_bytes(bytes);
        self.cell.borrows.clear(Flags::COPY_ON_WRITE.and(Flags::ESCAPED));
        self.cell.bump();
        Former { _block: block, _origin: origin }
    }

    /// Exchanges the blocks of two storages.
    pub(super) fn swap(&mut self, other: &mut WriteGuard<'_>) {
        let (mine, theirs) = (self.cell.block(), other.cell.block());
        // SAFETY: nobody else reads or writes either, and they are two: a cell has one writer.
        mine.with_mut(|mine| theirs.with_mut(|theirs| unsafe { std::ptr::swap(mine, theirs) }));
    }

    /// Makes the block larger where it is, in the current context's budgets; whether that could be.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        self.cell.block().with_mut(|place| {
            // SAFETY: as in `replace`.
            let block = unsafe { &mut *place };
            Context::with_current(|context| context.grow_in_place(block, bytes))
        })
    }

    /// Bytes in use.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.cell.bytes()
    }

    /// Makes sure that the block has no other owner: by a copy, if it has.
    pub(super) fn be_alone(
        &mut self,
        copy: impl FnOnce(&MemoryBlock, usize) -> Result<MemoryBlock>,
    ) -> Result<()> {
        if self.block().is_unique() {
            self.cell.borrows.clear(Flags::COPY_ON_WRITE);
            return Ok(());
        }
        let alone = copy(self.block(), self.bytes())?;
        // The others may have gone meanwhile: then the block goes back with the guard. There was no former one, because a
        // guard does this once.
        self.former = Some(self.replace(alone));
        self.cell.borrows.clear(Flags::COPY_ON_WRITE);
        Ok(())
    }

    /// Where the bytes begin, for the processor to read and write.
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
    use orlop_alloc::{Event, Observer};
    use std::sync::{Arc, Mutex};

    /// Uses a storage when memory goes back, once.
    #[derive(Default)]
    struct Reenters {
        storage: Mutex<Option<Storage>>,
        outcome: Mutex<Option<Result<()>>>,
    }

    impl Observer for Reenters {
        fn observe(&self, event: &Event<'_>) {
            let storage = self.storage.lock().expect("nobody panics").take();
            if let (Event::Freed { .. }, Some(storage)) = (event, storage) {
                *self.outcome.lock().expect("nobody panics") = Some(storage.write().map(|_| ()));
            }
        }
    }

    /// The other owner of a lazy copy's block goes while it is copied.
    #[test]
    fn a_block_that_was_copied_goes_back_when_nobody_writes() {
        let allocator = Direct::new(System::new()).erase();
        let storage = Storage::new(100, &TensorOptions::new().allocator(&allocator)).unwrap();
        let mut clone = Some(storage.lazy_clone().unwrap());
        let reenters = Arc::new(Reenters::default());
        allocator.set_observer(Some(Arc::clone(&reenters) as Arc<dyn Observer>));
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
