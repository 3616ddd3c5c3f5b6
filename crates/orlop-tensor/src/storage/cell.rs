//! What all handles to a storage share.
//!
//! # Who may touch what
//!
//! 1. The block's bytes and the block itself: readers of `borrows` read, its writer does what it wants.
//! 2. The block's other owners, if the storage is a lazy copy, are other cells. Nobody writes bytes that have several
//!    owners: a writer makes sure to be alone, or copies first (`cow`).
//! 3. All else is atomic or never changes.
//!
//! # User code
//!
//! Getting a block and dropping one run user code: observers, pressure callbacks, storage hooks, deleters, owners of foreign
//! memory. So does dropping the last handle of an allocator. Each may panic, or use this very storage. Hence a change has
//! three steps: get what is new; put it in the place of what was, with nothing in between that can fail
//! ([`WriteGuard::install`]); then let the guard go, and after that what was ([`Former`](super::guard::Former)).

use super::guard::{ReadGuard, WriteGuard};
use super::memory::Origin;
use super::notes::{Kept, Notes};
use crate::borrows::{Borrows, Flags};
use crate::error::{Error, Result, Unresizable};
use crate::recycle;
use crate::shared::{Counted, Room, Shared};
use crate::sync::UnsafeCell;
use crate::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use crate::tensor::TensorImpl;
use orlop_alloc::MemoryBlock;
use orlop_core::{Device, MemoryKind};
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

/// See the head of this file.
pub(crate) struct Cell {
    pub(crate) borrows: Borrows,
    pub(super) device: Device,
    /// The kind, by its index.
    kind: AtomicU8,
    /// Whether its size cannot change: see [`Cell::fixed`].
    fixed: AtomicU8,
    /// Bytes in use.
    bytes: AtomicUsize,
    /// How often it was written.
    version: AtomicU64,
    /// Rule 1.
    block: UnsafeCell<MemoryBlock>,
    notes: OnceLock<Kept>,
}

// With room for the first tensor over the storage, because mostly there is one and it goes with the storage: see `NewCell`.
// Cells themselves are in places of their own: nobody makes one by `Room::inside`.
crate::recycle::recycled!(Cell, beside Counted<TensorImpl>);

/// The only handle to a new cell, in whose room there is no tensor yet.
pub(crate) struct NewCell(Shared<Cell>);

impl NewCell {
    #[inline(always)]
    pub(super) fn new(block: MemoryBlock, bytes: usize) -> Self {
        // First the room, so that the cell is written where it will be.
        Self(Room::new().fill(Cell::new(block, bytes, Flags::NONE, None)))
    }

    /// The handle; who has it may use the room, once.
    #[inline(always)]
    pub(crate) fn into_cell(self) -> Shared<Cell> {
        self.0
    }

    /// Notes where more memory is to come from. There was nothing noted before.
    pub(super) fn set_origin(&self, origin: Origin) {
        drop(self.0.replace_origin(Some(Arc::new(origin))));
    }
}

// SAFETY: the block is read and changed by the rules at the head of this file, which `borrows` upholds as a lock does;
// `MemoryBlock` may be sent and shared.
unsafe impl Sync for Cell {}

impl Cell {
    /// Of `bytes` in this block.
    #[inline(always)]
    pub(super) fn new(block: MemoryBlock, bytes: usize, flags: Flags, fixed: Option<Unresizable>) -> Self {
        Self {
            borrows: Borrows::new(flags),
            device: block.device,
            kind: AtomicU8::new(index_of(block.kind)),
            fixed: AtomicU8::new(number_of(fixed)),
            bytes: AtomicUsize::new(bytes),
            version: AtomicU64::new(0),
            block: UnsafeCell::new(block),
            notes: OnceLock::new(),
        }
    }

    /// Where there is room for the first tensor.
    #[inline(always)]
    pub(crate) fn room_of_first(this: &Shared<Self>) -> NonNull<Counted<TensorImpl>> {
        // SAFETY: cells are in places of their own (above), and this one has a handle.
        unsafe { recycle::beside(this.as_ptr()) }
    }

    /// Bytes in use, at some moment.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Under a writer's guard.
    pub(super) fn set_bytes(&self, bytes: usize) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn kind(&self) -> MemoryKind {
        let index = usize::from(self.kind.load(Ordering::Relaxed));
        MemoryKind::ALL.get(index).copied().unwrap_or_default()
    }

    pub(super) fn set_kind(&self, kind: MemoryKind) {
        self.kind.store(index_of(kind), Ordering::Relaxed);
    }

    /// Why its size cannot change, if so. True of the memory, and goes with it.
    pub(super) fn fixed(&self) -> Option<Unresizable> {
        match self.fixed.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(Unresizable::Foreign),
            2 => Some(Unresizable::Part),
            _ => Some(Unresizable::Fixed),
        }
    }

    pub(super) fn set_fixed(&self, fixed: Option<Unresizable>) {
        self.fixed.store(number_of(fixed), Ordering::Relaxed);
    }

    /// Where its memory is to come from, if that was noted. Under a guard; what follows under a writer's.
    pub(super) fn origin(&self) -> Option<Arc<Origin>> {
        self.notes.get()?.origin()
    }

    /// Notes where its memory is to come from, and returns what was noted before: the last handle of an allocator may go
    /// with that, so it is the caller's to drop when nothing is half changed.
    #[must_use]
    pub(super) fn replace_origin(&self, origin: Option<Arc<Origin>>) -> Option<Arc<Origin>> {
        if origin.is_none() && self.notes.get().is_none() {
            return None;
        }
        self.notes().replace_origin(origin)
    }

    /// How often it was written, at some moment.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    /// One more, under a writer's guard: nobody else adds meanwhile.
    #[inline]
    pub(super) fn bump(&self) {
        self.version.store(self.version().wrapping_add(1), Ordering::Relaxed);
    }

    /// Comes in to read.
    #[inline]
    pub(crate) fn read(&self) -> Result<ReadGuard<'_>> {
        match self.borrows.read() {
            Ok(()) => Ok(ReadGuard::new(self)),
            Err(error) => Err(self.explain(error)),
        }
    }

    /// Comes in to write, with the bytes to itself: a copy that was put off is made now.
    #[inline]
    pub(crate) fn write(&self) -> Result<WriteGuard<'_>> {
        self.write_by(super::cow::copy_of)
    }

    /// [`Cell::write`], with another way to copy.
    #[inline]
    pub(crate) fn write_by(
        &self,
        copy: impl FnOnce(&MemoryBlock, usize) -> Result<MemoryBlock>,
    ) -> Result<WriteGuard<'_>> {
        match self.borrows.write() {
            Ok(flags) => {
                let mut guard = WriteGuard::new(self);
                if flags != Flags::NONE {
                    self.before_write(&mut guard, flags, copy)?;
                }
                self.bump();
                Ok(guard)
            }
            Err(error) => Err(self.explain(error)),
        }
    }

    #[cold]
    fn before_write(
        &self,
        guard: &mut WriteGuard<'_>,
        flags: Flags,
        copy: impl FnOnce(&MemoryBlock, usize) -> Result<MemoryBlock>,
    ) -> Result<()> {
        if flags.has(Flags::WARNS) {
            self.warn();
        }
        if flags.has(Flags::COPY_ON_WRITE) {
            guard.be_alone(copy)?;
        }
        Ok(())
    }

    /// Comes in to change the storage itself, whatever its flags say of its bytes.
    pub(super) fn change(&self) -> Result<WriteGuard<'_>> {
        self.borrows.write_anyway()?;
        Ok(WriteGuard::new(self))
    }

    #[inline]
    pub(super) fn block(&self) -> &UnsafeCell<MemoryBlock> {
        &self.block
    }

    /// What its owner has to say.
    pub(super) fn notes(&self) -> &Notes {
        self.notes.get_or_init(Kept::default)
    }

    #[cold]
    fn warn(&self) {
        self.borrows.clear(Flags::WARNS);
        let note = self.notes().get();
        tracing::warn!(device = %self.device, bytes = self.bytes(), note = note.as_deref(), "write to a guarded storage");
    }

    #[cold]
    fn explain(&self, error: Error) -> Error {
        match error {
            Error::ReadOnly { reason: None } => Error::ReadOnly { reason: self.notes().get() },
            Error::AccessRefused { reason: None } => Error::AccessRefused { reason: self.notes().get() },
            error => error,
        }
    }
}

fn index_of(kind: MemoryKind) -> u8 {
    // There are six.
    u8::try_from(kind.index()).unwrap_or(0)
}

/// Zero for what can change.
#[inline(always)]
fn number_of(fixed: Option<Unresizable>) -> u8 {
    match fixed {
        None => 0,
        Some(Unresizable::Foreign) => 1,
        Some(Unresizable::Part) => 2,
        Some(Unresizable::Fixed) => 3,
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cell")
            .field("bytes", &self.bytes())
            .field("device", &self.device)
            .field("kind", &self.kind())
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}
