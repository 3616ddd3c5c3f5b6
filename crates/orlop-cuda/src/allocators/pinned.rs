//! [`PinnedAllocator`]: pinned host memory that splits and coalesces, and is reused after the copies.

use crate::device::CudaDevice;
use crate::memory::PinnedMemory;
use orlop_alloc::{Allocator, RawBlock, Request, Result, Semantics, forward};
use orlop_core::StreamId;
use orlop_device::{DeviceAllocator, DeviceStats, Policy};

/// Allocates pinned host memory, with the device engine: best fit, splitting, coalescing.
///
/// Its device is the CPU, and its bytes can be read and written on the host. A stream that copies from or
/// to a block is recorded on it ([`Block::record_stream`](orlop_alloc::Block::record_stream)); a block that
/// is dropped before is not handed out again until the copies are done. Nothing waits for that, except a
/// request that would fail otherwise.
#[derive(Debug)]
pub struct PinnedAllocator {
    engine: DeviceAllocator<PinnedMemory>,
}

impl PinnedAllocator {
    /// Creates an allocator of memory that is pinned for all devices.
    #[must_use]
    pub fn new(device: &CudaDevice) -> Self {
        let mut policy = Policy::orlop_without_pages();
        policy.name = "cuda-pinned";
        Self { engine: DeviceAllocator::new(PinnedMemory::new(device), policy) }
    }

    /// Returns the ledger of the engine: requested, allocated (rounded) and reserved bytes, with their peaks.
    /// The pages that are pinned in vain are the difference between the last and the first.
    #[must_use]
    pub fn ledger(&self) -> DeviceStats {
        self.engine.device_stats()
    }
}

// SAFETY: blocks are the engine's, with the stream of the request in their records while they are live.
unsafe impl Allocator for PinnedAllocator {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        // The host accesses every block first. If chunks belonged to streams, the host would wait for them.
        let mut block = self.engine.allocate(&request.stream(StreamId::HOST))?;
        // SAFETY: 1. the stream is no part of the memory's description; 2. `deallocate` restores it.
        unsafe { block.record_mut() }.stream = request.stream;
        Ok(block)
    }

    unsafe fn deallocate(&self, mut block: RawBlock) -> Result<()> {
        // The stream of the request is one more user.
        if block.stream != StreamId::HOST {
            block.uses.record(block.stream);
        }
        // SAFETY: it is as the engine handed it out.
        unsafe { block.record_mut() }.stream = StreamId::HOST;
        // SAFETY: guaranteed by the caller.
        unsafe { self.engine.deallocate(block) }
    }

    fn semantics(&self) -> Semantics {
        Semantics { pinned: true, ..self.engine.semantics() }
    }

    forward!(engine; except deallocate, semantics);
}

impl From<PinnedAllocator> for orlop_alloc::AllocatorRef {
    fn from(allocator: PinnedAllocator) -> Self {
        allocator.into_ref().erase()
    }
}
