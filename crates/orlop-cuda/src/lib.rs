//! CUDA for orlop.

mod allocators;
mod device;
mod driver;
mod error;
mod interop;
mod memory;
mod ops;
mod register;

pub use self::allocators::{DriverAllocator, PinnedAllocator, caching_allocator, caching_allocator_with};
pub use self::device::{CudaDevice, DeviceStream};
pub use self::driver::Driver;
pub use self::error::CudaError;
pub use self::interop::{BlockSlice, KernelPointer};
pub use self::memory::{CudaMemory, PinnedMemory};
pub use self::ops::CudaOps;
pub use self::register::{install, register};
