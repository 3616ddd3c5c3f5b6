//! What an engine needs of a device: memory, addresses that pages can be mapped into, and streams.
//!
//! The engine decides, a backing executes. [`HostPages`](crate::HostPages) is one: the host's memory in pages
//! that move. [`NullDevice`](crate::NullDevice) is another: addresses without memory, so that a recording of
//! 80 GB replays through the same engine on a laptop.
//!
//! | module | what it holds |
//! |---|---|
//! | `guarded` | the backing as an engine calls it: a panic ends at the call |
//! | `meter` | the bytes in use of a device without a processor |
//! | `idle_streams` | its streams, in which nothing runs |

mod guarded;
mod idle_streams;
mod meter;

pub(crate) use self::guarded::GuardedDevice;
pub(crate) use self::idle_streams::IdleStreams;
pub(crate) use self::meter::MemoryMeter;

use orlop_alloc::Access;
use orlop_core::{Device, StreamId};
use std::fmt::Debug;

/// Regions and reservations begin at multiples of this many bytes.
pub(crate) const REGION_ALIGN: usize = 512;

/// An event in a stream: complete when all work that was put into the stream before it is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventId(pub u64);

/// A device's memory and streams.
///
/// # Safety
///
/// An implementation promises that
///
/// 1. memory from `allocate`, and addresses that `map` and `remap` put pages under, are the engine's alone
///    until they are released, and do not overlap; regions from `allocate` and `reserve_addresses` begin at a
///    multiple of 512 bytes;
/// 2. an event is complete only when all work that was in its stream before it is complete, and `wait` makes
///    a stream wait for that.
///
/// Engines call it with their lock held, so it must not use its engine. A panic ends at the call and is
/// traced. A call that releases memory, and `forget`, then counts as done, and every other as not done: a
/// request for memory or zeros is refused, and the event of `is_done`, `synchronize` and `wait` still exists.
/// `has_pages`, `memory` and `device` are called once, before an engine has memory.
pub unsafe trait DeviceBacking: Debug + Send + Sync + 'static {
    /// Allocates a region of `bytes` bytes. `None` if the device has no more.
    fn allocate(&self, bytes: usize) -> Option<usize>;

    /// Frees a region.
    ///
    /// # Safety
    ///
    /// It came from `allocate` with this many bytes, was not freed before, and no stream uses it.
    unsafe fn release(&self, address: usize, bytes: usize);

    /// Returns `true` if pages can be mapped and moved, by the five functions that follow.
    fn has_pages(&self) -> bool {
        false
    }

    /// Reserves addresses, without memory.
    fn reserve_addresses(&self, bytes: usize) -> Option<usize> {
        let _ = bytes;
        None
    }

    /// Releases reserved addresses that have no pages.
    ///
    /// # Safety
    ///
    /// They are all that one call of `reserve_addresses` returned, and were not released before.
    unsafe fn release_addresses(&self, address: usize, bytes: usize) {
        let _ = (address, bytes);
    }

    /// Maps new pages at addresses that have none, all or nothing. Returns `false` if there is no memory.
    ///
    /// # Safety
    ///
    /// The addresses are reserved and have no pages; both ends are multiples of `page` from the start of the
    /// reservation, and `page` is the same for all of a reservation.
    unsafe fn map(&self, address: usize, bytes: usize, page: usize) -> bool {
        let _ = (address, bytes, page);
        false
    }

    /// Unmaps pages and returns them to the device.
    ///
    /// # Safety
    ///
    /// All of it is mapped, in pages of `page` bytes, and no stream uses it.
    unsafe fn unmap(&self, address: usize, bytes: usize, page: usize) {
        let _ = (address, bytes, page);
    }

    /// Moves pages to other addresses. Returns `false` if it cannot: they then count as where they were, but
    /// may be lost, and only `unmap` may follow for them.
    ///
    /// # Safety
    ///
    /// As for `unmap` of `from` and `map` of `to`.
    unsafe fn remap(&self, from: usize, to: usize, bytes: usize, page: usize) -> bool {
        let _ = (from, to, bytes, page);
        false
    }

    /// Fills memory with zeros, in the order of a stream. Returns `false` if it cannot.
    ///
    /// # Safety
    ///
    /// The bytes are the engine's, and only that stream uses them.
    unsafe fn zero(&self, address: usize, bytes: usize, stream: StreamId) -> bool {
        let _ = (address, bytes, stream);
        false
    }

    /// Records an event in a stream.
    fn record(&self, stream: StreamId) -> EventId;

    /// Returns `true` if an event is complete. It is not queried again then.
    fn is_done(&self, event: EventId) -> bool;

    /// Waits, on the host, until an event is complete, and forgets it.
    fn synchronize(&self, event: EventId);

    /// Forgets an event, which is not used any more.
    fn forget(&self, event: EventId) {
        let _ = event;
    }

    /// Makes a stream wait for an event, on the device, and forgets the event.
    fn wait(&self, stream: StreamId, event: EventId);

    /// Returns the bytes of memory of the device.
    fn memory(&self) -> u64;

    /// Returns the free bytes of the device. `None` if they are not known.
    fn free_memory(&self) -> Option<u64> {
        None
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
