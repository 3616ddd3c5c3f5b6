//! orlop's memory in cudarc's launches, and other code's device memory as blocks.
//!
//! | module | what it holds |
//! |---|---|
//! | `buffer` | owned elements in device memory |
//! | `slices` | blocks as cudarc's device memory |
//! | `foreign` | device memory of other code as blocks |
//! | `processes/` | blocks that processes share |
//! | `users` | the streams that buffers are used on |
//! | `value` | plain data as an argument of a kernel |

mod buffer;
mod foreign;
mod processes;
mod slices;
mod users;
mod value;

pub use self::buffer::{DeviceBuffer, SharedBuffer};
#[cfg(target_os = "linux")]
pub use self::processes::ExportedPages;
pub use self::slices::{BlockSlice, BlockView};
pub use self::value::KernelValue;

use crate::device::DeviceStream;
use crate::error::CudaError;
use cudarc::driver::{DeviceRepr, sys};
use orlop_alloc::{Block, MemoryBlock, Result};
use orlop_core::{Device, StreamId};
use std::marker::PhantomData;

/// The address of device memory as an argument of a kernel: `launch_builder(&kernel).arg(&address)`.
///
/// [`KernelPointer::of`] makes the stream of the launch wait for the work that other streams were given on
/// the block so far, and records it on the block: dropping the block waits for nothing, and its memory is
/// reused after the kernel. What other streams are given after the call is not waited for: take a new
/// pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct KernelPointer<T> {
    address: sys::CUdeviceptr,
    of: PhantomData<*mut T>,
}

// SAFETY: it is an address, which the driver passes by value.
unsafe impl<T> DeviceRepr for KernelPointer<T> {}

/// A block that kernels can use.
trait KernelMemory {
    fn place(&self) -> (Device, usize, usize);
    fn own_stream(&self) -> StreamId;
    fn uses(&self) -> impl Iterator<Item = StreamId>;
    fn record(&self, stream: StreamId) -> Result<()>;
}

impl KernelMemory for Block {
    fn place(&self) -> (Device, usize, usize) {
        (self.device(), self.as_ptr().as_ptr().expose_provenance(), self.capacity())
    }

    fn own_stream(&self) -> StreamId {
        self.stream()
    }

    fn uses(&self) -> impl Iterator<Item = StreamId> {
        self.stream_uses()
    }

    fn record(&self, stream: StreamId) -> Result<()> {
        self.record_stream(stream)
    }
}

impl KernelMemory for MemoryBlock {
    fn place(&self) -> (Device, usize, usize) {
        (self.device, self.ptr.as_ptr().expose_provenance(), self.granted)
    }

    fn own_stream(&self) -> StreamId {
        self.stream
    }

    fn uses(&self) -> impl Iterator<Item = StreamId> {
        self.stream_uses()
    }

    fn record(&self, stream: StreamId) -> Result<()> {
        self.record_stream(stream)
    }
}

/// Makes a stream a user of a block: it is waited for when the block is freed, and waits for the work that
/// all other users were given so far. That may write the block, so this is needed at every acquisition.
fn acquire(block: &impl KernelMemory, stream: &DeviceStream) -> Result<usize> {
    let (device, address, _) = block.place();
    if !stream.device().can_access(device) {
        return Err(CudaError::NotOnDevice { device: stream.device().device(), address }.into());
    }
    let own = match block.own_stream() {
        StreamId::HOST => StreamId::default_of(device),
        own => own,
    };
    if own != stream.id() {
        block.record(stream.id())?;
        stream.wait_for(own)?;
    }
    for user in block.uses().filter(|&user| user != stream.id()) {
        stream.wait_for(user)?;
    }
    Ok(address)
}

impl<T> KernelPointer<T> {
    /// Returns the address of a block, for a kernel that will be launched on `stream`.
    ///
    /// # Errors
    ///
    /// [`CudaError::NotOnDevice`] for a block of another device;
    /// [`Error::StreamsNotHonoured`](orlop_alloc::Error::StreamsNotHonoured) for a block whose allocator does
    /// not wait for streams, or that has none; failures of the driver.
    pub fn of(block: &Block, stream: &DeviceStream) -> Result<Self> {
        Ok(Self::at(acquire(block, stream)?))
    }

    /// As [`KernelPointer::of`], `bytes` bytes into a block that several tensors share.
    ///
    /// # Errors
    ///
    /// Those of [`KernelPointer::of`]; [`CudaError::NotOnDevice`] for an offset outside of the block.
    pub fn within(block: &MemoryBlock, bytes: usize, stream: &DeviceStream) -> Result<Self> {
        let (device, address, size) = block.place();
        if bytes > size {
            return Err(CudaError::NotOnDevice { device, address: address.saturating_add(bytes) }.into());
        }
        Ok(Self::at(acquire(block, stream)? + bytes))
    }

    fn at(address: usize) -> Self {
        Self { address: address as sys::CUdeviceptr, of: PhantomData }
    }

    /// Returns the address.
    #[must_use]
    pub fn address(self) -> u64 {
        self.address
    }
}
