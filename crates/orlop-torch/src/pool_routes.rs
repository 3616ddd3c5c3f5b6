//! [`PoolRoutes`]: which requests go to private pools.
//!
//! PyTorch gives a function for each private pool that is in use, and calls it for each request. The answer
//! depends on what the stream does and on the thread. The engine has lists of streams. So the functions are
//! called before each request, newest first, and the lists are changed where the answer is another one.

use crate::cpp::StdFunction;
use orlop_core::StreamId;
use orlop_cuda::{CaptureScope, CudaDevice, CudaMemory};
use orlop_device::{DeviceAllocator, DeviceError, PoolId, StreamFilter};
use std::collections::BTreeSet;
use std::ffi::c_void;

#[derive(Debug, Default)]
pub(crate) struct PoolRoutes {
    routes: Vec<PoolRoute>,
}

#[derive(Debug)]
struct PoolRoute {
    pool: PoolId,
    takes: StdFunction,
    /// The streams of the engine's list.
    streams: BTreeSet<StreamId>,
    /// A private pool is used while a stream captures.
    _capture: CaptureScope,
}

type Engine = DeviceAllocator<CudaMemory>;

impl PoolRoutes {
    pub(crate) fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Begins to send requests to a pool, which has one user more.
    pub(crate) fn begin(
        &mut self,
        device: &CudaDevice,
        engine: &Engine,
        pool: PoolId,
        takes: StdFunction,
    ) -> Result<(), DeviceError> {
        let scope = device.capture_scope();
        engine.begin_allocate_to_pool(pool, StreamFilter::only([]))?;
        self.routes.push(PoolRoute { pool, takes, streams: BTreeSet::new(), _capture: scope });
        Ok(())
    }

    /// Ends to send requests to a pool.
    pub(crate) fn end(&mut self, engine: &Engine, pool: PoolId) -> Result<(), DeviceError> {
        let place = self.routes.iter().rposition(|route| route.pool == pool);
        let route = self.routes.remove(place.ok_or(DeviceError::NoPool { id: pool })?);
        let ended = engine.end_allocate_to_pool(pool);
        drop(route);
        ended
    }

    /// Returns the place of the route that takes a request of this thread for a stream. PyTorch's functions
    /// can throw, through this one.
    pub(crate) fn target(&self, stream: *mut c_void) -> Option<usize> {
        self.routes.iter().rposition(|route| route.takes.call(stream))
    }

    /// Directs the next request for a stream to the pool of this route.
    pub(crate) fn direct(
        &mut self,
        engine: &Engine,
        stream: StreamId,
        target: Option<usize>,
    ) -> Result<(), DeviceError> {
        for (place, route) in self.routes.iter_mut().enumerate() {
            let is_target = target == Some(place);
            let changed =
                if is_target { route.streams.insert(stream) } else { route.streams.remove(&stream) };
            if changed {
                engine.end_allocate_to_pool(route.pool)?;
                engine
                    .begin_allocate_to_pool(route.pool, StreamFilter::only(route.streams.iter().copied()))?;
                // To begin again counts a user again.
                engine.release_pool(route.pool)?;
            }
        }
        Ok(())
    }
}
