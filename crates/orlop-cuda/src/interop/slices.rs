//! Blocks as cudarc's device memory, for functions that take [`DevicePtr`] or [`DevicePtrMut`]: copies,
//! cuBLAS, launches.
//!
//! A slice is acquired for one stream: that waits for the work that other streams were given on the block so
//! far, and is recorded on the block, so that the memory is reused after its work. On another stream of
//! cudarc the slice orders both ways by itself, since nothing else knows that this one uses the block. If it
//! cannot, or one of the two captures, it gives the null address, and the call that gets it fails.
//!
//! cudarc copies between two contexts (`memcpy_dtod` by a stream of the destination) with the source's
//! address for the source's own stream. So the stream of such a copy is not known here: while it runs, the
//! caller keeps the block, and makes its stream wait for the other one before the block is written or
//! dropped ([`DeviceStream::wait_for`](crate::DeviceStream::wait_for)), or records the other one
//! ([`Block::record_stream`]).

use super::{KernelMemory, acquire};
use crate::device::DeviceStream;
use crate::error::CudaError;
use bytemuck::AnyBitPattern;
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, SyncOnDrop, sys};
use orlop_alloc::engine_support::trace_guarded;
use orlop_alloc::{Block, MemoryBlock, Result};
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// The address of no memory, which the driver refuses.
pub(super) const NO_ADDRESS: sys::CUdeviceptr = 0;

/// Elements in device memory, acquired for a stream.
#[derive(Debug, Clone)]
struct Elements<T> {
    address: sys::CUdeviceptr,
    len: usize,
    /// Keeps the stream's id while the slice can be used: a block waits for work by ids.
    stream: DeviceStream,
    of: PhantomData<T>,
}

impl<T> Elements<T> {
    fn of(block: &impl KernelMemory, bytes: usize, stream: &DeviceStream) -> Result<Self> {
        let address = acquire(block, stream)? as sys::CUdeviceptr;
        let len = bytes.checked_div(size_of::<T>()).unwrap_or(0);
        Ok(Self { address, len, stream: stream.clone(), of: PhantomData })
    }

    fn part(&self, range: Range<usize>) -> Option<Self> {
        let len = range.end.checked_sub(range.start).filter(|_| range.end <= self.len)?;
        let address = self.address + (range.start * size_of::<T>()) as sys::CUdeviceptr;
        Some(Self { address, len, stream: self.stream.clone(), of: PhantomData })
    }

    fn ordered<'s>(&self, stream: &'s CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'s>) {
        if self.stream.is(stream) {
            return (self.address, SyncOnDrop::Record(None));
        }
        match join(&self.stream, stream) {
            Ok(()) => (self.address, SyncOnDrop::Sync(Some(stream))),
            // This function cannot fail: the call that uses the address does.
            Err(error) => {
                trace_guarded(
                    || tracing::error!(%error, "a slice has no address on a stream that cannot wait"),
                );
                (NO_ADDRESS, SyncOnDrop::Sync(None))
            }
        }
    }
}

/// Makes another stream wait for a known one, on the device or, if that fails, on the host.
pub(super) fn join(own: &DeviceStream, other: &CudaStream) -> std::result::Result<(), CudaError> {
    let scope = own.device().enter()?;
    // The host waits for the work afterwards, which no capture allows.
    scope.refuse_capturing(own.handle(), "cuEventRecord")?;
    scope.refuse_capturing(other.cu_stream().cast(), "cuStreamWaitEvent")?;
    if other.join(own.cudarc()).is_err() {
        own.synchronize()?;
    }
    Ok(())
}

/// A block as memory that cudarc's functions write and read.
///
/// Elements are plain data of which every bit pattern is a value, because the device may have written any.
#[derive(Debug)]
pub struct BlockSlice<'a, T> {
    elements: Elements<T>,
    block: PhantomData<&'a mut Block>,
}

impl<'a, T: AnyBitPattern> BlockSlice<'a, T> {
    /// Returns all whole elements of a block, used on `stream`.
    ///
    /// # Errors
    ///
    /// Those of [`KernelPointer::of`](super::KernelPointer::of).
    pub fn of(block: &'a mut Block, stream: &DeviceStream) -> Result<Self> {
        Ok(Self { elements: Elements::of(block, block.len(), stream)?, block: PhantomData })
    }

    /// Returns a range of the elements, to read. `None` if it is not inside.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Option<BlockView<'_, T>> {
        Some(BlockView { elements: self.elements.part(range)?, block: PhantomData })
    }

    /// Returns a range of the elements, for as long as the block is borrowed. `None` if it is not inside.
    #[must_use]
    pub fn into_slice(self, range: Range<usize>) -> Option<Self> {
        Some(Self { elements: self.elements.part(range)?, block: PhantomData })
    }

    /// Returns a range of the elements. `None` if it is not inside.
    #[must_use]
    pub fn slice_mut(&mut self, range: Range<usize>) -> Option<BlockSlice<'_, T>> {
        Some(BlockSlice { elements: self.elements.part(range)?, block: PhantomData })
    }
}

impl<T> DeviceSlice<T> for BlockSlice<'_, T> {
    fn len(&self) -> usize {
        self.elements.len
    }

    fn stream(&self) -> &Arc<CudaStream> {
        self.elements.stream.cudarc()
    }
}

impl<T> DevicePtr<T> for BlockSlice<'_, T> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        self.elements.ordered(stream)
    }
}

impl<T> DevicePtrMut<T> for BlockSlice<'_, T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        self.elements.ordered(stream)
    }
}

/// A block, or elements of one that tensors share, as memory that cudarc's functions read: several inputs of
/// one call may be views of the same block.
#[derive(Debug, Clone)]
pub struct BlockView<'a, T> {
    elements: Elements<T>,
    block: PhantomData<&'a Block>,
}

impl<'a, T: AnyBitPattern> BlockView<'a, T> {
    /// Returns all whole elements of a block, read on `stream`.
    ///
    /// # Errors
    ///
    /// Those of [`KernelPointer::of`](super::KernelPointer::of).
    pub fn of(block: &'a Block, stream: &DeviceStream) -> Result<Self> {
        Ok(Self { elements: Elements::of(block, block.len(), stream)?, block: PhantomData })
    }

    /// Returns a range of the elements of a shared block, counted from its start, read on `stream`. The view
    /// does not keep others from writing the block on their streams meanwhile.
    ///
    /// # Errors
    ///
    /// Those of [`KernelPointer::of`](super::KernelPointer::of); [`CudaError::NotOnDevice`] for a range
    /// outside of the block.
    pub fn within(block: &'a MemoryBlock, range: Range<usize>, stream: &DeviceStream) -> Result<Self> {
        let elements = Elements::of(block, block.requested, stream)?;
        let (device, address, _) = block.place();
        let outside = address.saturating_add(range.end.saturating_mul(size_of::<T>()));
        let part = elements.part(range).ok_or(CudaError::NotOnDevice { device, address: outside })?;
        Ok(Self { elements: part, block: PhantomData })
    }

    /// Returns a range of the elements. `None` if it is not inside.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Option<BlockView<'a, T>> {
        Some(BlockView { elements: self.elements.part(range)?, block: PhantomData })
    }
}

impl<T> DeviceSlice<T> for BlockView<'_, T> {
    fn len(&self) -> usize {
        self.elements.len
    }

    fn stream(&self) -> &Arc<CudaStream> {
        self.elements.stream.cudarc()
    }
}

impl<T> DevicePtr<T> for BlockView<'_, T> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        self.elements.ordered(stream)
    }
}
