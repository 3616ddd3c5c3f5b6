//! Storages in planned memory: cells over parts of one block, which overlap in space but not in time.

use super::release::nothing_like;
use super::{Storage, StorageCell};
use crate::borrows::Flags;
use crate::error::{Error, Result, Revocation, Unresizable};
use orlop_alloc::{MemoryBlock, engine_support::DeviceOps};
use orlop_context::{Context, ContextId};
use orlop_core::StreamId;
use std::sync::Arc;

/// Flags of storages whose bytes may be accessed without a handle.
const REACHABLE: Flags = Flags::ESCAPED.and(Flags::IMMUTABLE).and(Flags::FOREIGN_PROCESS);

/// Flags of storages whose bytes others access: devices and other processes.
const ELSEWHERE: Flags = Flags::DEVICE_READS.and(Flags::FOREIGN_PROCESS);

impl Storage {
    /// Creates a storage of the bytes `offset .. offset + bytes` of a block.
    ///
    /// # Safety
    ///
    /// 1. The bytes are inside the block.
    /// 2. Nothing else accesses them while a handle to the storage can be used: until [`Storage::revoke`] has
    ///    succeeded, or no handle is left.
    pub(crate) unsafe fn planned(root: &MemoryBlock, offset: usize, bytes: usize) -> Self {
        // SAFETY: guaranteed by the caller.
        let part = unsafe { root.part(offset, bytes) };
        Self::of_cell(StorageCell::planned(part.share(), Context::with_current(Context::id)))
    }

    /// Returns `true` if there are `handles` handles, which are the caller's, and nothing was done to the
    /// storage that outlasts an access: no address was handed out, no stream may still read, the block has
    /// one owner.
    ///
    /// # Safety
    ///
    /// Nothing uses the caller's handles.
    #[inline]
    pub(crate) unsafe fn is_settled(&self, handles: usize) -> bool {
        let cell = self.shared_cell();
        if !cell.has_handles(handles) || cell.borrows.flags() != Flags::NONE {
            return false;
        }
        // SAFETY: no other handle exists and the caller's are not in use, so nothing changes the block.
        cell.block().with(|block| unsafe { &*block }.is_unique())
    }

    /// Returns `true` if there are `handles` handles, which are the caller's, and nothing but an address that
    /// was handed out remains of what was done with the bytes.
    ///
    /// # Safety
    ///
    /// As for [`Storage::is_settled`].
    pub(crate) unsafe fn is_unheld(&self, handles: usize) -> bool {
        let cell = self.shared_cell();
        if !cell.has_handles(handles) || cell.borrows.flags().has(ELSEWHERE) {
            return false;
        }
        // SAFETY: as for `is_settled`.
        cell.block().with(|block| unsafe { &*block }.is_unique())
    }

    /// Makes the stream of the memory wait for the others that used it: what comes next in these bytes, and
    /// waits for that stream, comes after them.
    ///
    /// # Errors
    ///
    /// Those of `ops`, and of [`DeviceOps::wait_for`]. The next call waits for all of them again.
    ///
    /// # Safety
    ///
    /// All handles are the caller's, and nothing uses them.
    pub(crate) unsafe fn join_streams(&self, ops: impl FnOnce() -> Result<Arc<dyn DeviceOps>>) -> Result<()> {
        self.shared_cell().block().with_mut(|block| {
            // SAFETY: guaranteed by the caller.
            let block = unsafe { &mut *block };
            if !block.has_stream_uses() {
                return Ok(());
            }
            let ops = ops()?;
            let own = match block.stream {
                StreamId::HOST => StreamId::default_of(block.device),
                own => own,
            };
            block.stream_uses().try_for_each(|stream| ops.wait_for(own, stream))?;
            // SAFETY: the block's stream waits for them.
            unsafe { block.forget_stream_uses() };
            Ok(())
        })
    }

    /// Ends the storage: takes its memory, and returns a new storage over it. Accesses through handles that
    /// still exist fail from now on, with what `revocation` returns.
    ///
    /// # Errors
    ///
    /// [`Error::Borrowed`] while another handle is used; [`Error::MemoryInUse`] if the memory can be accessed
    /// without a handle: an address was handed out, or the block is shared. A driver's error if a stream may
    /// still read and cannot be waited for. The storage is then unchanged.
    ///
    /// # Safety
    ///
    /// `handles` of the handles are the caller's, and nothing uses them.
    pub(crate) unsafe fn revoke(
        &self,
        handles: usize,
        revocation: impl FnOnce() -> Revocation,
    ) -> Result<Self> {
        let cell = self.shared_cell();
        if cell.borrows.flags().has(Flags::DEVICE_READS) {
            cell.wait_for_readers()?;
        }
        if cell.has_handles(handles) {
            // Only flags were set, or a guard was leaked, which is of no use: guards borrow handles.
            let is_unique = |block: *const MemoryBlock| {
                // SAFETY: no other handle exists and the caller's are not in use.
                unsafe { &*block }.is_unique()
            };
            if !cell.block().with(is_unique) {
                return Err(Error::MemoryInUse);
            }
            // SAFETY: as above.
            let block = unsafe { cell.take_planned() };
            return Ok(Self::of_cell(StorageCell::planned(block, cell.context())));
        }
        let mut guard = cell.change()?;
        if cell.borrows.flags().has(REACHABLE) || !guard.block().is_unique() {
            return Err(Error::MemoryInUse);
        }
        let nothing = nothing_like(guard.block());
        let block = guard.replace(nothing);
        cell.set_bytes(0);
        // The handles may be bound to memory of their own.
        cell.set_fixed(None);
        drop(cell.replace_revoked(Some(Arc::new(revocation()))));
        cell.borrows.set(Flags::UNBOUND);
        drop(guard);
        Ok(Self::of_cell(StorageCell::planned(block, cell.context())))
    }
}

impl Storage {
    /// Moves the memory to an unbound storage.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyBound`], [`Error::DeviceMismatch`], [`Error::Borrowed`];
    /// [`Error::NotResizable`] for a part of a storage. Both are unchanged then.
    ///
    /// # Safety
    ///
    /// All handles are the caller's, and nothing uses them.
    pub(crate) unsafe fn move_planned(&self, to: &Self) -> Result<()> {
        to.check_whole()?;
        self.check_device(to.device())?;
        let target = to.shared_cell();
        let mut guard = target.change()?;
        if !to.is_unbound() {
            return Err(Error::AlreadyBound);
        }
        // SAFETY: guaranteed by the caller; the storage is not unbound, so it is another one.
        let block = unsafe { self.shared_cell().take_planned() };
        let (bytes, kind) = (block.requested, block.kind);
        let nothing = guard.replace(block);
        target.set_bytes(bytes);
        target.set_kind(kind);
        target.set_fixed(Some(Unresizable::Planned));
        target.borrows.clear(Flags::UNBOUND);
        target.bump();
        drop(guard);
        drop(nothing);
        Ok(())
    }
}

impl StorageCell {
    /// Takes the block, and leaves none.
    ///
    /// # Safety
    ///
    /// All handles are the caller's, and nothing uses them.
    unsafe fn take_planned(&self) -> MemoryBlock {
        let block = self.block().with_mut(|place| {
            // SAFETY: guaranteed by the caller.
            let place = unsafe { &mut *place };
            let nothing = nothing_like(place);
            std::mem::replace(place, nothing)
        });
        self.set_bytes(0);
        block
    }

    fn planned(block: MemoryBlock, context: ContextId) -> Self {
        let bytes = block.requested;
        Self::new(block, bytes, Flags::NONE, Some(Unresizable::Planned), context)
    }

    /// Fails for planned memory, which stays with its storage until its time is over. The caller holds a
    /// write guard.
    pub(super) fn check_not_planned(&self) -> Result<()> {
        match self.fixed() {
            Some(why @ Unresizable::Planned) => Err(Error::NotResizable { why }),
            _ => Ok(()),
        }
    }
}
