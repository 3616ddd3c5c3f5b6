//! The bump arena over another allocator, of any device.
//!
//! Its segments are blocks of that allocator. Below, they are accounted, limited and deferred as every other
//! block is, so an arena in device memory needs no waiting of its own: a segment that several streams used is
//! returned with these streams, and the allocator below gives its bytes to others when they are done.
//!
//! # Streams
//!
//! If the allocator below is ordered by streams, so is the arena. The blocks of a request's stream come from
//! segments that were allocated for that stream, and a rewind reuses a segment that only this stream used:
//! work of the next blocks comes after that of the last ones, and nothing waits. A segment that another
//! stream used too is returned instead, and the next one is a new block. Memory of the host that streams use
//! (pinned) is reused only if no stream used it, because the host does not wait for a stream.

mod segments;

use self::segments::{SegmentPart, UpstreamSegments};
use super::arena::Reset;
use crate::handle::ContextHandle as _;
use crate::{
    Access, Allocator, AllocatorRef, Block, DeviceMemory, Error, OutOfMemory, RawBlock, Record, Refusal,
    RegionWatch, Request, Result, Semantics, Usage,
};
use orlop_core::{Alignment, Device, MemoryKind, StreamId};
use orlop_sync::Mutex;
use std::ptr::NonNull;
use std::sync::Arc;

/// A bump arena whose memory comes from another allocator, such as that of a device.
///
/// Blocks are parts of a segment, and returning one only counts it out. [`UpstreamArena::reset`] frees
/// everything in constant time once each stream has one segment. It refuses while blocks are live, and
/// [`UpstreamArena::renew`] leaves these their memory: no block, and no tensor in one, loses its bytes.
///
/// ```
/// use orlop_alloc::{Allocator, Request, backing::System, engine::{Direct, UpstreamArena}};
///
/// let arena = UpstreamArena::new(Direct::new(System::new()).into_ref().erase(), 1 << 20).into_ref();
/// let block = arena.allocate(&Request::new(1000))?;
/// assert!(arena.reset().is_err(), "a block is live");
/// drop(block);
/// arena.reset()?;
/// assert_eq!((arena.used(), arena.usage().reserved), (0, 1 << 20));
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
///
/// The allocator below counts the segments, under the kind [`Workspace`](MemoryKind::Workspace). A `zeroed`
/// request for memory that the host cannot write is a block of the allocator below of its own, which returns
/// when it is dropped.
#[derive(Debug)]
pub struct UpstreamArena {
    upstream: AllocatorRef,
    device: Device,
    is_stream_ordered: bool,
    /// The maximum number of bytes in segments.
    limit: usize,
    segments: Mutex<UpstreamSegments>,
}

/// Bytes that are counted as reserved while they are allocated.
struct PendingBytes<'a>(&'a UpstreamArena, usize);

impl Drop for PendingBytes<'_> {
    fn drop(&mut self) {
        self.0.segments.lock().reserved -= self.1;
    }
}

impl UpstreamArena {
    /// Creates an arena that allocates `bytes` bytes from `upstream` at the first request of a stream, and
    /// larger segments later as needed.
    #[must_use]
    pub fn new(upstream: AllocatorRef, bytes: usize) -> Self {
        let (device, is_stream_ordered) = (upstream.device(), upstream.semantics().stream_ordered);
        let first = bytes.max(Alignment::PLANNED.bytes());
        let segments = Mutex::new(UpstreamSegments::new(first));
        Self { upstream, device, is_stream_ordered, limit: usize::MAX, segments }
    }

    /// Limits the bytes of segments.
    #[must_use]
    pub fn with_limit(self, limit: usize) -> Self {
        Self { limit, ..self }
    }

    /// Returns the allocator below.
    #[must_use]
    pub fn upstream(&self) -> &AllocatorRef {
        &self.upstream
    }

    /// Returns the bytes allocated since the last rewind, including padding.
    pub fn used(&self) -> usize {
        self.segments.lock().used()
    }

    /// Frees everything, in constant time once each stream has one segment. The host does not wait: see the
    /// module documentation.
    ///
    /// # Errors
    ///
    /// [`Error::ArenaInUse`] while blocks allocated since the last rewind are live; the arena is then
    /// unchanged.
    pub fn reset(&self) -> Result<()> {
        let mut segments = self.segments.lock();
        let live = segments.live();
        if live > 0 {
            return Err(Error::ArenaInUse { live });
        }
        let ended = segments.rewind();
        drop(segments);
        // With the lock released: the allocator below may run anything.
        drop(ended);
        Ok(())
    }

    /// Frees everything like [`UpstreamArena::reset`]; if blocks are live, it leaves them their memory and
    /// continues with new segments.
    pub fn renew(&self) -> Reset {
        let mut segments = self.segments.lock();
        let live = segments.live();
        let ended = segments.rewind();
        drop(segments);
        drop(ended);
        if live == 0 { Reset::Rewound } else { Reset::Renewed { live } }
    }

    /// Returns the stream whose segments serve a request.
    fn stream_of(&self, request: &Request) -> StreamId {
        match request.stream {
            _ if !self.is_stream_ordered => StreamId::HOST,
            StreamId::HOST => StreamId::default_of(self.device),
            stream => stream,
        }
    }

    /// Allocates bytes that a new segment of a stream begins with. A segment `alone` is zeroed, and has no
    /// other bytes.
    #[cold]
    fn grow(&self, request: &Request, stream: StreamId, alone: bool) -> Result<SegmentPart> {
        let (bytes, align) = (request.bytes.max(1), request.align.max(Alignment::PLANNED));
        let exact = Alignment::PLANNED.round_up(bytes)?;
        let next = if alone { exact } else { self.segments.lock().next_size(stream) };
        let segment =
            Request { bytes: exact, align, stream, kind: MemoryKind::Workspace, zeroed: alone, ..*request };
        let block = match self.segment(&segment, exact.max(next)) {
            Err(_) if next > exact => self.segment(&segment, exact),
            other => other,
        };
        let block = block.map_err(|error| for_request(error, request))?;
        let place = (bytes, request.align);
        let part = self.segments.lock().add(stream, block, place, alone);
        // It begins at a multiple of the alignment, and has the bytes.
        part.ok_or(Error::Corrupt { rule: "a new segment has room for its request", address: 0 })
    }

    /// Allocates a block for a segment, of `bytes` bytes if the limit allows.
    fn segment(&self, request: &Request, bytes: usize) -> Result<Block> {
        let mut segments = self.segments.lock();
        let bytes = bytes.min(self.limit.saturating_sub(segments.reserved));
        if bytes < request.bytes {
            let mut report = OutOfMemory::new(Refusal::Limit, self.name(), self.device, request);
            (report.reserved, report.limit) = (segments.reserved as u64, Some(self.limit as u64));
            return Err(report.into());
        }
        segments.reserved += bytes;
        drop(segments);
        let pending = PendingBytes(self, bytes);
        // As an adaptor does: budgets charge the arena's blocks, or the segments if the handle is a gate.
        let block = self.upstream.allocate_ungated(&Request { bytes, ..*request })?;
        std::mem::forget(pending);
        let mut segments = self.segments.lock();
        segments.peak = segments.peak.max(segments.reserved);
        Ok(block)
    }
}

/// Describes the request in place of that for a segment.
#[cold]
fn for_request(mut error: Error, request: &Request) -> Error {
    if let Error::OutOfMemory(report) = &mut error {
        (report.kind, report.tag) = (request.kind, request.tag);
        (report.requested, report.align) = (request.bytes, request.align);
    }
    error
}

// SAFETY: 1. blocks are disjoint parts of live blocks of the allocator below: the used prefix of a segment
// only advances until a rewind, when no block of the segment is live. 2. and 4. as below. 3. bytes that may
// not be zero are zeroed on the host, or a new block of the allocator below is zeroed. 5. the segments are
// behind a mutex and do not move. 6. there is no counter.
unsafe impl Allocator for UpstreamArena {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        request.kind.check_on(self.device)?;
        let (stream, bytes) = (self.stream_of(request), request.bytes.max(1));
        let may_zero = !request.zeroed || self.device.is_cpu();
        let bumped = if may_zero { self.segments.lock().bump(stream, bytes, request.align) } else { None };
        let mut part = match bumped {
            Some(part) => part,
            None => self.grow(request, stream, !may_zero)?,
        };
        if request.zeroed && part.dirty > 0 && part.access != Access::Host {
            // Address space of the CPU, or memory that it cannot access.
            let address = part.ptr.as_ptr().addr();
            let _ended = self.segments.lock().count_out(part.token, address, [].into_iter())?;
            part = self.grow(request, stream, true)?;
        }
        let SegmentPart { token, ptr, access, dirty } = part;
        if request.zeroed && dirty > 0 {
            // SAFETY: host memory of a live block, allocated above and not passed on.
            unsafe { ptr.write_bytes(0, dirty) };
        }
        let mut record = Box::new(Record::new(ptr, bytes, self.device, access).token(token));
        record.assign(request);
        if self.is_stream_ordered {
            record.stream = stream;
        }
        Ok(RawBlock::new(record))
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        // An adaptor can record streams that the allocator below does not wait for: they have no effect.
        let uses = block.stream_uses().filter(|_| self.is_stream_ordered);
        let ended = self.segments.lock().count_out(block.token, block.address(), uses)?;
        // SAFETY: every block of this allocator has a box from `allocate` (guaranteed by the caller).
        drop(unsafe { block.into_record() });
        drop(ended);
        Ok(())
    }

    /// Grows only the block that was allocated last in its segment.
    unsafe fn grow_in_place(&self, block: &mut RawBlock, bytes: usize) -> bool {
        if !self.segments.lock().grow_last(block.token, block.address(), bytes) {
            return false;
        }
        // SAFETY: a record of this engine; the segment's bytes are in use by this block up to its new end.
        let record = unsafe { block.record_mut() };
        (record.granted, record.requested) = (bytes, bytes);
        true
    }

    fn device(&self) -> Device {
        self.device
    }

    fn device_memory(&self) -> Option<DeviceMemory> {
        self.upstream.device_memory()
    }

    fn name(&self) -> &str {
        "upstream-arena"
    }

    fn usage(&self) -> Usage {
        let segments = self.segments.lock();
        Usage {
            reserved: segments.reserved as u64,
            peak_reserved: segments.peak as u64,
            regions: segments.count() as u64,
            ..Usage::default()
        }
    }

    fn reset_peak(&self) {
        let mut segments = self.segments.lock();
        segments.peak = segments.reserved;
    }

    fn semantics(&self) -> Semantics {
        // Blocks are placed here.
        Semantics { completes_alignment: false, ..self.upstream.semantics() }
    }

    /// Returns the segments to the allocator below if no block in them is live.
    fn trim(&self, target: u64) -> u64 {
        let mut segments = self.segments.lock();
        if segments.reserved as u64 <= target || segments.live() > 0 {
            return 0;
        }
        let ended = segments.end_all();
        drop(segments);
        ended.iter().map(|block| block.len() as u64).sum()
    }

    unsafe fn allocated_size_slow(&self, ptr: NonNull<u8>) -> Option<usize> {
        self.segments.lock().size_at(ptr.as_ptr().addr())
    }

    fn wraps(&self, other: &AllocatorRef) -> bool {
        self.upstream.wraps(other)
    }

    /// The segments are blocks of the allocator below, which reports its regions.
    fn watch_regions(&self, watch: &Arc<RegionWatch>) {
        self.upstream.watch_regions(watch);
    }

    fn verify(&self) -> Result<()> {
        self.segments.lock().verify()
    }
}
