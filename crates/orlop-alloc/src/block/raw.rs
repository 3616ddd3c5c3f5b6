//! Raw blocks and their records: what engines, adaptors and handles exchange.

use super::source::MemorySource;
use crate::handle::CellHead;
use crate::{Access, AllocationId, Deleter, Error, MemoryBlock, Request, Result, StreamUses, Tag};
use orlop_core::{Alignment, Device, MemoryKind, StreamId};
use orlop_sync::atomic::AtomicU32;
use std::ops::{Deref, Range};
use std::ptr::NonNull;

/// The description of a block.
///
/// A record does not move while its block is live, and often longer: engines keep it with the memory, so that
/// handing out a cached block again changes a few words and moves none. Layers exchange a pointer to the
/// record, a [`RawBlock`].
///
/// The first cache line holds all that allocating and freeing read; of the second, an allocation writes the
/// stream only.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Record {
    /// The first byte.
    pub ptr: NonNull<u8>,
    /// Length in bytes, after rounding.
    pub granted: usize,
    /// Requested length in bytes.
    pub requested: usize,
    /// Identifies the allocation.
    pub id: AllocationId,
    /// A value for the engine's own use: where its metadata of this block is.
    pub token: usize,
    /// The cell of the allocator that the block returns to, or of the account that counts adopted foreign
    /// memory; set by the handle. `None` for empty blocks and for foreign memory that is not adopted. While
    /// the block is unused, the link to the next record in a list of unused blocks.
    pub(crate) owner: Option<Owner>,
    /// The other streams that used the block since it was allocated.
    pub(crate) uses: StreamUses,
    /// The tag of the request.
    pub tag: Tag,
    /// The kind of memory.
    pub kind: MemoryKind,
    /// The requested alignment.
    pub align: Alignment,
    /// Which processors can access the bytes.
    pub access: Access,
    /// What the block is of.
    pub(crate) source: MemorySource,
    /// The stream that the block was allocated for.
    pub stream: StreamId,
    /// The number of owners of a shared block, not counting the first.
    pub(crate) sharers: AtomicU32,
    /// The device that the memory is on.
    pub device: Device,
    /// The deleter of foreign memory, called once when the block is dropped.
    pub(crate) deleter: Option<Deleter>,
    /// The block that this one is a part of: see [`MemoryBlock::part`].
    pub(crate) whole: Option<MemoryBlock>,
}

#[cfg(all(not(loom), target_pointer_width = "64"))]
const _: () = assert!(std::mem::offset_of!(Record, stream) == 64 && size_of::<Record>() == 128);

/// The cell of the allocator or account that counted a block.
pub(crate) type Owner = NonNull<CellHead>;

impl Record {
    /// Creates a record of memory that an engine holds; [`Record::assign`] turns it into the record of a
    /// block.
    #[must_use]
    pub fn new(ptr: NonNull<u8>, granted: usize, device: Device, access: Access) -> Self {
        Self {
            ptr,
            granted,
            token: 0,
            device,
            access,
            source: MemorySource::Allocator,
            kind: MemoryKind::Default,
            align: Alignment::ONE,
            tag: Tag::NONE,
            requested: 0,
            id: AllocationId::NONE,
            stream: StreamId::HOST,
            uses: StreamUses::new(),
            sharers: AtomicU32::new(0),
            owner: None,
            deleter: None,
            whole: None,
        }
    }

    /// Converts the record into one of the same memory without an allocator, with one owner and without an
    /// id.
    pub(crate) fn without_owner(self) -> Self {
        Self {
            owner: None,
            sharers: AtomicU32::new(0),
            deleter: None,
            whole: None,
            uses: StreamUses::new(),
            id: AllocationId::NONE,
            token: 0,
            ..self
        }
    }

    /// Sets the engine's own value.
    #[must_use]
    pub fn token(mut self, token: usize) -> Self {
        self.token = token;
        self
    }

    /// Turns this into the record of a new allocation: a new id, no stream uses, and the fields of the
    /// request.
    #[inline]
    pub fn assign(&mut self, request: &Request) {
        self.stream = request.stream;
        self.assign_but_stream(request);
    }

    /// As [`Record::assign`], without the stream: for an engine that knows that the record has it already.
    /// The stream is in the second cache line, which nothing else of an allocation touches.
    #[inline]
    pub fn assign_but_stream(&mut self, request: &Request) {
        if !self.uses.is_empty() {
            self.uses = StreamUses::new();
        }
        (self.tag, self.kind) = (request.tag, request.kind);
        self.id = AllocationId::next();
        self.requested = request.bytes;
        self.align = request.align;
    }

    /// As [`Record::assign`], for a record that has no stream uses.
    #[inline(always)]
    pub(crate) fn assign_unused(&mut self, request: &Request, id: AllocationId) {
        (self.tag, self.kind) = (request.tag, request.kind);
        self.assign_like(request, id);
    }

    /// As [`Record::assign_unused`], for a record that already has the request's kind and tag.
    #[inline(always)]
    pub(crate) fn assign_like(&mut self, request: &Request, id: AllocationId) {
        debug_assert!(self.uses.is_empty() && self.tag == request.tag && self.kind == request.kind);
        self.id = id;
        self.requested = request.bytes;
        self.stream = request.stream;
        self.align = request.align;
    }

    /// Returns the cell of the allocator that the block returns to, or `None` for foreign memory, whose owner
    /// only counts it.
    #[inline]
    pub(crate) fn allocator(&self) -> Option<Owner> {
        if self.source == MemorySource::Allocator { self.owner } else { None }
    }

    /// Returns the address of the first byte.
    #[inline]
    #[must_use]
    pub fn address(&self) -> usize {
        self.ptr.as_ptr().addr()
    }

    /// Returns the other streams that used the block, latest first.
    pub fn stream_uses(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.uses.iter()
    }

    /// Returns `true` for external memory that was adopted, such as a mapped file or memory of another
    /// library. No allocator handed the block out; its account only counts it.
    #[inline]
    #[must_use]
    pub fn is_external(&self) -> bool {
        self.source == MemorySource::Foreign
    }

    /// Returns `true` if other streams used the block.
    #[inline]
    #[must_use]
    pub fn has_stream_uses(&self) -> bool {
        !self.uses.is_empty()
    }

    /// Adds a stream that used the block, for adaptors: a user calls
    /// [`Block::record_stream`](crate::Block::record_stream).
    pub fn add_stream_use(&mut self, stream: StreamId) {
        self.uses.record(stream);
    }

    /// Returns the range of the block's addresses.
    pub(crate) fn addresses(&self) -> Range<usize> {
        self.address()..self.address() + self.granted
    }

    /// Checks that the host can access the bytes.
    ///
    /// # Errors
    ///
    /// [`Error::NotHostAccessible`] if it cannot, or if a device may still use them: see
    /// [`Block::copy_by`](crate::Block::copy_by).
    #[inline]
    pub fn check_host(&self) -> Result<()> {
        match self.is_host_accessible() {
            true => Ok(()),
            false => Err(Error::NotHostAccessible { device: self.device }),
        }
    }

    /// Returns `true` if the host can access the bytes, and no device may still use them.
    #[inline]
    #[must_use]
    pub fn is_host_accessible(&self) -> bool {
        self.access == Access::Host && !self.is_unfinished()
    }

    /// Checks that the block has bytes which the host can access, or its device, if that is not the CPU.
    ///
    /// # Errors
    ///
    /// As for [`Record::check_host`].
    pub fn check_reachable(&self) -> Result<()> {
        match self.access {
            Access::Device if !self.device.is_cpu() => Ok(()),
            _ => self.check_host(),
        }
    }

    /// Notes that work of a device on the block may run for an unknown time, since waiting for it failed: the
    /// host cannot access the block any more, and dropping it leaks its memory. For a part, that is the whole
    /// that it is of.
    pub fn record_unfinished(&self) {
        self.undivided().uses.record_unfinished();
    }

    /// Returns `true` if work on the block, or on a part of the same whole, could not be waited for.
    #[inline]
    pub(crate) fn is_unfinished(&self) -> bool {
        self.undivided().uses.is_unfinished()
    }

    /// Returns the record of the block that this one is a part of, at any depth, or this one.
    #[inline]
    fn undivided(&self) -> &Self {
        let mut record = self;
        while let Some(whole) = &record.whole {
            record = whole;
        }
        record
    }
}

// SAFETY: `link` returns what `set_link` stored last, because `owner` has no other use while the record is in
// a list.
unsafe impl orlop_sync::Linked for Record {
    #[inline(always)]
    fn link(&self) -> Option<NonNull<Self>> {
        self.owner.map(NonNull::cast)
    }

    #[inline(always)]
    fn set_link(&mut self, link: Option<NonNull<Self>>) {
        self.owner = link.map(NonNull::cast);
    }
}

/// A block below the handle: a pointer to its [`Record`]. Dropping one returns nothing and leaks the memory.
///
/// The record can be read. Engines rely on it when the block comes back, so safe code cannot change it:
///
/// ```compile_fail
/// use orlop_alloc::{Allocator, Request, backing::System, engine::Direct};
///
/// let mut block = Allocator::allocate(&Direct::new(System::new()), &Request::new(100)).unwrap();
/// block.granted = 1 << 40;
/// ```
#[derive(Debug)]
#[repr(transparent)]
#[must_use = "dropping a raw block leaks its memory"]
pub struct RawBlock {
    /// Invariant: points to a record from `Box::leak` or of a `RecordSlab` that is valid, and accessed
    /// through this pointer only, until the block returns to the engine that made the record.
    record: NonNull<Record>,
}

impl RawBlock {
    /// Creates a block with this record.
    #[inline]
    pub fn new(record: Box<Record>) -> Self {
        Self { record: NonNull::from(Box::leak(record)) }
    }

    /// Converts the block back into its record.
    ///
    /// # Safety
    ///
    /// The block came from [`RawBlock::new`] with a box of the caller, or of an engine to which the caller
    /// now returns the block.
    #[inline]
    #[must_use]
    pub unsafe fn into_record(self) -> Box<Record> {
        // SAFETY: the box passed to `new`, taken back once: `self` is consumed.
        unsafe { Box::from_raw(self.record.as_ptr()) }
    }

    /// Returns the record for writing. Engines rely on its contents when the block comes back, so this is for
    /// the code that made the record and for adaptors.
    ///
    /// # Safety
    ///
    /// 1. When the block is handed on, to a user or to another allocator, its record describes it correctly,
    ///    as [`Allocator`](crate::Allocator) requires: address, size, device and access;
    /// 2. when it returns to the allocator that handed it out, the record is as it was then, except for the
    ///    streams that used it.
    #[inline]
    #[must_use]
    pub unsafe fn record_mut(&mut self) -> &mut Record {
        // SAFETY: valid by the invariant, and `self` is borrowed exclusively.
        unsafe { self.record.as_mut() }
    }

    /// Sets the cell that counted the block and that it returns to.
    #[inline]
    pub(crate) fn set_owner(&mut self, owner: Owner) {
        // SAFETY: only handles use this field while the block is live; engines do not rely on it.
        unsafe { self.record_mut() }.owner = Some(owner);
    }

    /// Returns a pointer to the record, which stays the same while the block is live.
    #[inline]
    pub(crate) fn record(&self) -> NonNull<Record> {
        self.record
    }

    /// Returns the block of this record, for engines that find their records by address.
    ///
    /// # Safety
    ///
    /// `record` came from [`RawBlock::record`] of a block that was forgotten without being returned.
    pub(crate) unsafe fn from_record(record: NonNull<Record>) -> Self {
        Self { record }
    }

    /// Creates a block of zero bytes without an allocator: its address is aligned and never accessed.
    pub(crate) fn empty(request: &Request, device: Device) -> Self {
        // The alignment is a power of two, hence not null.
        let ptr = NonNull::new(std::ptr::without_provenance_mut(request.align.bytes()));
        let mut record = Record::new(ptr.unwrap_or(NonNull::dangling()), 0, device, Access::Host);
        record.assign(request);
        record.id = AllocationId::NONE;
        Self::new(Box::new(record))
    }
}

impl Deref for RawBlock {
    type Target = Record;

    #[inline]
    fn deref(&self) -> &Record {
        // SAFETY: valid, and accessed through `self` only, by the invariant.
        unsafe { self.record.as_ref() }
    }
}

// SAFETY: a record describes memory and has one holder at a time. Neither is tied to a thread: allocators
// accept blocks back from any thread (`Allocator`, obligation 4), and deleters may run on any thread
// (required by the constructors of `Deleter`).
unsafe impl Send for Record {}
// SAFETY: through a shared reference only plain fields can be read, atomics changed, and `StreamUses` is
// `Sync`.
unsafe impl Sync for Record {}

/// A shared record changes by single atomic words, so that no panic leaves it half changed.
impl std::panic::RefUnwindSafe for Record {}

// SAFETY: a raw block is the only holder of its record.
unsafe impl Send for RawBlock {}
// SAFETY: as for the record.
unsafe impl Sync for RawBlock {}
