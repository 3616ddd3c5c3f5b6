//! A block with several owners (L3, T2): the last one to go returns it.
//!
//! The count is in the block's record, so sharing allocates nothing, and whoever is the only owner goes without a
//! locked instruction (T1).
//!
//! # Ordering
//!
//! As in `Arc`: a new owner is counted by one that is counted (relaxed); who goes releases what it did
//! (`share.leave`), and who finds itself alone (`share.alone`, acquire) has seen all of that.

use crate::handle::handle_of;
use crate::{AllocatorRef, Block, RawBlock, Record};
use orlop_sync::{atomic::Ordering, ordering};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

/// A counted handle to a block of memory. Shows the block's [`Record`]; the bytes are the owners' affair.
///
/// ```
/// use orlop_alloc::{Context, Request};
/// use orlop_core::Device;
///
/// let block = Context::new().allocate(Device::CPU, &Request::new(100))?.share();
/// let other = block.clone();
/// assert_eq!((block.is_unique(), other.requested), (false, 100));
/// drop(other);
/// assert!(block.try_into_block().is_ok());
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
pub struct MemoryBlock {
    /// Invariant: of a block whose record counts this handle: its `sharers` are the handles but one.
    record: NonNull<Record>,
}

/// More owners than there can be without leaking them: the process ends, as with `Arc`.
const MOST: u32 = u32::MAX / 2;

impl Block {
    /// The block as one that can have several owners.
    #[inline]
    pub fn share(self) -> MemoryBlock {
        MemoryBlock { record: self.into_raw().record() }
    }
}

impl MemoryBlock {
    /// Whether this is the only owner. What other owners did before they went has happened.
    #[inline]
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.sharers.load(ordering!("share.alone", Acquire)) == 0
    }

    /// How many owners there are, at some moment.
    #[must_use]
    pub fn owners(&self) -> usize {
        self.sharers.load(Ordering::Relaxed) as usize + 1
    }

    /// The block, if this is its only owner.
    ///
    /// # Errors
    ///
    /// The handle itself, if there are others.
    #[inline]
    pub fn try_into_block(self) -> Result<Block, Self> {
        if !self.is_unique() {
            return Err(self);
        }
        let handle = ManuallyDrop::new(self);
        // SAFETY: from a block that was given up in `share`; the only handle goes with this.
        Ok(Block::new(unsafe { RawBlock::from_record(handle.record) }))
    }

    /// Runs `f` on the block, if this is its only owner.
    pub(crate) fn with_block<R>(&mut self, f: impl FnOnce(&mut Block) -> R) -> Option<R> {
        if !self.is_unique() {
            return None;
        }
        // SAFETY: from a block that was given up in `share`; the only handle is borrowed. Not dropped: it stays the
        // handle's, also if `f` panics.
        let mut block = ManuallyDrop::new(Block::new(unsafe { RawBlock::from_record(self.record) }));
        Some(f(&mut block))
    }

    /// Notes that `stream` uses the memory too: see [`Block::record_stream`].
    ///
    /// # Errors
    ///
    /// Those of [`Block::record_stream`].
    pub fn record_stream(&self, stream: orlop_core::StreamId) -> crate::Result<()> {
        self.record_use(stream)
    }

    /// Whether copies may be put off (P6): see [`Block::is_simple`].
    #[must_use]
    pub fn is_simple(&self) -> bool {
        self.has_allocator()
    }

    /// Whether it returns to an allocator of this crate.
    #[must_use]
    pub fn has_allocator(&self) -> bool {
        Record::allocator(self).is_some()
    }

    /// The allocator that it returns to (L4): a handle, to ask for more of the kind. `None` for memory from outside, for
    /// empty blocks, and if the last handle went before: the allocator then lives on for its blocks only.
    #[must_use]
    pub fn allocator(&self) -> Option<AllocatorRef> {
        // SAFETY: a block that lives, and does while it is borrowed here, returns to its owner.
        Record::allocator(self).and_then(|owner| unsafe { handle_of(owner) })
    }

    /// The name of the allocator that it returns to, whether or not that has a handle.
    #[must_use]
    pub fn allocator_name(&self) -> Option<&str> {
        // SAFETY: the cell lives while its block does, which is borrowed for as long as the name.
        Record::allocator(self).map(|owner| unsafe { owner.as_ref() }.allocator().name())
    }

    /// Whether it returns to this allocator. Unlike [`MemoryBlock::allocator`], this counts nothing.
    #[must_use]
    pub fn is_from(&self, allocator: &AllocatorRef) -> bool {
        self.owner == Some(allocator.owner())
    }

    #[cold]
    #[inline(never)]
    fn leave(&self) {
        if self.sharers.fetch_sub(1, ordering!("share.leave", AcqRel)) == 0 {
            // The others went since we looked.
            self.sharers.store(0, Ordering::Relaxed);
            // SAFETY: the count says that no other handle is left, and this one goes.
            drop(Block::new(unsafe { RawBlock::from_record(self.record) }));
        }
    }
}

impl Deref for MemoryBlock {
    type Target = Record;

    #[inline]
    fn deref(&self) -> &Record {
        // SAFETY: the block lives while its owners do, and nobody has more than shared access meanwhile.
        unsafe { self.record.as_ref() }
    }
}

impl Clone for MemoryBlock {
    #[inline]
    fn clone(&self) -> Self {
        // Relaxed: the new owner is made from one that is counted.
        if self.sharers.fetch_add(1, Ordering::Relaxed) >= MOST {
            std::process::abort();
        }
        Self { record: self.record }
    }
}

impl Drop for MemoryBlock {
    #[inline]
    fn drop(&mut self) {
        if self.is_unique() {
            // SAFETY: no other handle is left, and this one goes.
            drop(Block::new(unsafe { RawBlock::from_record(self.record) }));
        } else {
            self.leave();
        }
    }
}

impl fmt::Debug for MemoryBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBlock")
            .field("address", &self.ptr)
            .field("bytes", &self.requested)
            .field("device", &self.device)
            .field("kind", &self.kind)
            .field("owners", &self.owners())
            .finish_non_exhaustive()
    }
}

// SAFETY: a handle shows a record, which is `Sync`, and the last one to go returns the block, which is `Send`; the
// count orders the last after all others.
unsafe impl Send for MemoryBlock {}
// SAFETY: as above.
unsafe impl Sync for MemoryBlock {}

const _: () = assert!(size_of::<Option<MemoryBlock>>() == size_of::<usize>());

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::backing::System;
    use crate::engine::Direct;
    use crate::{AllocatorRef, Request};

    fn block(allocator: &AllocatorRef<Direct<System>>) -> MemoryBlock {
        allocator.allocate(&Request::new(64)).expect("memory").share()
    }

    #[test]
    fn the_last_owner_returns_it() {
        let allocator = Direct::new(System::new());
        let first = block(&allocator);
        let others: Vec<_> = (0..10).map(|_| first.clone()).collect();
        assert_eq!((first.owners(), first.is_unique()), (11, false));
        drop(first);
        assert_eq!(allocator.stats().live(), others[0].granted as u64);
        drop(others);
        assert_eq!(allocator.stats().live(), 0);
    }

    #[test]
    fn a_block_again_only_when_alone() {
        let allocator = Direct::new(System::new());
        let first = block(&allocator);
        let second = first.clone();
        let first = first.try_into_block().unwrap_err();
        drop(second);
        drop(first.try_into_block().unwrap());
        assert_eq!(allocator.stats().live(), 0);
    }

    #[test]
    fn a_handle_from_a_block_while_there_is_one() {
        let allocator = Direct::new(System::new());
        let first = block(&allocator);
        let handle = first.allocator().unwrap();
        assert!(handle.same_as(&allocator) && first.is_from(&handle) && !allocator.is_unique());
        drop(allocator);
        let second = first.allocator().unwrap().allocate(&Request::new(64)).unwrap().share();
        assert!(second.is_from(&handle) && handle.is_unique());
        drop(handle);
        assert!(first.allocator().is_none() && second.allocator().is_none());
        assert_eq!(second.allocator_name(), Some("system"));
    }

    #[test]
    fn memory_from_outside_has_no_allocator() {
        let record = Record::new(NonNull::dangling(), 0, orlop_core::Device::CPU, crate::Access::Host);
        // SAFETY: no bytes.
        let outside = unsafe { Block::borrowed(record) }.share();
        assert!(outside.allocator().is_none() && outside.allocator_name().is_none() && !outside.is_simple());
        let empty = Direct::new(System::new()).allocate(&Request::new(0)).unwrap();
        assert!(empty.allocator().is_none());
    }

    #[test]
    fn owners_on_many_threads() {
        let allocator = Direct::new(System::new());
        let first = block(&allocator);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mine = first.clone();
                scope.spawn(move || (0..if cfg!(miri) { 10 } else { 1000 }).for_each(|_| drop(mine.clone())));
            }
        });
        assert!(first.is_unique());
    }
}
