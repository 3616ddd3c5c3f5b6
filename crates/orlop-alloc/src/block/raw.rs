//! What passes between engines, adaptors and handles: a pointer to the record of a block.

use crate::handle::CellHead;
use crate::{AllocationId, Deleter, Error, Request, Result, StreamUses, Tag};
use orlop_core::{Alignment, Device, MemoryKind, StreamId};
use orlop_sync::atomic::AtomicU32;
use std::ops::{Deref, Range};
use std::ptr::NonNull;

/// Who can reach the bytes of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The processor can read and write them, and they are initialised.
    Host,
    /// Only the device can.
    Device,
    /// Nobody can: the block is address space (the null backing).
    Nobody,
}

/// Everything about a block.
///
/// A record stays where it is while its block lives, and often longer: engines keep it with the memory, so
/// that handing a cached block out again changes a few words and moves none. What passes between layers is a
/// pointer to it, a [`RawBlock`].
///
/// What an allocation and its return read is in the first cache line; of the second an allocation writes the stream.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Record {
    /// Where the block begins.
    pub ptr: NonNull<u8>,
    /// Bytes that belong to it.
    pub granted: usize,
    /// Bytes that were asked for.
    pub requested: usize,
    /// Its name.
    pub id: AllocationId,
    /// The engine's own note: where its records of this block are.
    pub token: usize,
    /// To which allocator it returns. `None` for empty, borrowed and foreign memory; set by the handle. While nobody uses
    /// the block: the next one in whatever list of unused blocks this one is in.
    pub(crate) owner: Option<Owner>,
    /// Other streams that used it since.
    pub uses: StreamUses,
    /// Who asked.
    pub tag: Tag,
    /// What it is for.
    pub kind: MemoryKind,
    /// What its address is a multiple of.
    pub align: Alignment,
    /// Who can reach it.
    pub access: Access,
    /// Whether it is memory from outside: its owner, if it has one, only counts it.
    pub(crate) outside: bool,
    /// The stream it was allocated for.
    pub stream: StreamId,
    /// How many owners a shared block has beside the first.
    pub(crate) sharers: AtomicU32,
    /// Where it is.
    pub device: Device,
    /// Whom to tell, once, when foreign memory goes (M3).
    pub(crate) deleter: Option<Deleter>,
}

#[cfg(all(not(loom), target_pointer_width = "64"))]
const _: () = assert!(std::mem::offset_of!(Record, stream) == 64 && size_of::<Record>() == 128);

/// The cell that counted a block.
pub(crate) type Owner = NonNull<CellHead>;

impl Record {
    /// A record of memory that an engine has; [`Record::assign`] makes it a block for a request.
    #[must_use]
    pub fn new(ptr: NonNull<u8>, granted: usize, device: Device, access: Access) -> Self {
        Self {
            ptr,
            granted,
            token: 0,
            device,
            access,
            outside: false,
            kind: MemoryKind::Default,
            align: Alignment::ONE,
            tag: Tag::NONE,
            requested: 0,
            id: AllocationId::NONE,
            stream: StreamId::DEFAULT,
            uses: StreamUses::new(),
            sharers: AtomicU32::new(0),
            owner: None,
            deleter: None,
        }
    }

    /// The record of the same memory as a block that belongs to no allocator, with one owner and without an id.
    pub(crate) fn of_nobody(self) -> Self {
        Self {
            owner: None,
            sharers: AtomicU32::new(0),
            deleter: None,
            id: AllocationId::NONE,
            token: 0,
            ..self
        }
    }

    /// The engine's note, set.
    #[must_use]
    pub fn token(mut self, token: usize) -> Self {
        self.token = token;
        self
    }

    /// Makes this the record of a new allocation: a new id, no stream uses, the request's facts.
    #[inline]
    pub fn assign(&mut self, request: &Request) {
        if !self.uses.is_empty() {
            self.uses = StreamUses::new();
        }
        self.assign_unused(request, AllocationId::next());
    }

    /// [`Record::assign`] for a record without stream uses.
    #[inline(always)]
    pub(crate) fn assign_unused(&mut self, request: &Request, id: AllocationId) {
        (self.tag, self.kind) = (request.tag, request.kind);
        self.assign_like(request, id);
    }

    /// [`Record::assign_unused`] for a record that was of the request's kind and tag before.
    #[inline(always)]
    pub(crate) fn assign_like(&mut self, request: &Request, id: AllocationId) {
        debug_assert!(self.uses.is_empty() && self.tag == request.tag && self.kind == request.kind);
        self.id = id;
        self.requested = request.bytes;
        self.stream = request.stream;
        self.align = request.align;
    }

    /// The cell of the allocator that it returns to. Not that of an account of memory from outside.
    #[inline]
    pub(crate) fn allocator(&self) -> Option<Owner> {
        if self.outside { None } else { self.owner }
    }

    /// The address as a number.
    #[inline]
    #[must_use]
    pub fn address(&self) -> usize {
        self.ptr.as_ptr().addr()
    }

    /// The addresses of its bytes.
    pub(crate) fn addresses(&self) -> Range<usize> {
        self.address()..self.address() + self.granted
    }

    /// Notes that a stream uses the memory of a live block too, if its allocator waits for streams.
    pub(crate) fn record_use(&self, stream: StreamId) -> Result<()> {
        if self.granted == 0 {
            return Ok(());
        }
        // SAFETY: a live block's owner, whose cell lives while the block does.
        let honoured =
            self.owner.is_some_and(|owner| unsafe { owner.as_ref() }.allocator().semantics().stream_ordered);
        if !honoured {
            return Err(Error::StreamsNotHonoured { device: self.device, stream });
        }
        if stream != self.stream {
            self.uses.record(stream);
        }
        Ok(())
    }

    /// An error unless the processor can reach the bytes.
    ///
    /// # Errors
    ///
    /// [`Error::NotHostAccessible`].
    #[inline]
    pub fn check_host(&self) -> Result<()> {
        match self.access {
            Access::Host => Ok(()),
            Access::Device | Access::Nobody => Err(Error::NotHostAccessible { device: self.device }),
        }
    }
}

// SAFETY: the field that nobody else uses while the record is in a list.
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

/// A block below the handle: a pointer to its [`Record`]. Dropping one leaks the memory; nothing is returned.
///
/// What it says can be read. Engines trust it when the block comes back, so safe code cannot change it:
///
/// ```compile_fail
/// use orlop_alloc::{Allocator, Request, backing::System, engine::Direct};
///
/// let mut block = Allocator::allocate(&Direct::engine(System::new()), &Request::new(100)).unwrap();
/// block.granted = 1 << 40;
/// ```
#[derive(Debug)]
#[repr(transparent)]
#[must_use = "dropping a raw block leaks its memory"]
pub struct RawBlock {
    /// Invariant: points to a record that is valid, and reached through this pointer only, until the block
    /// goes back to whoever made the record. From `Box::leak`.
    record: NonNull<Record>,
}

impl RawBlock {
    /// A block with this record.
    #[inline]
    pub fn new(record: Box<Record>) -> Self {
        Self { record: NonNull::from(Box::leak(record)) }
    }

    /// The record, back.
    ///
    /// # Safety
    ///
    /// The block came from [`RawBlock::new`] with a box of the caller's, or of an engine that it now returns
    /// the block to.
    #[inline]
    #[must_use]
    pub unsafe fn into_record(self) -> Box<Record> {
        // SAFETY: the box of `new`, taken back once: `self` is consumed.
        unsafe { Box::from_raw(self.record.as_ptr()) }
    }

    /// The record, to be written. Engines trust what they find in it when the block comes back; so this is for who made the
    /// record, and for adaptors.
    ///
    /// # Safety
    ///
    /// 1. When the block is handed on, to a user or to another allocator, its record says what is true of it, as
    ///    [`Allocator`](crate::Allocator) promises: where it is, how long, on which device, who reaches it;
    /// 2. when it goes back to who handed it out, the record is as it was then, but for `uses`.
    #[inline]
    #[must_use]
    pub unsafe fn record_mut(&mut self) -> &mut Record {
        // SAFETY: valid by the invariant, and `self` is borrowed exclusively.
        unsafe { self.record.as_mut() }
    }

    /// Says to which cell the block returns that has counted it.
    #[inline]
    pub(crate) fn set_owner(&mut self, owner: Owner) {
        // SAFETY: the field is the handles' own, and engines do not look at it while somebody has the block.
        unsafe { self.record_mut() }.owner = Some(owner);
    }

    /// Where the record is: the same for as long as the block lives.
    #[inline]
    pub(crate) fn record(&self) -> NonNull<Record> {
        self.record
    }

    /// The block that `record` belongs to, for engines that find their records by address.
    ///
    /// # Safety
    ///
    /// `record` came from [`RawBlock::record`] of a block that was given up without being returned.
    pub(crate) unsafe fn found(record: NonNull<Record>) -> Self {
        Self { record }
    }

    /// A block of no bytes, which belongs to nobody: aligned, and never read or written.
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
        // SAFETY: valid, and reached through `self` only, by the invariant.
        unsafe { self.record.as_ref() }
    }
}

// SAFETY: a record describes memory and belongs to one holder at a time; nothing about either is tied to a
// thread, because allocators accept blocks back from any thread (`Allocator`, obligation 4), and deleters may
// run on any (`Deleter`'s constructors).
unsafe impl Send for Record {}
// SAFETY: through a shared reference only plain fields can be read, and `StreamUses` is `Sync`.
unsafe impl Sync for Record {}
// SAFETY: a raw block is its record's only holder.
unsafe impl Send for RawBlock {}
// SAFETY: as for the record.
unsafe impl Sync for RawBlock {}
