//! Calls of the engine that its allocator passes on, with both locks taken. Regions that changed are
//! reported.

use super::DeviceAllocator;
use crate::backing::DeviceBacking;
use crate::engine::{PoolId, StreamFilter};
use crate::error::DeviceError;
use orlop_core::StreamId;

/// Defines methods that pass their arguments on to those of the engine.
macro_rules! pass_on {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {
        $(
            #[doc = concat!("[`Engine::", stringify!($name), "`](crate::Engine::", stringify!($name), ").")]
            ///
            /// # Errors
            ///
            /// Those of the engine.
            pub fn $name(&self, $($argument: $kind),*) -> Result<(), DeviceError> {
                self.change(|engine| engine.$name($($argument),*))
            }
        )*
    };
}

impl<B: DeviceBacking> DeviceAllocator<B> {
    pass_on! {
        empty_cache();
        empty_pool(id: PoolId);
        begin_allocate_to_pool(id: PoolId, streams: StreamFilter);
        end_allocate_to_pool(id: PoolId);
        release_pool(id: PoolId);
        use_pool_on_oom(id: PoolId, allowed: bool);
        mark_capture_end();
    }

    /// [`Engine::mark_capture_begin`](crate::Engine::mark_capture_begin).
    pub fn mark_capture_begin(&self) {
        self.change(|engine| engine.mark_capture_begin());
    }

    /// [`Engine::set_memory_fraction`](crate::Engine::set_memory_fraction).
    pub fn set_memory_fraction(&self, fraction: f64) {
        self.change(|engine| engine.set_memory_fraction(fraction));
    }

    /// [`Engine::set_reserve_class`](crate::Engine::set_reserve_class).
    pub fn set_reserve_class(&self, stream: StreamId, class: &str) {
        self.change(|engine| engine.set_reserve_class(self.device_stream(stream), class));
    }

    /// [`Engine::adopt_foreign_stream`](crate::Engine::adopt_foreign_stream).
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn adopt_foreign_stream(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.change(|engine| engine.adopt_foreign_stream(self.device_stream(stream)))
    }

    /// [`Engine::retire_stream`](crate::Engine::retire_stream). Blocks on which the stream is recorded
    /// ([`Block::record_stream`](orlop_alloc::Block::record_stream)) may be freed before or after it: the
    /// default stream waits for the stream, and stands for it in those uses.
    ///
    /// # Errors
    ///
    /// Those of the engine.
    pub fn retire_stream(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.change_locked(|inner| {
            inner.mark.note_retired();
            inner.engine.retire_user(self.device_stream(stream))
        })
    }
}
