//! Calls of the engine that its allocator passes on, with both locks taken; regions that changed are reported.

use super::DeviceAllocator;
use crate::backing::DeviceBacking;
use crate::engine::{PoolId, StreamFilter};
use crate::error::DeviceError;
use orlop_core::StreamId;

impl<B: DeviceBacking> DeviceAllocator<B> {
    /// [`Engine::retire_stream`]. Blocks on which the stream is recorded
    /// ([`Block::record_stream`](orlop_alloc::Block::record_stream)) may be freed before or after: the default
    /// stream waits for the stream, and its later work stands for those uses.
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn retire_stream(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.change(|engine| engine.retire_user(self.device_stream(stream)))
    }

    /// [`Engine::empty_cache`].
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn empty_cache(&self) -> Result<(), DeviceError> {
        self.change(|engine| engine.empty_cache())
    }

    /// [`Engine::empty_pool`].
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn empty_pool(&self, id: PoolId) -> Result<(), DeviceError> {
        self.change(|engine| engine.empty_pool(id))
    }

    /// [`Engine::set_memory_fraction`].
    pub fn set_memory_fraction(&self, fraction: f64) {
        self.change(|engine| engine.set_memory_fraction(fraction));
    }

    /// [`Engine::begin_allocate_to_pool`].
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn begin_allocate_to_pool(&self, id: PoolId, streams: StreamFilter) -> Result<(), DeviceError> {
        self.change(|engine| engine.begin_allocate_to_pool(id, streams))
    }

    /// [`Engine::end_allocate_to_pool`].
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn end_allocate_to_pool(&self, id: PoolId) -> Result<(), DeviceError> {
        self.change(|engine| engine.end_allocate_to_pool(id))
    }

    /// [`Engine::mark_capture_begin`].
    pub fn mark_capture_begin(&self) {
        self.change(|engine| engine.mark_capture_begin());
    }

    /// [`Engine::mark_capture_end`].
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn mark_capture_end(&self) -> Result<(), DeviceError> {
        self.change(|engine| engine.mark_capture_end())
    }

    /// [`Engine::adopt_foreign_stream`].
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn adopt_foreign_stream(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.change(|engine| engine.adopt_foreign_stream(self.device_stream(stream)))
    }

    /// [`Engine::release_pool`].
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn release_pool(&self, id: PoolId) -> Result<(), DeviceError> {
        self.change(|engine| engine.release_pool(id))
    }

    /// [`Engine::use_pool_on_oom`].
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn use_pool_on_oom(&self, id: PoolId, allowed: bool) -> Result<(), DeviceError> {
        self.change(|engine| engine.use_pool_on_oom(id, allowed))
    }
}
