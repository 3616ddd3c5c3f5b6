//! A block without an owner: what passes between engines and adaptors.

use crate::protocol::StreamUses;
use crate::{Error, Request, Result, Tag};
use orlop_core::{Alignment, Device, MemoryKind, StreamId};
use std::cell::Cell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names one allocation for the life of the process, however often its address is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AllocationId(u64);

impl AllocationId {
    /// The id of blocks that no engine handed out: empty and foreign ones.
    pub const NONE: Self = Self(0);

    /// A new id. Each thread draws from a range of its own: no shared counter on this path.
    #[inline]
    #[must_use]
    pub fn next() -> Self {
        const RANGE: u64 = 1 << 12;
        static RANGES: AtomicU64 = AtomicU64::new(0);
        thread_local! {
            static NEXT: Cell<u64> = const { Cell::new(0) };
        }
        NEXT.with(|next| {
            let mut id = next.get();
            if id % RANGE == 0 {
                // Relaxed: ranges only need to differ.
                id = RANGES.fetch_add(1, Ordering::Relaxed) * RANGE + 1;
            }
            next.set(id + 1);
            Self(id)
        })
    }

    /// As a number; zero for [`AllocationId::NONE`].
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for AllocationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

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

/// Everything about a block but its owner. Dropping one leaks the memory; nothing is returned.
#[derive(Debug)]
#[must_use = "dropping a raw block leaks its memory"]
pub struct RawBlock {
    /// Where it begins.
    pub ptr: NonNull<u8>,
    /// Bytes that belong to it.
    pub granted: usize,
    /// Bytes that were asked for.
    pub requested: usize,
    /// Its name.
    pub id: AllocationId,
    /// The engine's own note: where its records of this block are.
    pub token: usize,
    /// The stream it was allocated for.
    pub stream: StreamId,
    /// Other streams that used it since.
    pub uses: StreamUses,
    /// Who asked.
    pub tag: Tag,
    /// Where it is.
    pub device: Device,
    /// What it is for.
    pub kind: MemoryKind,
    /// What its address is a multiple of.
    pub align: Alignment,
    /// Who can reach it.
    pub access: Access,
}

impl RawBlock {
    /// A block for `request`, with a new id and no stream uses.
    #[inline]
    pub fn new(request: &Request, ptr: NonNull<u8>, granted: usize, device: Device, access: Access) -> Self {
        Self {
            ptr,
            granted,
            requested: request.bytes,
            id: AllocationId::next(),
            token: 0,
            stream: request.stream,
            uses: StreamUses::new(),
            tag: request.tag,
            device,
            kind: request.kind,
            align: request.align,
            access,
        }
    }

    /// A block of no bytes, which belongs to nobody: aligned, and never read or written.
    pub fn empty(request: &Request, device: Device) -> Self {
        // The alignment is a power of two, hence not null.
        let ptr = NonNull::new(std::ptr::without_provenance_mut(request.align.bytes()));
        let id = AllocationId::NONE;
        Self { id, ..Self::new(request, ptr.unwrap_or(NonNull::dangling()), 0, device, Access::Host) }
    }

    /// The engine's note, set.
    pub fn with_token(mut self, token: usize) -> Self {
        self.token = token;
        self
    }

    /// The address as a number.
    #[must_use]
    pub fn address(&self) -> usize {
        self.ptr.as_ptr().addr()
    }

    /// An error unless the processor can reach the bytes.
    ///
    /// # Errors
    ///
    /// [`Error::NotHostAccessible`].
    pub fn check_host(&self) -> Result<()> {
        match self.access {
            Access::Host => Ok(()),
            Access::Device | Access::Nobody => Err(Error::NotHostAccessible { device: self.device }),
        }
    }
}

// SAFETY: a raw block is a claim on memory, owned by one holder at a time; nothing about that claim is tied
// to a thread, because allocators accept blocks back from any thread (`Allocator`, obligation 4).
unsafe impl Send for RawBlock {}
// SAFETY: through a shared reference only plain fields can be read, and `StreamUses` is `Sync`.
unsafe impl Sync for RawBlock {}
