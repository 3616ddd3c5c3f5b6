//! What a device engine needs of a device: memory, addresses that pages can be mapped into, and streams.
//!
//! The engine decides; a backing does. CUDA's is one, [`NullDevice`](crate::NullDevice) is another: addresses without
//! memory, so that a trace of 80 GB runs through the same engine on a laptop.

mod guarded;
mod idle_streams;
mod meter;

pub(crate) use self::guarded::GuardedDevice;
pub(crate) use self::idle_streams::IdleStreams;
pub(crate) use self::meter::MemoryMeter;

use orlop_alloc::Access;
use orlop_core::{Device, StreamId};
use std::fmt::Debug;

/// Regions and ranges of addresses begin at multiples of so many bytes.
pub(crate) const REGION_ALIGN: usize = 512;

/// A mark in a stream: done when everything that was put into the stream before it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventId(pub u64);

/// A device's memory and streams.
///
/// # Safety
///
/// An implementation promises that
///
/// 1. what `allocate` gives, and what `map` and `remap` put pages under, is the engine's alone until it goes back, and
///    does not overlap; what `allocate` and `reserve_addresses` give begins at a multiple of 512 bytes;
/// 2. an event is done only when all that was in its stream before it is done, and `wait` makes a stream wait for that.
///
/// Engines call it with their lock held: it must not ask the engine it stands under. A panic ends at the call and is traced.
/// What gives memory back, and `forget`, counts as done then, and anything else as not done: what asks for memory or zeros has
/// refused, and the event of `is_done`, `synchronize` and `wait` is still there. `has_pages`, `memory` and `device` are called
/// once, before an engine has anything.
pub unsafe trait DeviceBacking: Debug + Send + Sync + 'static {
    /// Gets so many bytes; `None` if there are no more.
    fn allocate(&self, bytes: usize) -> Option<usize>;

    /// Gives back what `allocate` gave.
    ///
    /// # Safety
    ///
    /// It came from `allocate` with so many bytes, was not given back before, and no stream uses it.
    unsafe fn release(&self, address: usize, bytes: usize);

    /// Whether pages can be mapped and moved: the five functions that follow.
    fn has_pages(&self) -> bool {
        false
    }

    /// Sets addresses aside, without memory.
    fn reserve_addresses(&self, bytes: usize) -> Option<usize> {
        let _ = bytes;
        None
    }

    /// Gives addresses back, under which there are no pages any more.
    ///
    /// # Safety
    ///
    /// They came from `reserve_addresses`, whole, and were not given back before.
    unsafe fn release_addresses(&self, address: usize, bytes: usize) {
        let _ = (address, bytes);
    }

    /// Puts new pages under addresses that have none, all or nothing. False if there is no memory.
    ///
    /// # Safety
    ///
    /// The addresses are set aside and have no pages; both ends are multiples of `page` from their beginning, and
    /// `page` is the same for all that was set aside together.
    unsafe fn map(&self, address: usize, bytes: usize, page: usize) -> bool {
        let _ = (address, bytes, page);
        false
    }

    /// Takes pages away and gives them back to the device.
    ///
    /// # Safety
    ///
    /// All of it is mapped, in pages of `page` bytes, and no stream uses it.
    unsafe fn unmap(&self, address: usize, bytes: usize, page: usize) {
        let _ = (address, bytes, page);
    }

    /// Moves pages from one place to another. False if it cannot. They count as where they were, then, but may be gone:
    /// nothing but `unmap` may follow for them.
    ///
    /// # Safety
    ///
    /// As for `unmap` of `from` and `map` of `to`.
    unsafe fn remap(&self, from: usize, to: usize, bytes: usize, page: usize) -> bool {
        let _ = (from, to, bytes, page);
        false
    }

    /// Fills with zeros, in a stream's turn. False if it cannot.
    ///
    /// # Safety
    ///
    /// The bytes are the engine's, and used by nobody but that stream.
    unsafe fn zero(&self, address: usize, bytes: usize, stream: StreamId) -> bool {
        let _ = (address, bytes, stream);
        false
    }

    /// Puts a mark into a stream.
    fn record(&self, stream: StreamId) -> EventId;

    /// Whether an event is done; asked at most once for an event that was found done.
    fn is_done(&self, event: EventId) -> bool;

    /// Waits, on the host, until an event is done, and forgets it.
    fn synchronize(&self, event: EventId);

    /// Forgets an event that nobody will ask about.
    fn forget(&self, event: EventId) {
        let _ = event;
    }

    /// Makes a stream wait for an event, on the device, and forgets the event.
    fn wait(&self, stream: StreamId, event: EventId);

    /// Bytes of memory that the device has.
    fn memory(&self) -> u64;

    /// Bytes of it that nobody holds. `None` where that is not known.
    fn free_memory(&self) -> Option<u64> {
        None
    }

    /// Which device it is.
    fn device(&self) -> Device;

    /// Who can reach the memory.
    fn access(&self) -> Access {
        Access::Device
    }

    /// A name for people.
    fn name(&self) -> &str;
}
