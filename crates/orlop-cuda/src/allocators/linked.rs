//! Allocators of one device that are linked: they trim each other's caches, and are summed up.

use crate::device::{CudaDevice, DeviceState};
use crate::error::CudaError;
use orlop_alloc::engine_support::{EngineScope, WeakAllocator, guarded, trace_guarded};
use orlop_alloc::{Allocator, AllocatorRef};
use orlop_core::{ByteSize, Device};
use std::fmt;

/// The memory of a device and of its linked allocators, in bytes: see [`CudaDevice::memory_use`].
///
/// As text it is one line, broken here:
///
/// ```text
/// cuda:0: 616 MiB of 1.00 GiB in use: 600 MiB by orlop (200 MiB live, 400 MiB cached),
/// 16.0 MiB by the driver, other code and other processes
/// ```
///
/// The last figure is a sum: which process has what, only NVML says.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// The device.
    pub device: Device,
    /// All memory of the device.
    pub total: u64,
    /// Memory that is in no use.
    pub free: u64,
    /// The linked allocators.
    pub allocators: Vec<LinkedAllocator>,
}

/// The memory of a linked allocator, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkedAllocator {
    /// Its name.
    pub name: Box<str>,
    /// In live blocks.
    pub live: u64,
    /// Taken from the device.
    pub reserved: u64,
}

impl MemoryUse {
    /// Returns the bytes in live blocks of the linked allocators.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.allocators.iter().map(|allocator| allocator.live).sum()
    }

    /// Returns the bytes that the linked allocators have taken from the device.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.allocators.iter().map(|allocator| allocator.reserved).sum()
    }

    /// Returns the bytes in use by other processes, and by other code of this one, the driver's own included.
    #[must_use]
    pub fn elsewhere(&self) -> u64 {
        self.total.saturating_sub(self.free).saturating_sub(self.reserved())
    }
}

impl fmt::Display for MemoryUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (live, reserved) = (self.live(), self.reserved());
        write!(
            f,
            "{}: {} of {} in use: {} by orlop ({} live, {} cached), {} by the driver, \
             other code and other processes",
            self.device,
            ByteSize(self.total.saturating_sub(self.free)),
            ByteSize(self.total),
            ByteSize(reserved),
            ByteSize(live),
            ByteSize(reserved.saturating_sub(live)),
            ByteSize(self.elsewhere()),
        )
    }
}

/// An allocator in the list of a device.
#[derive(Clone)]
pub(crate) struct Link {
    allocator: WeakAllocator,
    priority: i32,
}

impl CudaDevice {
    /// Links an allocator of this device's memory with the others that are, with the priority 0. All
    /// allocators of this crate for device memory are linked when their handles are created; an adaptor over
    /// such a handle needs no link.
    ///
    /// Before a request to an allocator of this crate fails for want of memory, the caches of linked ones are
    /// trimmed, and its error says what they still have
    /// ([`OutOfMemory::caches`](orlop_alloc::OutOfMemory::caches)). An allocator is linked as long as it has
    /// handles: what its blocks free after the last one stays in its cache, out of reach of others, until the
    /// last block is dropped. A request that is made inside an engine (by a visitor of its memory, in
    /// `DeviceAllocator::with_engine`) trims no other cache, and its error names none.
    pub fn link<A: ?Sized + Allocator>(&self, allocator: &AllocatorRef<A>) {
        self.link_with_priority(allocator, 0);
    }

    /// Links an allocator as [`CudaDevice::link`] does, or changes the priority of one that is linked. Caches
    /// of lower priority are trimmed first, and a request that is served then leaves the others; of equal
    /// priority, those that were linked first.
    pub fn link_with_priority<A: ?Sized + Allocator>(&self, allocator: &AllocatorRef<A>, priority: i32) {
        let allocator = allocator.downgrade();
        let mut linked = self.state().linked();
        linked.retain(|other| !other.allocator.is_destroyed() && other.allocator != allocator);
        let index = linked.partition_point(|other| other.priority <= priority);
        linked.insert(index, Link { allocator, priority });
    }

    /// Returns what the device's memory is used for. The memory that a pool keeps is counted by one of its
    /// allocators. An allocator whose figures cannot be read, because it panics, is left out.
    ///
    /// # Errors
    ///
    /// Failures of the driver; [`CudaError::Unsupported`] inside an engine (in a visitor of its memory, in
    /// `DeviceAllocator::with_engine`), where waiting for an allocator could deadlock.
    pub fn memory_use(&self) -> Result<MemoryUse, CudaError> {
        if EngineScope::is_inside() {
            let what = "reading the memory of all allocators inside one of them";
            return Err(CudaError::Unsupported { device: self.device(), what });
        }
        let memory = self.memory()?;
        let allocators = self.state().linked_allocators().into_iter().filter_map(|allocator| {
            // The handle is dropped in there as well: it can be the last one.
            let read = guarded(move || LinkedAllocator {
                name: allocator.name().into(),
                live: allocator.stats().live(),
                reserved: allocator.usage().reserved,
            });
            if read.is_none() {
                trace_guarded(|| tracing::error!(device = %self.device(), "a linked allocator panicked"));
            }
            read
        });
        let allocators = allocators.collect();
        Ok(MemoryUse { device: self.device(), total: memory.total, free: memory.free, allocators })
    }
}

impl DeviceState {
    /// Returns the linked allocators, in the order in which they are trimmed.
    pub(crate) fn linked_allocators(&self) -> Vec<AllocatorRef> {
        // Used with the list unlocked: an allocator that is dropped can run anything.
        let linked = self.linked().clone();
        linked.iter().filter_map(|link| link.allocator.upgrade()).collect()
    }
}
