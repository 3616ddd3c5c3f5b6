//! CUDA for orlop: allocators for device memory and pinned memory, streams, copies.
//!
//! It builds everywhere: the driver is loaded when the first device is opened. No driver, no device and a
//! driver that is too old are errors by type.
//!
//! ```
//! use orlop_alloc::{Allocator, Request};
//! use orlop_cuda::{CudaDevice, CudaError, caching_allocator};
//!
//! let device = match CudaDevice::new(0) {
//!     Err(CudaError::DriverNotFound | CudaError::NoDevice) => return Ok(()),
//!     device => device?,
//! };
//! let allocator = caching_allocator(&device)?.into_ref();
//! let stream = device.create_stream()?;
//! let block = allocator.allocate(&Request::new(1 << 20).stream(stream.id()))?;
//! assert_eq!(block.device(), device.device());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `driver` | the loaded driver; its functions, resolved at once |
//! | `device` | devices, their contexts, events and streams |
//! | `memory` | sources of memory for the device engine |
//! | `allocators` | caching, stream-ordered, direct and pinned allocators |
//! | `ops` | copies, casts and fills, on streams |
//! | `interop` | cudarc's launches and slices |
//! | `register` | allocators by name, and a device in a context |
#![cfg_attr(not(test), deny(clippy::expect_used))]

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod allocators;
mod device;
mod driver;
mod error;
mod interop;
mod memory;
mod ops;
mod register;

pub use self::allocators::{
    CurrentPool, DriverAllocator, LinkedAllocator, MemoryPool, MemoryUse, PinnedAllocator, PinnedLedger,
    PoolUsage, caching_allocator, caching_allocator_with, configured_allocator,
};
pub use self::device::{CaptureScope, CudaDevice, DeviceStream, ProcessEvent, StreamClock};
pub use self::driver::Driver;
pub use self::error::CudaError;
#[cfg(target_os = "linux")]
pub use self::interop::ExportedPages;
pub use self::interop::{BlockSlice, BlockView, DeviceBuffer, KernelPointer, KernelValue, SharedBuffer};
pub use self::memory::{CudaMemory, PageHandleType, PageOptions, PinnedMemory};
pub use self::ops::{CudaOps, StagingUsage};
pub use self::register::{install, register};
