//! What a user asks an allocator for.

use crate::Tag;
use orlop_core::{Alignment, MemoryKind, StreamId};

// In this order, because what is zero by default is cleared in words that do not overlap: who reads a word that two stores
// have written waits for both.
/// Bytes, and how they are to be (T18). Built from [`Request::new`] by the methods that change one thing.
///
/// ```
/// use orlop_alloc::Request;
/// use orlop_core::MemoryKind;
/// let request = Request::new(1 << 20).kind(MemoryKind::KvCache).zeroed();
/// assert_eq!(request.bytes, 1 << 20);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
#[non_exhaustive]
pub struct Request {
    /// Bytes wanted. Zero is answered without asking the engine, unless it hands out opaque handles.
    pub bytes: usize,
    /// The stream that will use the memory first.
    pub stream: StreamId,
    /// If not zero, only chunks freed at or before this stamp may be used (T9).
    pub freed_before: u64,
    /// The address is a multiple of this.
    pub align: Alignment,
    /// Whether every byte must read as zero.
    pub zeroed: bool,
    /// What the memory is for.
    pub kind: MemoryKind,
    /// Whether the request may be tried again after it was refused: wait for others to return memory, run callbacks, give
    /// other kinds' caches back, borrow budget. Off, it fails at the first refusal, which is cheap where memory is optional.
    /// An engine uses the free memory of its own in any case, what it gives back to its backing for that included.
    pub retry: bool,
    /// Who asks.
    pub tag: Tag,
}

impl Request {
    /// `bytes` at 64-byte alignment, of the default kind.
    #[must_use]
    #[inline]
    pub const fn new(bytes: usize) -> Self {
        Self {
            bytes,
            align: Alignment::CPU,
            kind: MemoryKind::Default,
            zeroed: false,
            retry: true,
            stream: StreamId::DEFAULT,
            freed_before: 0,
            tag: Tag::NONE,
        }
    }

    /// At this alignment.
    #[must_use]
    pub const fn align(mut self, align: Alignment) -> Self {
        self.align = align;
        self
    }

    /// Of this kind.
    #[must_use]
    pub const fn kind(mut self, kind: MemoryKind) -> Self {
        self.kind = kind;
        self
    }

    /// With every byte zero.
    #[must_use]
    pub const fn zeroed(mut self) -> Self {
        self.zeroed = true;
        self
    }

    /// To fail at once rather than wait or reclaim.
    #[must_use]
    pub const fn no_retry(mut self) -> Self {
        self.retry = false;
        self
    }

    /// For work on this stream.
    #[must_use]
    pub const fn stream(mut self, stream: StreamId) -> Self {
        self.stream = stream;
        self
    }

    /// From chunks freed at or before this stamp.
    #[must_use]
    pub const fn freed_before(mut self, stamp: u64) -> Self {
        self.freed_before = stamp;
        self
    }

    /// On behalf of this tag.
    #[must_use]
    pub const fn tag(mut self, tag: Tag) -> Self {
        self.tag = tag;
        self
    }
}
