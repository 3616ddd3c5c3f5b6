//! The shared state of all handles to a storage.
//!
//! # Access rules
//!
//! 1. The bytes: readers of `borrows` may read them, writers may change them: the whole, or the part that
//!    they are registered for.
//! 2. The block: every reader or writer and every inspection may look at it; only the writer of the whole may
//!    replace it.
//! 3. The block's other owners, if the storage is a lazy copy, are other cells. Bytes with several owners are
//!    never written: a writer of the whole ensures that its cell is the only owner, or copies first (`cow`);
//!    a writer of a part is one of the whole before, unless no flag says that there may be other owners.
//! 4. Everything else is atomic or constant.
//!
//! # User code
//!
//! Allocating and dropping a block runs user code: observers, pressure callbacks, storage hooks, deleters,
//! owners of foreign memory. So does dropping the last handle of an allocator. User code may panic, or use
//! this storage. Hence a change has three steps: allocate the new block; replace the old one, where nothing
//! can fail (`ChangeGuard::install`); drop the guard, and after it the old block
//! ([`ReplacedMemory`](super::guard::ReplacedMemory)).

use super::memory::Origin;
use super::notes::{BoxedNotes, Notes, Submission};
use super::tensor_impl::TensorImpl;
use crate::borrows::{Borrows, Flags};
use crate::error::{Error, Result, Revocation, Unresizable};
use crate::recycle;
use crate::shared::{Counted, Room, Shared};
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use orlop_alloc::{MemoryBlock, engine_support::DeviceOps};
use orlop_context::ContextId;
use orlop_core::{Device, MemoryKind, StreamId};
use std::fmt;
use std::ptr::NonNull;
// Not loom's: nothing depends on its order.
use std::sync::atomic::AtomicU64 as PlainAtomicU64;
use std::sync::{Arc, OnceLock};

/// The shared state; see the module documentation.
pub(crate) struct StorageCell {
    pub(crate) borrows: Borrows,
    pub(super) device: Device,
    /// The memory kind, by its index.
    kind: AtomicU8,
    /// Encodes why the size cannot change: see [`StorageCell::fixed`].
    fixed: AtomicU8,
    /// Bytes in use.
    bytes: AtomicUsize,
    /// The position of the last byte in use, by which accesses find out that they are whole. `usize::MAX`, so
    /// that none does, if there is no byte or the storage is immutable. A hint: see `StorageCell::last`.
    last: AtomicUsize,
    /// The number of writes.
    version: AtomicU64,
    /// The number of the context that allocated the memory, and gets more. It moves with the memory.
    context: PlainAtomicU64,
    /// See access rule 1.
    block: UnsafeCell<MemoryBlock>,
    notes: OnceLock<BoxedNotes>,
}

// A cell has room for the first tensor over the storage, because usually there is one and it is dropped with
// the storage: see `NewCell`. Cells themselves are always in slots of their own, never in a `Room::inside`.
crate::recycle::recycled!(StorageCell, companion Counted<TensorImpl>);

/// The only handle to a new cell, whose room for the first tensor is unused.
pub(crate) struct NewCell(Shared<StorageCell>);

impl NewCell {
    #[inline(always)]
    pub(super) fn new(block: MemoryBlock, bytes: usize, context: ContextId) -> Self {
        // The room first, so that the cell is built in its final place.
        Self(Room::new().fill(StorageCell::new(block, bytes, Flags::NONE, None, context)))
    }

    /// Returns the handle. The caller may use the room once.
    #[inline(always)]
    pub(crate) fn into_cell(self) -> Shared<StorageCell> {
        self.0
    }

    /// Sets the origin of later memory. None was set before.
    pub(super) fn set_origin(&self, origin: Origin) {
        drop(self.0.replace_origin(Some(Arc::new(origin))));
    }
}

// SAFETY: the block is read and changed by the access rules of the module, which `borrows` enforces like a
// lock; `MemoryBlock` is `Send` and `Sync`.
unsafe impl Sync for StorageCell {}

impl StorageCell {
    /// Creates the state for `bytes` bytes in use of this block.
    #[inline(always)]
    pub(super) fn new(
        block: MemoryBlock,
        bytes: usize,
        flags: Flags,
        fixed: Option<Unresizable>,
        context: ContextId,
    ) -> Self {
        Self {
            borrows: Borrows::new(flags),
            device: block.device,
            kind: AtomicU8::new(index_of(block.kind)),
            fixed: AtomicU8::new(number_of(fixed)),
            bytes: AtomicUsize::new(bytes),
            last: AtomicUsize::new(bytes.wrapping_sub(1)),
            version: AtomicU64::new(0),
            context: PlainAtomicU64::new(context.number()),
            block: UnsafeCell::new(block),
            notes: OnceLock::new(),
        }
    }

    /// Returns the address of the room for the first tensor.
    #[inline(always)]
    pub(crate) fn room_of_first(this: &Shared<Self>) -> NonNull<Counted<TensorImpl>> {
        // SAFETY: cells are in slots of their own (above), and this one has a handle.
        unsafe { recycle::companion(this.as_ptr()) }
    }

    /// Returns the bytes in use, which other threads may change.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Sets the bytes in use. The caller holds a write guard.
    pub(super) fn set_bytes(&self, bytes: usize) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.last.store(bytes.wrapping_sub(1), Ordering::Relaxed);
    }

    pub(super) fn kind(&self) -> MemoryKind {
        let index = usize::from(self.kind.load(Ordering::Relaxed));
        MemoryKind::ALL.get(index).copied().unwrap_or_default()
    }

    pub(super) fn set_kind(&self, kind: MemoryKind) {
        self.kind.store(index_of(kind), Ordering::Relaxed);
    }

    /// Returns the reason why the size cannot change, if it cannot. The reason belongs to the memory and
    /// moves with it.
    pub(super) fn fixed(&self) -> Option<Unresizable> {
        match self.fixed.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(Unresizable::Foreign),
            2 => Some(Unresizable::Part),
            3 => Some(Unresizable::Fixed),
            _ => Some(Unresizable::Planned),
        }
    }

    pub(super) fn set_fixed(&self, fixed: Option<Unresizable>) {
        self.fixed.store(number_of(fixed), Ordering::Relaxed);
    }

    /// Returns the origin of later memory, if set. The caller holds a guard; for the next function a write
    /// guard.
    pub(super) fn origin(&self) -> Option<Arc<Origin>> {
        self.notes.get()?.origin()
    }

    /// Sets the origin of later memory, and returns the previous one. Dropping it may drop the last handle of
    /// an allocator, so the caller drops it after the change is complete.
    #[must_use]
    pub(super) fn replace_origin(&self, origin: Option<Arc<Origin>>) -> Option<Arc<Origin>> {
        if origin.is_none() && self.notes.get().is_none() {
            return None;
        }
        self.notes().replace_origin(origin)
    }

    /// Returns the context of the memory.
    pub(super) fn context(&self) -> ContextId {
        ContextId::from_number(self.context.load(Ordering::Relaxed))
    }

    /// Runs `f` in the context of the memory: allocations climb its ladder, within its budgets. If that
    /// context no longer exists, the current one takes its place.
    pub(crate) fn in_context<R>(&self, f: impl FnOnce() -> R) -> R {
        self.context().scope(f)
    }

    /// Sets the context of the memory. The caller holds a write guard.
    pub(super) fn set_context(&self, context: ContextId) {
        self.context.store(context.number(), Ordering::Relaxed);
    }

    /// Marks the memory as immutable, and the block for those who have a handle to it. (During a write of the
    /// whole, `Storage::block` marks those that come later.)
    pub(super) fn mark_immutable(&self) {
        self.borrows.set(Flags::IMMUTABLE);
        self.last.store(usize::MAX, Ordering::Relaxed);
        if let Ok(guard) = self.inspect() {
            self.mark_read_only(guard.block());
        }
    }

    /// Marks the block of an immutable storage. Planned memory is for others after the lifetime: it can be
    /// written.
    pub(super) fn mark_read_only(&self, block: &MemoryBlock) {
        if self.fixed() != Some(Unresizable::Planned) {
            block.mark_read_only();
        }
    }

    /// Returns the number of writes, which other threads may change.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// Counts a write. The caller holds a write guard of the whole, so there is no concurrent increment.
    #[inline]
    pub(super) fn bump(&self) {
        self.version.store(self.version().wrapping_add(1), Ordering::Relaxed);
    }

    /// Counts a write. The caller holds a write guard of a part, so there may be other writers.
    pub(super) fn bump_shared(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the position of the last byte in use, or `usize::MAX` if an access to the whole is not one for
    /// the fast path. If it changes meanwhile, a guard of the whole is for more bytes than necessary, or for
    /// fewer than expected: the bytes in use are compared again under the guard.
    #[inline]
    pub(crate) fn last(&self) -> usize {
        self.last.load(Ordering::Relaxed)
    }

    /// Returns `true` if a stream may read host memory after a call has returned: it is kept until then, and
    /// every later writer passes this cell. The caller holds a read guard.
    pub(crate) fn keeps_for_streams(&self, block: &MemoryBlock) -> bool {
        let elsewhere = Flags::COPY_ON_WRITE.and(Flags::ESCAPED).and(Flags::FOREIGN_PROCESS);
        block.honours_streams() && !self.borrows.flags().has(elsewhere)
    }

    /// Lets writers wait for a stream that reads the memory. The caller holds a read guard. If the storage
    /// does not [keep](Self::keeps_for_streams) its memory any more after this, the caller has to wait.
    #[must_use = "to be dropped when the work is submitted"]
    pub(crate) fn add_reader(&self, stream: StreamId, ops: &Arc<dyn DeviceOps>) -> Submission<'_> {
        self.notes().add_reader(stream, ops, || {
            self.borrows.set(Flags::DEVICE_READS);
        })
    }

    /// Waits for the streams that read the memory. The caller holds a guard. The flag stays if other
    /// threads are submitting to streams, or were meanwhile.
    #[cold]
    pub(super) fn wait_for_readers(&self) -> Result<()> {
        // They stay in the list until they are done: a concurrent call waits too.
        let Some((readers, added)) = self.notes().readers() else { return Ok(()) };
        for (stream, ops) in &readers {
            ops.synchronize(*stream)?;
        }
        self.notes().remove_readers(added, || {
            self.borrows.clear(Flags::DEVICE_READS);
        });
        Ok(())
    }

    /// Waits for the streams that read the memory at the end of the cell, if the block has another owner,
    /// who may get write access to it. Otherwise its allocator waits.
    #[cold]
    fn end_reads(&mut self) {
        struct UnfinishedGuard<'a>(&'a MemoryBlock);
        impl Drop for UnfinishedGuard<'_> {
            fn drop(&mut self) {
                self.0.record_unfinished();
            }
        }
        // SAFETY: the cell is borrowed exclusively, and the block is not replaced here.
        let block = self.block.with(|block| unsafe { &*block });
        if block.owners() == 1 {
            return;
        }
        let unfinished = UnfinishedGuard(block);
        if self.wait_for_readers().is_ok() {
            std::mem::forget(unfinished);
        }
    }

    #[inline]
    pub(super) fn block(&self) -> &UnsafeCell<MemoryBlock> {
        &self.block
    }

    /// Returns the messages and the origin.
    pub(super) fn notes(&self) -> &Notes {
        self.notes.get_or_init(BoxedNotes::default)
    }

    /// Returns the error for accesses to a storage without memory.
    #[cold]
    pub(super) fn unbound(&self) -> Error {
        Error::Unbound { revoked: self.notes.get().and_then(|notes| notes.revoked()) }
    }

    /// Sets why the storage has lost its memory. The caller holds a write guard.
    pub(super) fn replace_revoked(&self, revoked: Option<Arc<Revocation>>) -> Option<Arc<Revocation>> {
        if revoked.is_none() && self.notes.get().is_none() {
            return None;
        }
        self.notes().replace_revoked(revoked)
    }

    #[cold]
    pub(super) fn explain(&self, error: Error) -> Error {
        match error {
            Error::ReadOnly { reason: None } => Error::ReadOnly { reason: self.notes().get() },
            Error::AccessRefused { reason: None } => Error::AccessRefused { reason: self.notes().get() },
            Error::Unbound { revoked: None } => self.unbound(),
            error => error,
        }
    }
}

impl Drop for StorageCell {
    #[inline]
    fn drop(&mut self) {
        if self.borrows.flags().has(Flags::DEVICE_READS) {
            self.end_reads();
        }
    }
}

fn index_of(kind: MemoryKind) -> u8 {
    // There are six kinds.
    u8::try_from(kind.index()).unwrap_or(0)
}

/// Encodes the reason; zero if the size can change.
#[inline(always)]
fn number_of(fixed: Option<Unresizable>) -> u8 {
    match fixed {
        None => 0,
        Some(Unresizable::Foreign) => 1,
        Some(Unresizable::Part) => 2,
        Some(Unresizable::Fixed) => 3,
        Some(Unresizable::Planned) => 4,
    }
}

impl fmt::Debug for StorageCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorageCell")
            .field("bytes", &self.bytes())
            .field("device", &self.device)
            .field("kind", &self.kind())
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}
