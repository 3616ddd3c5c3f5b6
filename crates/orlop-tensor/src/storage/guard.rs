//! Read and write guards of a storage's bytes.

use super::cell::StorageCell;
use super::memory::Origin;
use super::release::nothing_like;
use crate::borrows::Flags;
use crate::error::Result;
use orlop_alloc::{Block, MemoryBlock};
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

impl ReplacedMemory {
    /// Wraps a block that became unnecessary.
    pub(super) fn of_block(block: MemoryBlock) -> Self {
        Self { _block: block, _origin: None }
    }
}

/// How an access is registered, and thus how it ends: in one register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Registration(u32);

impl Registration {
    /// As an access to the whole.
    pub(super) const WHOLE: Self = Self(0);
    /// Not at all: the storage is constant.
    pub(crate) const NONE: Self = Self(u32::MAX);
    /// As an inspection: the range is empty.
    pub(super) const EMPTY: Self = Self(u32::MAX - 1);

    /// As an access to the part at this index, which is small: see `borrows::parts`.
    pub(super) fn part(index: u32) -> Self {
        Self(index + 1)
    }

    /// Ends an access that is not to the whole.
    fn end_special(self, cell: &StorageCell) {
        match self {
            Self::NONE => {}
            Self::EMPTY => cell.borrows.end_inspection(),
            Self(part) => cell.end_part(part - 1),
        }
    }

    /// Ends a writer.
    pub(super) fn end_write(self, cell: &StorageCell) {
        if self == Self::WHOLE { cell.borrows.end_write() } else { self.end_special(cell) }
    }
}

/// A read guard: while it exists, nothing writes the bytes that it is for, nor replaces the block.
#[derive(Debug)]
pub(crate) struct ReadGuard<'a> {
    cell: &'a StorageCell,
    registration: Registration,
}

/// A write guard: while it exists, nothing else reads or writes the bytes that it is for, nor replaces the
/// block, which has no other owner.
#[derive(Debug)]
pub(crate) struct WriteGuard<'a> {
    cell: &'a StorageCell,
    write: Write,
}

/// How a writer is registered. One tag says that there is nothing but the word to change at the end.
#[derive(Debug)]
enum Write {
    /// As the writer of the whole.
    Whole,
    /// Possibly otherwise.
    Special {
        registration: Registration,
        /// The previous block of a storage that was copied, or an unnecessary copy. Fields are dropped after
        /// `drop` has run, so the guard is released when this runs user code: see the documentation of
        /// `cell`.
        _former: Option<MemoryBlock>,
    },
}

/// A write guard of the whole storage, to change the storage itself. No other guard exists.
#[derive(Debug)]
pub(crate) struct ChangeGuard<'a>(WriteGuard<'a>);

/// A guard of the block and not of its bytes: while it exists, the block is not replaced.
#[derive(Debug)]
pub(crate) struct InspectGuard<'a> {
    cell: &'a StorageCell,
}

impl<'a> ReadGuard<'a> {
    /// Creates the guard of a registered reader, or of none if the storage was found to be constant.
    #[inline]
    pub(crate) fn new(cell: &'a StorageCell, registration: Registration) -> Self {
        Self { cell, registration }
    }

    /// Returns the block, for the life of the guard.
    #[inline]
    pub(crate) fn block(&self) -> &MemoryBlock {
        // SAFETY: the block does not change while there is a reader of the whole or of a part, or an
        // inspection, and that of a constant storage never changes: `Borrows::change` is refused.
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
    /// [`NotHostAccessible`](orlop_alloc::Error::NotHostAccessible).
    #[inline]
    pub(crate) fn host(&self) -> Result<NonNull<u8>> {
        host(self.block())
    }
}

impl<'a> WriteGuard<'a> {
    /// Creates the guard of the registered writer of the whole.
    #[inline]
    pub(super) fn whole(cell: &'a StorageCell) -> Self {
        Self { cell, write: Write::Whole }
    }

    /// Creates the guard of a writer of a part, or of an empty range.
    pub(super) fn special(cell: &'a StorageCell, registration: Registration) -> Self {
        Self { cell, write: Write::Special { registration, _former: None } }
    }

    /// Turns the guard of the whole into that of another writer, which was registered in its place.
    pub(super) fn narrowed(mut self, narrow: Registration) -> Self {
        match &mut self.write {
            Write::Special { registration, .. } => *registration = narrow,
            whole @ Write::Whole => *whole = Write::Special { registration: narrow, _former: None },
        }
        self
    }

    /// Returns the block, for the life of the guard.
    #[inline]
    pub(crate) fn block(&self) -> &MemoryBlock {
        // SAFETY: the block changes only through `&mut` of a guard of the whole (`ChangeGuard`), of which
        // this is the only one, or which a guard of a part or an inspection excludes.
        self.cell.block().with(|block| unsafe { &*block })
    }

    /// Returns the bytes in use.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.cell.bytes()
    }

    /// Ends the guard, but not its registration: returns that, and the memory that was replaced for it.
    pub(super) fn into_registration(mut self) -> (Registration, Option<MemoryBlock>) {
        let registration = match &mut self.write {
            Write::Whole => (Registration::WHOLE, None),
            Write::Special { registration, _former } => (*registration, _former.take()),
        };
        std::mem::forget(self);
        registration
    }

    /// Returns the address of the bytes for reading and writing by the CPU.
    ///
    /// # Errors
    ///
    /// [`NotHostAccessible`](orlop_alloc::Error::NotHostAccessible).
    #[inline]
    pub(crate) fn host(&self) -> Result<NonNull<u8>> {
        host(self.block())
    }
}

impl<'a> ChangeGuard<'a> {
    /// Creates the guard of the registered writer of the whole.
    pub(super) fn new(cell: &'a StorageCell) -> Self {
        Self(WriteGuard::whole(cell))
    }

    /// Returns the guard of the bytes.
    pub(super) fn into_write(self) -> WriteGuard<'a> {
        self.0
    }

    /// Returns the block, for the life of the guard.
    pub(super) fn block(&self) -> &MemoryBlock {
        self.0.block()
    }

    /// Returns the bytes in use.
    pub(super) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Replaces the block, and returns the old one.
    pub(super) fn replace(&mut self, block: MemoryBlock) -> MemoryBlock {
        // SAFETY: there is no other guard, and references from `block` borrow this one.
        self.0.cell.block().with_mut(|place| std::mem::replace(unsafe { &mut *place }, block))
    }

    /// Takes the block out, with all bytes in use, if it has no other owner. A block without bytes stays.
    pub(super) fn take_block(&mut self) -> Option<Block> {
        let nothing = nothing_like(self.block());
        match self.replace(nothing).try_into_block() {
            Ok(block) => {
                self.0.cell.set_bytes(0);
                Some(block)
            }
            Err(block) => {
                drop(self.replace(block));
                None
            }
        }
    }

    /// Gives the storage another block, of which `bytes` are in use and which has no other owner, and sets
    /// the origin of later memory. Nothing in here fails or runs user code.
    pub(super) fn install(
        &mut self,
        block: MemoryBlock,
        bytes: usize,
        origin: Option<Arc<Origin>>,
    ) -> ReplacedMemory {
        let origin = self.0.cell.replace_origin(origin);
        let cell = self.0.cell;
        cell.set_kind(block.kind);
        let block = self.replace(block);
        cell.set_bytes(bytes);
        cell.borrows.clear(Flags::COPY_ON_WRITE.and(Flags::ESCAPED));
        cell.bump();
        ReplacedMemory { _block: block, _origin: origin }
    }

    /// Swaps the blocks of two storages.
    pub(super) fn swap(&mut self, other: &mut ChangeGuard<'_>) {
        let (mine, theirs) = (self.0.cell.block(), other.0.cell.block());
        // SAFETY: there is no other guard of either, and they are distinct: a cell has one writer.
        mine.with_mut(|mine| theirs.with_mut(|theirs| unsafe { std::ptr::swap(mine, theirs) }));
    }

    /// Grows the block in place, within the budgets of the current context, which is that of the memory.
    /// Returns whether that succeeded.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        self.0.cell.block().with_mut(|place| {
            // SAFETY: as in `replace`.
            let block = unsafe { &mut *place };
            Context::with_current(|context| context.grow_in_place(block, bytes))
        })
    }

    /// Ensures that the block has no other owner, by a copy if necessary.
    pub(super) fn make_sole_owner(
        &mut self,
        copy: impl FnOnce(&MemoryBlock, usize) -> Result<MemoryBlock>,
    ) -> Result<()> {
        if !self.block().is_unique() {
            let copied = copy(self.block(), self.bytes());
            // Allocating runs user code, which may have dropped the other owners: no copy is needed then.
            let former = match (self.block().is_unique(), copied) {
                (true, copied) => copied.ok(),
                (false, Ok(alone)) => Some(self.replace(alone)),
                (false, Err(error)) => return Err(error),
            };
            // Freed with the guard. There was no former block, because a guard does this once.
            self.0.write = Write::Special { registration: Registration::WHOLE, _former: former };
        }
        self.0.cell.borrows.clear(Flags::COPY_ON_WRITE);
        Ok(())
    }
}

impl<'a> InspectGuard<'a> {
    /// Creates the guard of a registered inspection.
    pub(super) fn new(cell: &'a StorageCell) -> Self {
        Self { cell }
    }

    /// Returns the block, for the life of the guard.
    pub(crate) fn block(&self) -> &MemoryBlock {
        // SAFETY: only a writer of the whole replaces the block, and there is none during an inspection.
        self.cell.block().with(|block| unsafe { &*block })
    }
}

#[inline]
fn host(block: &MemoryBlock) -> Result<NonNull<u8>> {
    block.check_host()?;
    Ok(block.ptr)
}

impl Drop for ReadGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.registration == Registration::WHOLE {
            self.cell.borrows.end_read();
        } else if self.registration != Registration::NONE {
            self.registration.end_special(self.cell);
        }
    }
}

impl Drop for WriteGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.write {
            Write::Whole => self.cell.borrows.end_write(),
            Write::Special { registration, .. } => registration.end_write(self.cell),
        }
    }
}

impl Drop for InspectGuard<'_> {
    fn drop(&mut self) {
        self.cell.borrows.end_inspection();
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
        let guard = storage.cell().write_by(0..usize::MAX, |block, bytes| {
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
