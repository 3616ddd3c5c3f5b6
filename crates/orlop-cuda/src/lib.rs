//! CUDA for orlop.

mod allocators;
mod device;
mod driver;
mod error;
mod memory;
mod ops;

pub use self::allocators::{DriverAllocator, PinnedAllocator, caching_allocator, caching_allocator_with};
pub use self::device::{CudaDevice, DeviceStream};
pub use self::driver::Driver;
pub use self::error::CudaError;
pub use self::memory::{CudaMemory, PinnedMemory};
pub use self::ops::CudaOps;
