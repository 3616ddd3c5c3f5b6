//! [`PinnedAllocator`]: pinned host memory that splits and coalesces, and is reused after the copies; and
//! [`PinnedLedger`], its waste.

use crate::device::{self, CudaDevice};
use crate::error::CudaError;
use crate::memory::PinnedMemory;
use orlop_alloc::{Allocator, Request, Result, Semantics, engine_support::RawBlock, forward};
use orlop_core::StreamId;
use orlop_device::{DeviceAllocator, Policy};

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
    /// Creates an allocator of memory that is pinned for all devices, with [`Policy::orlop_bounded_waste`]:
    /// an eighth more is pinned than the peak of requested bytes, or more in a program that repeats itself,
    /// which then pins and unpins nothing.
    #[must_use]
    pub fn new(device: &CudaDevice) -> Self {
        Self::with_policy(device, Policy::orlop_bounded_waste())
    }

    /// Creates an allocator with another policy. [`Policy::orlop_without_pages`] pins and unpins less often,
    /// which takes the driver milliseconds, and pins more bytes in vain.
    #[must_use]
    pub fn with_policy(device: &CudaDevice, mut policy: Policy) -> Self {
        policy.name = "cuda-pinned";
        Self { engine: DeviceAllocator::new(PinnedMemory::new(device), policy) }
    }

    /// Returns the bytes that are pinned, and for what.
    ///
    /// ```no_run
    /// use orlop_alloc::{Allocator, Request};
    /// use orlop_cuda::{CudaDevice, PinnedAllocator};
    ///
    /// let allocator = PinnedAllocator::new(&CudaDevice::new(0)?).into_ref();
    /// let block = allocator.allocate(&Request::new(3 << 20))?;
    /// let ledger = allocator.ledger();
    /// assert_eq!((ledger.requested, ledger.rounded), (3 << 20, 3 << 20));
    /// println!("{} bytes are pinned, {:?} of those requested", ledger.reserved, ledger.ratio());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn ledger(&self) -> PinnedLedger {
        let stats = self.engine.device_stats();
        PinnedLedger {
            requested: stats.requested_bytes.all.current,
            rounded: stats.active_bytes.all.current,
            reserved: stats.reserved_bytes.all.current,
            peak_requested: stats.requested_bytes.all.peak,
            peak_reserved: stats.reserved_bytes.all.peak,
        }
    }
}

/// The bytes of a [`PinnedAllocator`]. What is pinned in vain is `rounded - requested` by rounding, and
/// `reserved - rounded` as free memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PinnedLedger {
    /// Bytes as requested, in live blocks and in freed ones that a stream may still use.
    pub requested: u64,
    /// The same after rounding.
    pub rounded: u64,
    /// Bytes that are pinned.
    pub reserved: u64,
    /// The peak of `requested` since the last reset of the peaks.
    pub peak_requested: u64,
    /// The peak of `reserved` since then.
    pub peak_reserved: u64,
}

impl PinnedLedger {
    /// Returns the pinned bytes over the requested ones. `None` while nothing is requested.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        ratio(self.reserved, self.requested)
    }

    /// Returns the peak of the pinned bytes over the peak of the requested ones. `None` if nothing was.
    #[must_use]
    pub fn peak_ratio(&self) -> Option<f64> {
        ratio(self.peak_reserved, self.peak_requested)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio to read")]
fn ratio(bytes: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| bytes as f64 / of as f64)
}

// SAFETY: blocks are the engine's, with the stream of the request in their records while they are live.
unsafe impl Allocator for PinnedAllocator {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        if !device::is_known(request.stream) {
            return Err(CudaError::UnknownStream { stream: request.stream }.into());
        }
        // The host accesses every block first. If chunks belonged to streams, the host would wait for them.
        let mut block = self.engine.allocate(&request.stream(StreamId::HOST))?;
        // SAFETY: 1. the stream is no part of the memory's description; 2. `deallocate` restores it.
        unsafe { block.record_mut() }.stream = request.stream;
        Ok(block)
    }

    unsafe fn deallocate(&self, mut block: RawBlock) -> Result<()> {
        // The stream of the request is one more user.
        if block.stream != StreamId::HOST {
            // SAFETY: only the streams that used it change.
            let record = unsafe { block.record_mut() };
            record.add_stream_use(record.stream);
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
