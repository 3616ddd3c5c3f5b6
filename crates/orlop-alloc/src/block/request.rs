//! Requests to an allocator.

use crate::Tag;
use orlop_core::{Alignment, MemoryKind, StreamId};

// In this order, so that the fields that are zero by default are cleared by stores that do not overlap: a
// load of a word that two stores have written waits for both.
/// A request for memory. It is made by [`Request::new`] and changed by methods that each set one field.
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
    /// Requested size in bytes. Zero is served without calling the engine, unless that hands out opaque
    /// handles.
    pub bytes: usize,
    /// The stream that will use the memory first.
    pub stream: StreamId,
    /// If not zero, only chunks freed at or before this stamp may be used.
    pub freed_before: u64,
    /// Alignment of the address.
    pub align: Alignment,
    /// True if every byte must read as zero.
    pub zeroed: bool,
    /// The kind of memory.
    pub kind: MemoryKind,
    /// True if a refused request may be retried: after waiting for other threads to return memory, running
    /// callbacks, releasing the caches of other kinds or borrowing budget. If false, the request fails at the
    /// first refusal, which is cheap where memory is optional. In both cases an engine uses all of its own
    /// free memory, including regions that it can release to its backing to make room.
    pub retry: bool,
    /// The tag that the memory is accounted under.
    pub tag: Tag,
}

impl Request {
    /// Creates a request for `bytes` bytes of the default kind, aligned to 64 bytes on the CPU and to 256 on
    /// devices.
    #[must_use]
    #[inline]
    pub const fn new(bytes: usize) -> Self {
        Self {
            bytes,
            align: Alignment::UNSPECIFIED,
            kind: MemoryKind::Default,
            zeroed: false,
            retry: true,
            stream: StreamId::HOST,
            freed_before: 0,
            tag: Tag::NONE,
        }
    }

    /// Sets the alignment.
    #[must_use]
    pub const fn align(mut self, align: Alignment) -> Self {
        self.align = align;
        self
    }

    /// Sets the kind of memory.
    #[must_use]
    pub const fn kind(mut self, kind: MemoryKind) -> Self {
        self.kind = kind;
        self
    }

    /// Requires every byte to be zero.
    #[must_use]
    pub const fn zeroed(mut self) -> Self {
        self.zeroed = true;
        self
    }

    /// Makes the request fail at the first refusal: see [`Request::retry`].
    #[must_use]
    pub const fn no_retry(mut self) -> Self {
        self.retry = false;
        self
    }

    /// Sets the stream that uses the memory first.
    #[must_use]
    pub const fn stream(mut self, stream: StreamId) -> Self {
        self.stream = stream;
        self
    }

    /// Restricts the request to chunks freed at or before this stamp.
    #[must_use]
    pub const fn freed_before(mut self, stamp: u64) -> Self {
        self.freed_before = stamp;
        self
    }

    /// Sets the tag.
    #[must_use]
    pub const fn tag(mut self, tag: Tag) -> Self {
        self.tag = tag;
        self
    }
}
