//! What an engine needs of a device: memory, addresses that pages can be mapped into, and streams.
//!
//! The engine decides, a backing executes. [`HostPages`](crate::HostPages) is one: the host's memory in pages
//! that move. [`NullDevice`](crate::NullDevice) is another: addresses without memory, so that a recording of
//! 80 GB replays through the same engine on a laptop.
//!
//! | module | what it holds |
//! |---|---|
//! | `capture_count` | the captures in progress on a device |
//! | `error` | the errors of its calls |
//! | `guarded` | the backing as an engine calls it: a panic is an error, a lost device is not called |
//! | `meter` | the bytes in use of a device without a processor |
//! | `visited` | callbacks for memory that comes and goes |
//! | `idle_streams` | its streams, in which nothing runs |

mod capture_count;
mod error;
mod guarded;
mod idle_streams;
mod meter;
mod visited;

pub use self::capture_count::CaptureCount;
pub use self::error::{BackingError, DriverFailure};
pub use self::visited::VisitedDevice;

pub(crate) use self::error::CallFailure;
pub(crate) use self::guarded::GuardedDevice;
pub(crate) use self::idle_streams::IdleStreams;
pub(crate) use self::meter::MemoryMeter;

use orlop_alloc::{Access, AllocatorRef};
use orlop_core::{Device, StreamId};
use std::fmt::Debug;

/// Regions and reservations begin at multiples of this many bytes.
pub(crate) const REGION_ALIGN: usize = 512;

/// An event in a stream: complete when all work that was put into the stream before it is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventId(pub u64);

/// A device's memory and streams.
///
/// # Errors
///
/// An error says what the engine may rely on afterwards:
///
/// * [`OutOfMemory`](BackingError::OutOfMemory) of `allocate`, `reserve_addresses` and `map`: the engine
///   makes room, and tries again.
/// * [`Lost`](BackingError::Lost): the engine does not call the device again, except for `forget`;
///   calls of other threads may be under way.
/// * Every other error: the request that needed the call fails with it, or does without the call.
///
/// A call that fails has no effect, and an event that was passed to it still exists. Two cases are different.
/// Memory and addresses whose release or `unmap` failed may be released or not: the engine counts them as
/// reserved, and neither uses nor releases them again, unless the error is `Capturing` or `Unsupported`.
/// Pages whose `remap` failed count as where they were, but may have lost their contents.
///
/// # Safety
///
/// An implementation promises that
///
/// 1. memory from `allocate`, and addresses that `map` and `remap` put pages under, are the engine's alone
///    until they are released, and do not overlap; regions from `allocate` and `reserve_addresses` begin at a
///    multiple of 512 bytes;
/// 2. an event is complete only when all work that was in its stream before it is complete, and `wait` makes
///    a stream wait for that;
/// 3. what fails has the effect that is described above and no other;
/// 4. pages of every multiple of `page_granularity` can be mapped, unmapped and moved without an effect on
///    the bytes around them. `unmap` and `remap` refuse ranges that do not begin and end at such multiples:
///    [`Unsupported`](BackingError::Unsupported).
///
/// An allocator calls it with a lock held: from inside a call, only requests that cached memory serves can
/// succeed in the same allocator. Calls of several threads can overlap. A panic ends at the call, is traced,
/// and is the error [`Panicked`](BackingError::Panicked). `page_granularity`, `memory` and `device` are
/// called once, before an engine has memory.
pub unsafe trait DeviceBacking: Debug + Send + Sync + 'static {
    /// Allocates a region of `bytes` bytes.
    fn allocate(&self, bytes: usize) -> Result<usize, BackingError>;

    /// Frees a region.
    ///
    /// # Safety
    ///
    /// It came from `allocate` with this many bytes, was not freed before, and no stream uses it.
    unsafe fn release(&self, address: usize, bytes: usize) -> Result<(), BackingError>;

    /// Returns the granularity of pages in bytes, a power of two, if pages can be mapped and moved by the
    /// five functions that follow. The engine rounds the pages of its policy up to multiples of it.
    fn page_granularity(&self) -> Option<usize> {
        None
    }

    /// Reserves addresses, without memory.
    fn reserve_addresses(&self, bytes: usize) -> Result<usize, BackingError> {
        let _ = bytes;
        Err(BackingError::Unsupported)
    }

    /// Releases reserved addresses that have no pages.
    ///
    /// # Safety
    ///
    /// They are all that one call of `reserve_addresses` returned, and were not released before.
    unsafe fn release_addresses(&self, address: usize, bytes: usize) -> Result<(), BackingError> {
        let _ = (address, bytes);
        Err(BackingError::Unsupported)
    }

    /// Maps new pages at addresses that have none, all or nothing. `page` is a multiple of the granularity.
    ///
    /// # Safety
    ///
    /// The addresses are reserved and have no pages; `bytes` is a multiple of `page`. Both ends are
    /// multiples, from the start of the reservation, of the smallest page that is ever mapped in it, and so
    /// is `page`.
    unsafe fn map(&self, address: usize, bytes: usize, page: usize) -> Result<(), BackingError> {
        let _ = (address, bytes, page);
        Err(BackingError::Unsupported)
    }

    /// Unmaps pages and returns them to the device.
    ///
    /// # Safety
    ///
    /// All of it is mapped, in pages of multiples of `page` bytes of which none is cut, and no stream uses
    /// it.
    unsafe fn unmap(&self, address: usize, bytes: usize, page: usize) -> Result<(), BackingError> {
        let _ = (address, bytes, page);
        Err(BackingError::Unsupported)
    }

    /// Moves pages to other addresses. If that fails only `unmap` may follow for them.
    ///
    /// # Safety
    ///
    /// As for `unmap` of `from` and `map` of `to`, where the pages keep their sizes.
    unsafe fn remap(&self, from: usize, to: usize, bytes: usize, page: usize) -> Result<(), BackingError> {
        let _ = (from, to, bytes, page);
        Err(BackingError::Unsupported)
    }

    /// Fills memory with zeros, in the order of a stream.
    ///
    /// # Safety
    ///
    /// The bytes are the engine's, and only that stream uses them.
    unsafe fn zero(&self, address: usize, bytes: usize, stream: StreamId) -> Result<(), BackingError> {
        let _ = (address, bytes, stream);
        Err(BackingError::Unsupported)
    }

    /// Records an event in a stream.
    fn record(&self, stream: StreamId) -> Result<EventId, BackingError>;

    /// Returns `true` if an event is complete, and then forgets it.
    fn query(&self, event: EventId) -> Result<bool, BackingError>;

    /// Waits, on the host, until an event is complete, and forgets it.
    fn synchronize(&self, event: EventId) -> Result<(), BackingError>;

    /// Forgets an event, which is not used any more.
    fn forget(&self, event: EventId) {
        let _ = event;
    }

    /// Makes a stream wait for an event, on the device, and forgets the event.
    fn wait(&self, stream: StreamId, event: EventId) -> Result<(), BackingError>;

    /// Returns `true` if a stream is gone and all its work complete. An engine with many streams asks, and
    /// then retires it: for backings that know the end of their streams, and still accept these in calls.
    fn has_ended(&self, stream: StreamId) -> bool {
        let _ = stream;
        false
    }

    /// Returns `true` if a stream captures a graph, or if that is not known. Only asked while a capture is
    /// [marked](crate::Engine::mark_capture_begin), by policies without
    /// [`quiet_captures`](crate::Extensions::quiet_captures).
    fn is_capturing(&self, stream: StreamId) -> bool {
        let _ = stream;
        true
    }

    /// Returns `true` if a stream is the device's. Requests for other streams are refused: nothing can be
    /// recorded in them.
    fn knows_stream(&self, stream: StreamId) -> bool {
        let _ = stream;
        true
    }

    /// Returns the count of captures of the device, if its backings share one. Called once.
    fn capture_count(&self) -> Option<CaptureCount> {
        None
    }

    /// Returns the bytes of memory of the device.
    fn memory(&self) -> u64;

    /// Returns the free bytes of the device. `None` if they are not known.
    fn free_memory(&self) -> Option<u64> {
        None
    }

    /// Called once, when a handle to the allocator of this memory has been created.
    fn on_shared(&self, allocator: &AllocatorRef) {
        let _ = allocator;
    }

    /// Returns the allocators that share the device's memory, in the order in which they are trimmed before a
    /// request fails. Called with no lock held.
    fn neighbours(&self) -> Vec<AllocatorRef> {
        Vec::new()
    }

    /// Returns the device.
    fn device(&self) -> Device;

    /// Returns who can access the memory.
    fn access(&self) -> Access {
        Access::Device
    }

    /// Returns a name, for messages.
    fn name(&self) -> &str;
}
