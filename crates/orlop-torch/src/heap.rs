//! [`DeviceHeap`]: the allocator of a device, as PyTorch uses it.

use crate::blocks::BlockTable;
use crate::budgets::Budgets;
use crate::cpp::StdFunction;
use crate::error::TorchError;
use crate::pool_routes::PoolRoutes;
use crate::segments::Segments;
use crate::settings::AllocatorSettings;
use crate::stream_ids::StreamIds;
use orlop_alloc::{Allocator as _, AllocatorRef, Request};
use orlop_core::StreamId;
use orlop_cuda::{CudaDevice, CudaMemory};
use orlop_device::{DeviceAllocator, PoolId};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(crate) struct DeviceHeap {
    pub(crate) device: CudaDevice,
    pub(crate) allocator: AllocatorRef<DeviceAllocator<CudaMemory>>,
    blocks: BlockTable,
    pub(crate) budgets: Budgets,
    streams: StreamIds,
    pub(crate) segments: Segments,
    routes: Mutex<PoolRoutes>,
    has_routes: AtomicBool,
}

/// The routes to private pools, locked for one request, and the one that takes it.
pub(crate) struct RequestRoute<'a> {
    routes: MutexGuard<'a, PoolRoutes>,
    target: Option<usize>,
}

impl DeviceHeap {
    /// Opens a device: its primary context, which PyTorch uses.
    pub(crate) fn open(ordinal: u16) -> Result<Self, TorchError> {
        let device = CudaDevice::new(ordinal)?;
        let allocator = AllocatorSettings::fixed().build(&device)?.into_ref();
        Ok(Self {
            device,
            allocator,
            blocks: BlockTable::default(),
            budgets: Budgets::default(),
            streams: StreamIds::default(),
            segments: Segments::default(),
            routes: Mutex::default(),
            has_routes: AtomicBool::new(false),
        })
    }

    /// Returns the route of a request for a stream, if there are private pools in use. PyTorch's functions,
    /// which are called for it, can throw.
    pub(crate) fn route(&self, stream: *mut c_void) -> Option<RequestRoute<'_>> {
        // Acquire: partner of the stores in `begin_pool` and `end_pool`.
        if !self.has_routes.load(Ordering::Acquire) {
            return None;
        }
        let routes = self.routes();
        let target = routes.target(stream);
        Some(RequestRoute { routes, target })
    }

    /// Allocates a block, and returns its address.
    ///
    /// # Safety
    ///
    /// That of [`StreamIds::id`].
    pub(crate) unsafe fn allocate(
        &self,
        bytes: usize,
        stream: *mut c_void,
        route: Option<RequestRoute<'_>>,
    ) -> Result<usize, TorchError> {
        // SAFETY: guaranteed by the caller.
        let stream = unsafe { self.stream(stream) }?;
        let _admitted = self.budgets.admit(bytes, || self.live_bytes())?;
        let request = Request::new(bytes).stream(stream);
        let block = match route {
            None => self.allocator.allocate(&request)?,
            Some(mut route) => {
                route.routes.direct(&self.allocator, stream, route.target)?;
                self.allocator.allocate(&request)?
            }
        };
        Ok(self.blocks.insert(block))
    }

    /// Returns the bytes in live blocks.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.allocator.stats().live()
    }

    /// Frees the block at an address.
    pub(crate) fn free(&self, address: usize) -> Result<(), TorchError> {
        self.blocks.remove(address).map(drop).ok_or(TorchError::UnknownBlock(address))
    }

    /// Records that a stream uses a block. Returns `false` if there is none at this address.
    ///
    /// # Safety
    ///
    /// That of [`StreamIds::id`], if there is one.
    pub(crate) unsafe fn record_stream(
        &self,
        address: usize,
        stream: *mut c_void,
    ) -> Result<bool, TorchError> {
        if self.block_bytes(address).is_none() {
            return Ok(false);
        }
        // SAFETY: guaranteed by the caller.
        let stream = unsafe { self.stream(stream) }?;
        let recorded = self.blocks.with(address, |block| block.record_stream(stream)).transpose()?;
        Ok(recorded.is_some())
    }

    /// Returns the bytes of the live block at an address.
    pub(crate) fn block_bytes(&self, address: usize) -> Option<usize> {
        self.blocks.with(address, |block| block.capacity())
    }

    /// Begins to send requests to a private pool.
    pub(crate) fn begin_pool(&self, pool: PoolId, takes: StdFunction) -> Result<(), TorchError> {
        let mut routes = self.routes();
        routes.begin(&self.device, &self.allocator, pool, takes)?;
        // Release: partner of the load in `route`.
        self.has_routes.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends to send requests to a private pool.
    pub(crate) fn end_pool(&self, pool: PoolId) -> Result<(), TorchError> {
        let mut routes = self.routes();
        let ended = routes.end(&self.allocator, pool);
        // Release: as in `begin_pool`.
        self.has_routes.store(!routes.is_empty(), Ordering::Release);
        Ok(ended?)
    }

    /// Releases cached memory to the device, and returns its bytes.
    pub(crate) fn trim(&self) -> u64 {
        let reserved = || self.allocator.usage().reserved;
        let before = reserved();
        self.segments.flush(&self.device);
        // It waits for streams that use freed blocks. What fails is counted by the engine.
        let _counted = self.allocator.empty_cache();
        self.allocator.trim(0);
        before.saturating_sub(reserved())
    }

    /// Forgets a stream, so that it can be destroyed.
    pub(crate) fn retire_stream(&self, stream: *mut c_void) -> Result<(), TorchError> {
        Ok(self.streams.retire(stream)?)
    }

    /// Allocates a segment for PyTorch's own allocator, and returns its address. Its stream is known from
    /// then on: while that captures, nothing waits for the device.
    ///
    /// # Safety
    ///
    /// That of [`StreamIds::id`].
    pub(crate) unsafe fn allocate_segment(
        &self,
        bytes: usize,
        stream: *mut c_void,
    ) -> Result<usize, TorchError> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.stream(stream) }?;
        self.segments.allocate(&self.device, &self.allocator, bytes)
    }

    /// # Safety
    ///
    /// That of [`StreamIds::id`].
    unsafe fn stream(&self, stream: *mut c_void) -> Result<StreamId, TorchError> {
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { self.streams.id(&self.device, stream) }?)
    }

    fn routes(&self) -> MutexGuard<'_, PoolRoutes> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
