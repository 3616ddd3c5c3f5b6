//! Storage: a range of bytes that any number of tensors look at.
//!
//! A [`Storage`] is a handle. Handles to the same storage alias, wherever they are, and each knows a range of it: the
//! whole, or a part that was cut out with [`Storage::slice`] (T2), which keeps the whole alive. What they share (the block
//! of memory, who reads or writes it now, how often it was written) is in the cell.

mod access;
mod cell;
mod cow;
mod guard;
mod hooks;
mod memory;
#[cfg(all(test, loom))]
mod models;
mod notes;
mod release;
mod resize;

pub use self::access::{StorageBytes, StorageBytesMut};
pub(crate) use self::cell::{Cell, NewCell};
pub(crate) use self::guard::{ReadGuard, WriteGuard};
pub use self::hooks::{StorageHook, clear_storage_hook, set_storage_hook};
pub(crate) use self::memory::Memory;
use self::memory::Origin;

use crate::TensorOptions;
use crate::borrows::Flags;
use crate::error::{Error, Result, Unresizable};
use crate::shared::Shared;
use orlop_alloc::{Access, Block, Context, Deleter, MemoryBlock, Record};
use orlop_core::{Device, MemoryKind, Quantity, StreamId};
use std::ops::Range;
use std::ptr::NonNull;

/// A counted handle to a range of a storage.
///
/// ```
/// use orlop_tensor::{Storage, TensorOptions};
///
/// let storage = Storage::new(1000, &TensorOptions::new())?;
/// assert_eq!((storage.nbytes(), storage.capacity()?), (1000, 1024));
/// let part = storage.slice(100..200)?;
/// part.write()?.fill(7);
/// assert_eq!(storage.read()?[99..101], [storage.read()?[99], 7]);
/// # Ok::<(), orlop_tensor::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Storage {
    cell: Shared<Cell>,
    start: usize,
    /// [`WHOLE`], or how many bytes of it.
    len: usize,
}

/// As many bytes as the cell has.
const WHOLE: usize = usize::MAX;

impl Storage {
    /// A storage of so many bytes, as the options say: device, kind, alignment, context. The bytes are whatever they are,
    /// or zero with [`TensorOptions::zeroed`].
    ///
    /// # Errors
    ///
    /// [`Error::Alloc`] if the memory is not to be had or the kind cannot be on the device.
    pub fn new(bytes: usize, options: &TensorOptions<'_>) -> Result<Self> {
        let mut memory = options.memory;
        Self::in_memory(bytes, &mut memory)
    }

    pub(crate) fn in_memory(bytes: usize, memory: &mut Memory<'_>) -> Result<Self> {
        Ok(Self::whole(Self::cell_in_memory(bytes, memory)?.into_cell()))
    }

    /// What all handles to a new storage share: one word, to be made a handle of where that will be.
    #[inline(always)]
    pub(crate) fn cell_in_memory(bytes: usize, memory: &mut Memory<'_>) -> Result<NewCell> {
        match memory.at_hand(bytes) {
            Some(block) => Ok(NewCell::new(block, bytes)),
            None => Self::cell_slowly(bytes, memory),
        }
    }

    #[cold]
    #[inline(never)]
    fn cell_slowly(bytes: usize, memory: &Memory<'_>) -> Result<NewCell> {
        let block = memory.allocate_slowly(bytes)?;
        // An empty block does not know where it is from, and the storage may grow.
        let origin = (bytes == 0).then(|| Origin::of(memory, block.device));
        let cell = NewCell::new(block, bytes);
        cell.set_origin(origin.filter(Origin::is_chosen));
        Ok(cell)
    }

    #[inline(always)]
    pub(crate) fn whole(cell: Shared<Cell>) -> Self {
        Self { cell, start: 0, len: WHOLE }
    }

    #[inline]
    fn of_cell(cell: Cell) -> Self {
        Self::whole(Shared::new(cell))
    }

    /// A storage of all bytes of a block. It can be resized if the block has an allocator; memory from outside is counted in
    /// the current context ([`Context::adopt`]).
    #[must_use]
    pub fn from_block(block: Block) -> Self {
        let block = if block.has_allocator() { block } else { Context::with_current(|now| now.adopt(block)) };
        Self::of_block(block)
    }

    fn of_block(block: Block) -> Self {
        let bytes = block.len();
        let block = block.share();
        let fixed = (!block.has_allocator()).then_some(Unresizable::Foreign);
        Self::of_cell(Cell::new(block, bytes, Flags::NONE, fixed))
    }

    /// Memory from outside that is kept alive by `owner` (M3), which is dropped once, when the last user is gone.
    ///
    /// # Safety
    ///
    /// 1. `ptr .. ptr + bytes` stays valid for reads and writes until `owner` is dropped, and initialised;
    /// 2. nobody else writes there meanwhile, nor reads while this storage is written.
    #[must_use]
    pub unsafe fn foreign<O: Send + 'static>(
        ptr: NonNull<u8>,
        bytes: usize,
        kind: MemoryKind,
        owner: O,
    ) -> Self {
        // SAFETY: the caller's promise.
        Self::from_block(unsafe { Block::foreign(host_record(ptr, bytes, kind), Deleter::from_owner(owner)) })
    }

    /// [`Storage::foreign`] for memory that is a mapped file.
    ///
    /// # Safety
    ///
    /// Those of [`Storage::foreign`].
    #[cfg(feature = "safetensors")]
    pub(crate) unsafe fn mapped<O: Send + 'static>(
        ptr: NonNull<u8>,
        bytes: usize,
        kind: MemoryKind,
        owner: O,
    ) -> Self {
        // SAFETY: the caller's promise.
        let block = unsafe { Block::foreign(host_record(ptr, bytes, kind), Deleter::from_owner(owner)) };
        Self::of_block(Context::with_current(|now| now.adopt_mapped(block)))
    }

    /// Memory from outside with whatever is to be called when the last user is gone, on any device (P2).
    ///
    /// # Safety
    ///
    /// Those of [`Block::foreign`].
    #[must_use]
    pub unsafe fn from_record(record: Record, deleter: Deleter) -> Self {
        // SAFETY: the caller's promise.
        Self::from_block(unsafe { Block::foreign(record, deleter) })
    }

    /// Memory from outside that nobody frees (L5).
    ///
    /// # Safety
    ///
    /// As for [`Storage::foreign`], until the storage and all that look at it are gone.
    #[must_use]
    pub unsafe fn borrowed(ptr: NonNull<u8>, bytes: usize, kind: MemoryKind) -> Self {
        // SAFETY: the caller's promise.
        Self::from_block(unsafe { Block::borrowed(host_record(ptr, bytes, kind)) })
    }

    /// A part of this storage: the same bytes, and it keeps the whole alive.
    ///
    /// # Errors
    ///
    /// [`OutOfStorage`](orlop_core::Error::OutOfStorage) if the range does not lie inside.
    pub fn slice(&self, range: Range<usize>) -> Result<Self> {
        let outside =
            || orlop_core::Error::OutOfStorage { end_bytes: range.end, storage_bytes: self.nbytes() };
        if range.start > range.end || range.end > self.nbytes() {
            return Err(outside().into());
        }
        let start = self
            .start
            .checked_add(range.start)
            .ok_or(orlop_core::Error::Overflow { quantity: Quantity::ByteSum })?;
        Ok(Self { cell: self.cell.clone(), start, len: range.end - range.start })
    }

    /// Bytes in use. A part has as many as it was cut with, or as are left if the whole has shrunk.
    #[inline]
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.bytes_of(self.cell.bytes())
    }

    #[inline]
    pub(crate) fn bytes_of(&self, whole: usize) -> usize {
        whole.saturating_sub(self.start).min(self.len)
    }

    /// Where the range begins in the whole, in bytes.
    #[inline]
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Bytes that can be in use without getting other memory (M1).
    ///
    /// # Errors
    ///
    /// [`Error::Borrowed`] while somebody writes.
    pub fn capacity(&self) -> Result<usize> {
        Ok(self.bytes_of(self.owned()?.block().requested))
    }

    /// The block, to look at (L4).
    ///
    /// # Errors
    ///
    /// [`Error::Borrowed`] while somebody writes.
    pub fn block(&self) -> Result<MemoryBlock> {
        Ok(self.owned()?.block().clone())
    }

    /// Bytes that would go back if this handle were dropped now, as granted: none while other handles look at the storage
    /// (views among them), or lazy copies at its memory. On a storage that other threads use, a figure of some moment.
    ///
    /// # Errors
    ///
    /// [`Error::Borrowed`] while somebody writes.
    pub fn would_free(&self) -> Result<usize> {
        if !self.is_unique() {
            return Ok(0);
        }
        let guard = self.owned()?;
        let block = guard.block();
        Ok(if block.is_unique() { block.granted } else { 0 })
    }

    /// Notes that `stream` uses the memory: it will not be used again before that stream is done (L14).
    ///
    /// # Errors
    ///
    /// [`Error::Borrowed`] while somebody writes.
    pub fn record_stream(&self, stream: StreamId) -> Result<()> {
        self.owned()?.block().record_stream(stream);
        Ok(())
    }

    /// A reader, or, where reading is refused by a flag, a guard all the same: for the block, not for its bytes.
    fn owned(&self) -> Result<WriteOrRead<'_>> {
        match self.cell.read() {
            Ok(guard) => Ok(WriteOrRead::Read(guard)),
            Err(Error::Borrowed { by }) => Err(Error::Borrowed { by }),
            Err(_) => Ok(WriteOrRead::Write(self.cell.change()?)),
        }
    }

    /// Where it is.
    #[inline]
    #[must_use]
    pub fn device(&self) -> Device {
        self.cell.device
    }

    /// What it is for.
    #[must_use]
    pub fn memory_kind(&self) -> MemoryKind {
        self.cell.kind()
    }

    /// How often it was written (P14).
    #[must_use]
    pub fn version(&self) -> u64 {
        self.cell.version()
    }

    /// How many handles look at it, at some moment.
    #[must_use]
    pub fn use_count(&self) -> usize {
        self.cell.count()
    }

    /// Whether this is the only handle.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.cell.is_unique()
    }

    /// Whether both look at the same storage, at whichever parts of it: whether writes to one may show in the other. Lazy
    /// clones do not.
    #[inline]
    #[must_use]
    pub fn is_alias_of(&self, other: &Self) -> bool {
        self.cell.same_as(&other.cell)
    }

    /// Counts a handle that is a copy of this one's bytes.
    #[inline]
    pub(crate) fn count_copy(&self) {
        self.cell.count_copy();
    }

    /// What all storages of these bytes share: its address says which they are.
    #[inline]
    pub(crate) fn cell(&self) -> &Cell {
        &self.cell
    }

    #[inline]
    pub(crate) fn shared_cell(&self) -> &Shared<Cell> {
        &self.cell
    }
}

/// The record of memory from outside that the processor can reach.
fn host_record(ptr: NonNull<u8>, bytes: usize, kind: MemoryKind) -> Record {
    let mut record = Record::new(ptr, bytes, Device::CPU, Access::Host);
    record.requested = bytes;
    record.kind = kind;
    record
}

/// Either guard, for looking at the block.
enum WriteOrRead<'a> {
    Read(ReadGuard<'a>),
    Write(WriteGuard<'a>),
}

impl WriteOrRead<'_> {
    fn block(&self) -> &MemoryBlock {
        match self {
            Self::Read(guard) => guard.block(),
            Self::Write(guard) => guard.block(),
        }
    }
}
