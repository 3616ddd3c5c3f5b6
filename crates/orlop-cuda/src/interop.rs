//! orlop's memory in cudarc's launches, and other code's device memory as blocks.

use crate::device::{CudaDevice, DeviceStream};
use crate::driver::{abi, call};
use crate::error::CudaError;
use cudarc::driver::{
    CudaSlice, CudaStream, DevicePtr, DevicePtrMut, DeviceRepr, DeviceSlice, SyncOnDrop, sys,
};
use orlop_alloc::{Access, Block, Deleter, Error, MemoryBlock, Request, Result, engine_support::Record};
use orlop_core::{Device, StreamId};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// The address of device memory as an argument of a kernel: `launch_builder(&kernel).arg(&address)`.
///
/// [`KernelPointer::of`] records the stream of the launch on the block, so that dropping the block waits for
/// nothing, and its memory is reused after the kernel.
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
    fn acquire(&self, stream: &DeviceStream) -> Result<bool>;
}

impl KernelMemory for Block {
    fn place(&self) -> (Device, usize, usize) {
        (self.device(), self.as_ptr().as_ptr().expose_provenance(), self.capacity())
    }

    fn own_stream(&self) -> StreamId {
        self.stream()
    }

    fn acquire(&self, stream: &DeviceStream) -> Result<bool> {
        // SAFETY: the driver orders the streams, or returns an error.
        unsafe { self.acquire_with(stream.id(), |own| Ok(stream.wait_for(own)?)) }
    }
}

impl KernelMemory for MemoryBlock {
    fn place(&self) -> (Device, usize, usize) {
        (self.device, self.ptr.as_ptr().expose_provenance(), self.granted)
    }

    fn own_stream(&self) -> StreamId {
        self.stream
    }

    fn acquire(&self, stream: &DeviceStream) -> Result<bool> {
        // SAFETY: the driver orders the streams, or returns an error.
        unsafe { self.acquire_with(stream.id(), |own| Ok(stream.wait_for(own)?)) }
    }
}

/// Makes a stream a user of a block: ordered after the block's own stream, and waited for when it is freed.
fn acquire(block: &impl KernelMemory, stream: &DeviceStream) -> Result<usize> {
    let (device, address, _) = block.place();
    if device != stream.device().device() {
        return Err(CudaError::NotOnDevice { device: stream.device().device(), address }.into());
    }
    let own = match block.own_stream() {
        StreamId::HOST => StreamId::default_of(device),
        own => own,
    };
    if own != stream.id() && !block.acquire(stream)? {
        return Err(Error::StreamsNotHonoured { device, stream: stream.id() });
    }
    Ok(address)
}

impl<T> KernelPointer<T> {
    /// Returns the address of a block, for a kernel that will be launched on `stream`.
    ///
    /// # Errors
    ///
    /// [`CudaError::NotOnDevice`] for a block of another device; [`Error::StreamsNotHonoured`] for a block
    /// whose allocator does not wait for streams, or that has none; failures of the driver.
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

/// A block as cudarc's device memory, for functions that take [`DevicePtr`] or [`DevicePtrMut`]: copies,
/// cuBLAS, launches.
#[derive(Debug)]
pub struct BlockSlice<'a, T> {
    block: PhantomData<&'a mut Block>,
    address: sys::CUdeviceptr,
    len: usize,
    stream: Arc<CudaStream>,
    of: PhantomData<T>,
}

impl<'a, T> BlockSlice<'a, T> {
    /// Returns all whole elements of a block, used on `stream`.
    ///
    /// # Errors
    ///
    /// Those of [`KernelPointer::of`].
    pub fn of(block: &'a mut Block, stream: &DeviceStream) -> Result<Self> {
        let address = acquire(block, stream)? as sys::CUdeviceptr;
        let len = block.len().checked_div(size_of::<T>()).unwrap_or(0);
        let stream = Arc::clone(stream.cudarc());
        Ok(Self { block: PhantomData, address, len, stream, of: PhantomData })
    }

    /// Orders another stream after this one, and this one after it: nothing else knows that it uses the
    /// block.
    fn ordered<'s>(&self, stream: &'s CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'s>) {
        if stream.cu_stream() == self.stream.cu_stream() {
            return (self.address, SyncOnDrop::Record(None));
        }
        let context = self.stream.context();
        context.record_err(stream.join(&self.stream));
        (self.address, SyncOnDrop::Sync(Some(stream)))
    }
}

impl<T> DeviceSlice<T> for BlockSlice<'_, T> {
    fn len(&self) -> usize {
        self.len
    }

    fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }
}

impl<T> DevicePtr<T> for BlockSlice<'_, T> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        self.ordered(stream)
    }
}

impl<T> DevicePtrMut<T> for BlockSlice<'_, T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        self.ordered(stream)
    }
}

impl CudaDevice {
    /// Makes a block of cudarc's memory. Dropping the block drops the slice, which frees its memory in the
    /// order of its stream; work of other streams has to be finished then.
    ///
    /// # Errors
    ///
    /// [`CudaError::OtherContext`] if it is memory of another context.
    pub fn block_of_slice<T: Send + 'static>(&self, slice: CudaSlice<T>) -> Result<Block> {
        let stream = Arc::clone(slice.stream());
        if stream.context().cu_ctx() != self.context().cu_ctx() {
            return Err(CudaError::OtherContext { device: self.device() }.into());
        }
        let bytes = slice.num_bytes();
        let (address, used) = slice.device_ptr(&stream);
        drop(used);
        // SAFETY: the slice's memory, until the deleter drops it.
        unsafe { self.foreign_block(address, bytes, Deleter::from_owner(slice)) }
    }

    /// Makes a block of device memory of other code. `deleter` runs when the block is dropped, or if this
    /// fails.
    ///
    /// # Errors
    ///
    /// [`CudaError::NotOnDevice`] if the driver does not know the address as memory of this device; failures
    /// of the driver.
    ///
    /// # Safety
    ///
    /// 1. `bytes` bytes from `address` on are valid until `deleter` runs;
    /// 2. until then no other code writes there, or reads there while this block is written, unless it is
    ///    ordered by streams.
    pub unsafe fn foreign_block(&self, address: u64, bytes: usize, deleter: Deleter) -> Result<Block> {
        let wrong = |address| Error::from(CudaError::NotOnDevice { device: self.device(), address });
        let start = usize::try_from(address).map_err(|_| wrong(usize::MAX))?;
        if bytes > 0 && !self.is_own(address)? {
            return Err(wrong(start));
        }
        let ptr = NonNull::new(ptr::with_exposed_provenance_mut::<u8>(start)).unwrap_or(NonNull::dangling());
        let mut record = Record::new(ptr, bytes, self.device(), Access::Device);
        record.assign(&Request::new(bytes).stream(self.default_stream()));
        // SAFETY: guaranteed by the caller.
        Ok(unsafe { Block::foreign(record, deleter) })
    }

    /// Returns `true` if the driver knows an address as memory of this device.
    fn is_own(&self, address: u64) -> Result<bool, CudaError> {
        let (mut kind, mut ordinal) = (0_i32, -1_i32);
        let scope = self.state().enter()?;
        for (attribute, value) in
            [(abi::POINTER_MEMORY_TYPE, &mut kind), (abi::POINTER_DEVICE_ORDINAL, &mut ordinal)]
        {
            let value = ptr::from_mut(value).cast();
            // SAFETY: it writes one number of four bytes. An address that the driver does not know is an
            // error.
            let known = unsafe { call!(scope.driver(), cuPointerGetAttribute(value, attribute, address)) };
            match known.map_err(CudaError::from) {
                Err(CudaError::Failed(_)) => return Ok(false),
                known => known?,
            }
        }
        Ok(kind == abi::MEMORY_TYPE_DEVICE && ordinal == self.state().number())
    }

    /// Opens memory that another process exported.
    ///
    /// # Errors
    ///
    /// [`CudaError::Unsupported`], always: memory of other processes is not supported yet.
    pub fn import_memory(&self, handle: &[u8]) -> Result<Block, CudaError> {
        let _ = handle;
        Err(CudaError::Unsupported { device: self.device(), what: "memory of other processes" })
    }

    /// Exports a block for other processes.
    ///
    /// # Errors
    ///
    /// [`CudaError::Unsupported`], always: memory of other processes is not supported yet.
    pub fn export_memory(&self, block: &Block) -> Result<Vec<u8>, CudaError> {
        let _ = block;
        Err(CudaError::Unsupported { device: self.device(), what: "memory of other processes" })
    }
}
