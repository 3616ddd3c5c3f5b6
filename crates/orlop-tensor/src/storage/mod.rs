//! [`Storage`]: a range of bytes shared by any number of tensors.
//!
//! A [`Storage`] is a handle. Handles to the same storage alias, on any thread. Each covers a range of it:
//! the whole, or a part made with [`Storage::slice`], which keeps the whole alive. The shared state (the
//! block of memory, the borrow state, the number of writes) is in the cell.

mod access;
mod acquire;
mod bind;
mod cell;
mod cow;
mod guard;
mod hooks;
mod memory;
#[cfg(all(test, loom))]
mod models;
mod notes;
mod options;
#[cfg(all(test, not(loom)))]
mod panics;
mod planned;
mod pool_part;
mod release;
mod resize;
mod slices;
mod tensor_impl;
pub(crate) mod transfer;
mod write_registration;

pub use self::bind::BindError;
pub(crate) use self::cell::{NewCell, StorageCell};
pub(crate) use self::guard::{ReadGuard, Registration, WriteGuard};
pub use self::hooks::{StorageHook, clear_storage_hook, set_storage_hook};
pub(crate) use self::memory::MemoryRequest;
use self::memory::Origin;
pub use self::options::TensorOptions;
pub use self::slices::{TensorSlice, TensorSliceMut};
pub(crate) use self::tensor_impl::TensorImpl;

use crate::borrows::Flags;
use crate::error::{Error, Result, Unresizable};
use crate::shared::Shared;
use orlop_alloc::{Access, Block, Deleter, MemoryBlock, engine_support::Record};
use orlop_context::{Context, ContextId};
use orlop_core::{DType, Device, Layout, MemoryKind, Quantity, StreamId};
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
    cell: Shared<StorageCell>,
    start: usize,
    /// [`WHOLE`], or the number of bytes of a part.
    len: usize,
}

/// The marker for all bytes of the cell.
const WHOLE: usize = usize::MAX;

impl Storage {
    /// Allocates a storage of `bytes` bytes with the options' device, kind, alignment and context. The
    /// contents are arbitrary, or zero with [`TensorOptions::zeroed`].
    ///
    /// # Errors
    ///
    /// [`Error::Alloc`](crate::Error::Alloc) if the allocation fails or the kind cannot be on the device.
    pub fn new(bytes: usize, options: &TensorOptions<'_>) -> Result<Self> {
        let mut memory = options.memory;
        Self::in_memory(bytes, &mut memory)
    }

    pub(crate) fn in_memory(bytes: usize, memory: &mut MemoryRequest<'_>) -> Result<Self> {
        Ok(Self::whole(Self::cell_in_memory(bytes, memory)?.into_cell()))
    }

    /// Allocates the shared state of a new storage: one word, from which the caller builds the handle in its
    /// final place.
    #[inline(always)]
    pub(crate) fn cell_in_memory(bytes: usize, memory: &mut MemoryRequest<'_>) -> Result<NewCell> {
        match memory.allocate_cached(bytes) {
            Some((block, context)) => Ok(NewCell::new(block, bytes, context)),
            None => Self::cell_slowly(bytes, memory),
        }
    }

    #[cold]
    #[inline(never)]
    fn cell_slowly(bytes: usize, memory: &MemoryRequest<'_>) -> Result<NewCell> {
        let (block, context) = memory.allocate_slowly(bytes)?;
        // An empty block does not know its allocator, and the storage may grow.
        let origin = (bytes == 0).then(|| Origin::of(memory, block.device)).filter(Origin::is_chosen);
        let cell = NewCell::new(block, bytes, context);
        if let Some(origin) = origin {
            cell.set_origin(origin);
        }
        Ok(cell)
    }

    #[inline(always)]
    pub(crate) fn whole(cell: Shared<StorageCell>) -> Self {
        Self { cell, start: 0, len: WHOLE }
    }

    #[inline]
    fn of_cell(cell: StorageCell) -> Self {
        Self::whole(Shared::new(cell))
    }

    /// Creates a storage of all bytes of a block. It can be resized if the block has an allocator, and gets
    /// memory by the context that this allocator serves ([`ContextId::of_block`]). Foreign memory is counted
    /// in the current context ([`Context::adopt`]), which is that of the storage.
    #[must_use]
    pub fn from_block(block: Block) -> Self {
        let (block, context) = adopted(block);
        Self::of_block(block, context)
    }

    fn of_block(block: Block, context: ContextId) -> Self {
        let bytes = block.len();
        let block = block.share();
        let fixed = (!block.has_allocator()).then_some(Unresizable::Foreign);
        Self::of_cell(StorageCell::new(block, bytes, Flags::NONE, fixed, context))
    }

    /// Creates a storage over foreign memory that `owner` keeps alive. `owner` is dropped once, when the last
    /// user is gone.
    ///
    /// # Safety
    ///
    /// 1. `ptr .. ptr + bytes` stays valid for reads and writes until `owner` is dropped, and initialised;
    /// 2. nothing else writes there meanwhile, nor reads while this storage is written.
    #[must_use]
    pub unsafe fn foreign<O: Send + 'static>(
        ptr: NonNull<u8>,
        bytes: usize,
        kind: MemoryKind,
        owner: O,
    ) -> Self {
        // SAFETY: guaranteed by the caller.
        Self::from_block(unsafe { Block::foreign(host_record(ptr, bytes, kind), Deleter::from_owner(owner)) })
    }

    /// [`Storage::foreign`] for memory-mapped files.
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
        // SAFETY: guaranteed by the caller.
        let block = unsafe { Block::foreign(host_record(ptr, bytes, kind), Deleter::from_owner(owner)) };
        let (block, context) = Context::with_current(|now| (now.adopt_mapped(block), now.id()));
        Self::of_block(block, context)
    }

    /// Creates a storage over foreign memory on any device. `deleter` is called when the last user is gone.
    ///
    /// # Safety
    ///
    /// Those of [`Block::foreign`].
    #[must_use]
    pub unsafe fn from_record(record: Record, deleter: Deleter) -> Self {
        // SAFETY: guaranteed by the caller.
        Self::from_block(unsafe { Block::foreign(record, deleter) })
    }

    /// Creates a storage over foreign memory that is never freed.
    ///
    /// # Safety
    ///
    /// As for [`Storage::foreign`], until the storage and everything that shares it is dropped.
    #[must_use]
    pub unsafe fn borrowed(ptr: NonNull<u8>, bytes: usize, kind: MemoryKind) -> Self {
        // SAFETY: guaranteed by the caller.
        Self::from_block(unsafe { Block::borrowed(host_record(ptr, bytes, kind)) })
    }

    /// Returns a part of this storage: the same bytes, and it keeps the whole alive.
    ///
    /// # Errors
    ///
    /// [`OutOfStorage`](orlop_core::Error::OutOfStorage) if the range is not inside;
    /// [`Error::Unbound`](crate::Error::Unbound).
    pub fn slice(&self, range: Range<usize>) -> Result<Self> {
        let outside =
            || orlop_core::Error::OutOfStorage { end_bytes: range.end, storage_bytes: self.nbytes() };
        if range.start > range.end || range.end > self.nbytes() {
            return Err(self.explain_outside(outside()));
        }
        let start = self
            .start
            .checked_add(range.start)
            .ok_or(orlop_core::Error::Overflow { quantity: Quantity::ByteSum })?;
        Ok(Self { cell: self.cell.clone(), start, len: range.end - range.start })
    }

    /// Checks that all elements of a layout are inside the bytes in use.
    ///
    /// # Errors
    ///
    /// [`OutOfStorage`](orlop_core::Error::OutOfStorage), or [`Error::Unbound`](crate::Error::Unbound) if
    /// there is no memory.
    pub(crate) fn check_bytes(&self, layout: &Layout, dtype: DType) -> Result<()> {
        layout.check_within(self.nbytes(), dtype.size()).map_err(|error| self.explain_outside(error))
    }

    /// Returns why there are no bytes, if there is no memory, and otherwise the error.
    #[cold]
    fn explain_outside(&self, error: orlop_core::Error) -> Error {
        // With a guard: memory may be taken at this moment, after the bytes and before the flag.
        match self.cell.bytes() {
            0 => self.cell.read_range(self.range()).err().unwrap_or_else(|| error.into()),
            _ => error.into(),
        }
    }

    /// Returns the bytes in use. A part has its own size, or what is left of it if the whole has shrunk.
    #[inline]
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.bytes_of(self.cell.bytes())
    }

    #[inline]
    pub(crate) fn bytes_of(&self, whole: usize) -> usize {
        whole.saturating_sub(self.start).min(self.len)
    }

    /// Returns `true` for a handle to the whole.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.len == WHOLE
    }

    /// Fails for a part of a storage.
    fn check_whole(&self) -> Result<()> {
        if self.is_whole() { Ok(()) } else { Err(Error::NotResizable { why: Unresizable::Part }) }
    }

    /// Fails unless the storage is on this device.
    fn check_device(&self, actual: Device) -> Result<()> {
        let expected = self.device();
        if expected == actual { Ok(()) } else { Err(Error::DeviceMismatch { expected, actual }) }
    }

    /// Returns the range of the handle in the whole, in bytes; without an end for the whole.
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.start.saturating_add(self.len)
    }

    /// Returns the start of the range in the whole, in bytes.
    #[inline]
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Returns the bytes that can be in use without reallocation.
    ///
    /// # Errors
    ///
    /// [`Error::Borrowed`](crate::Error::Borrowed) during a write of the whole.
    pub fn capacity(&self) -> Result<usize> {
        Ok(self.bytes_of(self.cell.inspect()?.block().requested))
    }

    /// Returns the block, for inspection. That of an [immutable](Storage::mark_immutable) storage never
    /// becomes a [`Block`] again, which could be written, unless its memory is planned.
    ///
    /// # Errors
    ///
    /// [`Error::Borrowed`](crate::Error::Borrowed) during a write of the whole.
    pub fn block(&self) -> Result<MemoryBlock> {
        let guard = self.cell.inspect()?;
        if self.cell.borrows.flags().has(Flags::IMMUTABLE) {
            self.cell.mark_read_only(guard.block());
        }
        Ok(guard.block().clone())
    }

    /// Returns the bytes, as granted, that dropping this handle now would free: 0 while other handles
    /// (including views) use the storage, or lazy copies share its memory. If other threads use the storage,
    /// the result may be outdated.
    ///
    /// # Errors
    ///
    /// [`Error::Borrowed`](crate::Error::Borrowed) during a write of the whole.
    pub fn would_free(&self) -> Result<usize> {
        if !self.is_unique() {
            return Ok(0);
        }
        let guard = self.cell.inspect()?;
        let block = guard.block();
        Ok(if block.owners() == 1 { block.granted } else { 0 })
    }

    /// Records that `stream` uses the memory: it is not reused before the stream's present work is done.
    ///
    /// # Errors
    ///
    /// [`Error::Borrowed`](crate::Error::Borrowed) during a write of the whole;
    /// [`StreamsNotHonoured`](orlop_alloc::Error::StreamsNotHonoured) if the allocator does not wait for
    /// streams, as CPU engines (pinned or not) and foreign memory do not.
    pub fn record_stream(&self, stream: StreamId) -> Result<()> {
        Ok(self.cell.inspect()?.block().record_stream(stream)?)
    }

    /// Returns the device of the memory.
    #[inline]
    #[must_use]
    pub fn device(&self) -> Device {
        self.cell.device
    }

    /// Returns the memory kind.
    #[must_use]
    pub fn memory_kind(&self) -> MemoryKind {
        self.cell.kind()
    }

    /// Returns the number of writes.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.cell.version()
    }

    /// Returns the number of handles, which other threads may change.
    #[must_use]
    pub fn use_count(&self) -> usize {
        self.cell.count()
    }

    /// Returns `true` if this is the only handle.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.cell.is_unique()
    }

    /// Returns `true` if both are handles to the same storage, to whichever parts of it, so that writes to
    /// one may be visible in the other. A lazy clone is another storage.
    #[inline]
    #[must_use]
    pub fn is_alias_of(&self, other: &Self) -> bool {
        self.cell.same_as(&other.cell)
    }

    /// Counts a handle that is a bitwise copy of this one.
    #[inline]
    pub(crate) fn count_copy(&self) {
        self.cell.count_copy();
    }

    /// Returns the shared state. Its address identifies the storage.
    #[inline]
    pub(crate) fn cell(&self) -> &StorageCell {
        &self.cell
    }

    #[inline]
    pub(crate) fn shared_cell(&self) -> &Shared<StorageCell> {
        &self.cell
    }
}

/// Counts a block in the current context if no allocator counts it. Returns its context too.
fn adopted(block: Block) -> (Block, ContextId) {
    if block.has_allocator() {
        let context = ContextId::of_block(&block);
        return (block, context);
    }
    Context::with_current(|now| (now.adopt(block), now.id()))
}

/// Returns the record of foreign memory that the CPU can access.
fn host_record(ptr: NonNull<u8>, bytes: usize, kind: MemoryKind) -> Record {
    let mut record = Record::new(ptr, bytes, Device::CPU, Access::Host);
    record.requested = bytes;
    record.kind = kind;
    record
}
