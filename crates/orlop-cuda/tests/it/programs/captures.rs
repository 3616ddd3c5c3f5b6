//! [`Captures`]: what a caching allocator can do besides allocating: graphs with pools, foreign streams.

use cudarc::driver::CudaGraph;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode, cuThreadExchangeStreamCaptureMode};
use orlop_alloc::{AllocatorRef, Block};
use orlop_core::StreamId;
use orlop_cuda::DeviceStream;
use orlop_device::{DeviceAllocator, DeviceBacking, DeviceError, PoolId, StreamFilter};
use std::sync::atomic::{AtomicU64, Ordering};

const MODES: [CUstreamCaptureMode; 3] = [
    CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
    CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
];

/// A graph, its pool, and the blocks that it uses.
pub(super) struct OwnGraph {
    graph: CudaGraph,
    pool: PoolId,
    kept: Vec<Block>,
}

impl OwnGraph {
    pub(super) fn launch(&self) {
        self.graph.launch().unwrap();
    }
}

pub(super) trait Captures: Sync {
    /// Begins a capture in a stream, whose requests go to a new pool.
    fn begin(&self, pools: &AtomicU64, stream: &DeviceStream, mode: usize) -> PoolId;

    /// Ends a capture.
    fn end(&self, pool: PoolId, stream: &DeviceStream, kept: Vec<Block>) -> OwnGraph;

    /// Drops a graph, the blocks that it uses, and its pool.
    fn release(&self, graph: OwnGraph);

    fn adopt_foreign(&self, stream: StreamId) -> Result<(), DeviceError>;

    fn retire(&self, stream: StreamId) -> Result<(), DeviceError>;
}

/// Calls `act` in a mode in which the captures of other threads forbid nothing.
fn relaxed<R>(act: impl FnOnce() -> R) -> R {
    let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: it exchanges one value.
    unsafe { cuThreadExchangeStreamCaptureMode(&raw mut mode) }.result().unwrap();
    let result = act();
    // SAFETY: as above.
    unsafe { cuThreadExchangeStreamCaptureMode(&raw mut mode) }.result().unwrap();
    result
}

impl<B: DeviceBacking> Captures for AllocatorRef<DeviceAllocator<B>> {
    fn begin(&self, pools: &AtomicU64, stream: &DeviceStream, mode: usize) -> PoolId {
        let pool = (1, pools.fetch_add(1, Ordering::Relaxed));
        self.begin_allocate_to_pool(pool, StreamFilter::only([stream.id()])).unwrap();
        self.mark_capture_begin();
        stream.cudarc().begin_capture(MODES[mode]).unwrap();
        pool
    }

    fn end(&self, pool: PoolId, stream: &DeviceStream, kept: Vec<Block>) -> OwnGraph {
        let end = || stream.cudarc().end_capture(CUgraphInstantiate_flags(0));
        // Other threads may capture in the global mode, and this makes an executable graph.
        let graph = relaxed(end).unwrap().expect("a graph");
        self.mark_capture_end().unwrap();
        self.end_allocate_to_pool(pool).unwrap();
        OwnGraph { graph, pool, kept }
    }

    fn release(&self, OwnGraph { graph, pool, kept }: OwnGraph) {
        drop(graph);
        drop(kept);
        self.release_pool(pool).unwrap();
    }

    fn adopt_foreign(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.adopt_foreign_stream(stream)
    }

    fn retire(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.retire_stream(stream)
    }
}
