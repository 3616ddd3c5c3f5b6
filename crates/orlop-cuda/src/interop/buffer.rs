//! [`DeviceBuffer`] and [`SharedBuffer`]: owned elements in device memory, in the order of streams.
//!
//! A buffer owns its block, so it needs no other help to be used on several streams: each use waits, on the
//! device, for the work that the others were given so far, and is recorded on the block. Nothing waits on the
//! host, except where a stream is not known to this crate.

use super::slices::{NO_ADDRESS, join};
use super::users::BufferUsers;
use super::{BlockSlice, BlockView, KernelMemory, acquire};
use crate::device::DeviceStream;
use bytemuck::AnyBitPattern;
use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, DeviceRepr, DeviceSlice, SyncOnDrop, sys};
use orlop_alloc::engine_support::trace_guarded;
use orlop_alloc::{Allocator, AllocatorRef, Block, Error, MemoryBlock, Request, Result};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

/// Elements in device memory with one owner, used first on its stream: what cudarc's `CudaSlice` is, in
/// memory of an allocator of orlop.
///
/// It is an argument of cudarc's functions that take [`DevicePtr`] or [`DevicePtrMut`]: copies, cuBLAS,
/// launches by address. Dropping it waits for nothing; its memory is reused after the streams that used it.
///
/// ```no_run
/// use orlop_alloc::Allocator;
/// use orlop_cuda::{CudaDevice, DeviceBuffer, caching_allocator};
///
/// let device = CudaDevice::new(0)?;
/// let (allocator, stream) = (caching_allocator(&device)?.into_ref(), device.create_stream()?);
/// let weights = DeviceBuffer::from_slice(&allocator, &stream, &[1.0_f32; 1024])?.share();
/// // Both inputs of one call can be parts of the same memory.
/// let (left, right) = (weights.slice(0..512), weights.slice(512..1024));
/// let mut result = DeviceBuffer::<f32>::zeroed(&allocator, &stream, 512)?;
/// # drop((left, right, &mut result));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Elements are plain data of which every bit pattern is a value, because the device may have written any.
pub struct DeviceBuffer<T> {
    block: Block,
    len: usize,
    stream: DeviceStream,
    users: BufferUsers,
    of: PhantomData<T>,
}

/// Elements in device memory with several owners, to read: a range of a shared [`DeviceBuffer`]. Clones are
/// the same memory.
pub struct SharedBuffer<T> {
    block: MemoryBlock,
    range: Range<usize>,
    stream: DeviceStream,
    users: BufferUsers,
    of: PhantomData<T>,
}

impl<T: AnyBitPattern> DeviceBuffer<T> {
    /// Allocates `len` elements of any values for a stream.
    ///
    /// # Errors
    ///
    /// Those of the allocator; [`CudaError::NotOnDevice`](crate::CudaError::NotOnDevice) if its memory is not
    /// that of the stream's device.
    pub fn new<A>(allocator: &AllocatorRef<A>, stream: &DeviceStream, len: usize) -> Result<Self>
    where
        A: ?Sized + Allocator,
    {
        Self::allocate(allocator, stream, len, false)
    }

    /// Allocates `len` elements of zero bytes for a stream.
    ///
    /// # Errors
    ///
    /// Those of [`DeviceBuffer::new`].
    pub fn zeroed<A>(allocator: &AllocatorRef<A>, stream: &DeviceStream, len: usize) -> Result<Self>
    where
        A: ?Sized + Allocator,
    {
        Self::allocate(allocator, stream, len, true)
    }

    fn allocate<A>(
        allocator: &AllocatorRef<A>,
        stream: &DeviceStream,
        len: usize,
        zeroed: bool,
    ) -> Result<Self>
    where
        A: ?Sized + Allocator,
    {
        // No allocator has so many: out of memory, with its figures.
        let bytes = len.saturating_mul(size_of::<T>());
        let request = Request::new(bytes).stream(stream.id());
        let block = allocator.allocate(&if zeroed { request.zeroed() } else { request })?;
        let buffer = Self::of(block, stream).map_err(|(_, error)| error)?;
        Ok(Self { len, ..buffer })
    }

    /// Allocates memory for elements of the host, and copies them on a stream.
    ///
    /// # Errors
    ///
    /// Those of [`DeviceBuffer::new`]; failures of the driver.
    pub fn from_slice<A>(allocator: &AllocatorRef<A>, stream: &DeviceStream, elements: &[T]) -> Result<Self>
    where
        A: ?Sized + Allocator,
        T: DeviceRepr,
    {
        let mut buffer = Self::new(allocator, stream, elements.len())?;
        if !elements.is_empty() {
            stream.device().enter()?.refuse_pageable(stream.handle())?;
            stream
                .cudarc()
                .memcpy_htod(elements, &mut buffer)
                .map_err(|error| buffer.failure("memcpy_htod", error))?;
        }
        Ok(buffer)
    }

    /// Makes a buffer of all whole elements of a block, used on `stream`.
    ///
    /// # Errors
    ///
    /// Those of [`KernelPointer::of`](super::KernelPointer::of), with the block.
    pub fn of(block: Block, stream: &DeviceStream) -> std::result::Result<Self, (Block, Error)> {
        if !block.is_empty()
            && let Err(error) = acquire(&block, stream)
        {
            return Err((block, error));
        }
        let len = block.len().checked_div(size_of::<T>()).unwrap_or(0);
        let (stream, users) = (stream.clone(), BufferUsers::default());
        Ok(Self { block, len, stream, users, of: PhantomData })
    }

    /// Returns a range of the elements, to read, used on the buffer's stream: several inputs of one call may
    /// be of one buffer. `None` if it is not inside.
    ///
    /// # Errors
    ///
    /// Failures of the driver, if other streams used the buffer.
    pub fn view(&self, range: Range<usize>) -> Result<Option<BlockView<'_, T>>> {
        Ok(BlockView::of(&self.block, &self.stream)?.slice(range))
    }

    /// Returns a range of the elements, used on the buffer's stream. `None` if it is not inside.
    ///
    /// # Errors
    ///
    /// Failures of the driver, if other streams used the buffer.
    pub fn view_mut(&mut self, range: Range<usize>) -> Result<Option<BlockSlice<'_, T>>> {
        Ok(BlockSlice::of(&mut self.block, &self.stream)?.into_slice(range))
    }

    /// Returns the elements, after the work on them.
    ///
    /// # Errors
    ///
    /// Failures of the driver.
    pub fn to_vec(&self) -> Result<Vec<T>>
    where
        T: DeviceRepr,
    {
        read(self, &self.stream)
    }
}

impl<T> DeviceBuffer<T> {
    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the stream of its uses without another one.
    #[must_use]
    pub fn device_stream(&self) -> &DeviceStream {
        &self.stream
    }

    /// Returns the block.
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// Returns the block, without the elements' type.
    pub fn into_block(self) -> Block {
        self.block
    }

    /// Makes it one of several owners, which read.
    #[must_use]
    pub fn share(self) -> SharedBuffer<T> {
        let Self { block, len, stream, users, of } = self;
        SharedBuffer { block: block.share(), range: 0..len, stream, users, of }
    }

    fn failure(&self, call: &'static str, error: cudarc::driver::DriverError) -> Error {
        self.stream.device().driver.failure_of(call, error).into()
    }
}

impl<T> SharedBuffer<T> {
    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Returns `true` if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Returns a range of the elements. `None` if it is not inside.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        let is_inside = range.start <= range.end && range.end <= self.len();
        let range = is_inside.then(|| self.range.start + range.start..self.range.start + range.end)?;
        Some(Self { range, ..self.clone() })
    }

    /// Returns the same elements, used on another stream.
    #[must_use]
    pub fn on(&self, stream: &DeviceStream) -> Self {
        Self { stream: stream.clone(), ..self.clone() }
    }

    /// Makes it a buffer again, of all elements.
    ///
    /// # Errors
    ///
    /// The buffer itself if it has other owners.
    pub fn try_unshare(self) -> std::result::Result<DeviceBuffer<T>, Self> {
        let Self { block, range, stream, users, of } = self;
        match block.try_into_block() {
            Ok(block) => {
                let len = block.len().checked_div(size_of::<T>()).unwrap_or(range.end);
                Ok(DeviceBuffer { block, len, stream, users, of })
            }
            Err(block) => Err(Self { block, range, stream, users, of }),
        }
    }

    /// Returns the elements, after the work on them.
    ///
    /// # Errors
    ///
    /// Failures of the driver.
    pub fn to_vec(&self) -> Result<Vec<T>>
    where
        T: AnyBitPattern + DeviceRepr,
    {
        read(self, &self.stream)
    }
}

impl<T> Clone for SharedBuffer<T> {
    fn clone(&self) -> Self {
        let (block, stream) = (self.block.clone(), self.stream.clone());
        let (range, users) = (self.range.clone(), BufferUsers::default());
        Self { block, range, stream, users, of: PhantomData }
    }
}

fn read<T: AnyBitPattern + DeviceRepr>(from: &impl DevicePtr<T>, stream: &DeviceStream) -> Result<Vec<T>> {
    if from.is_empty() {
        return Ok(Vec::new());
    }
    stream.device().enter()?.refuse_pageable(stream.handle())?;
    let copied = stream.cudarc().clone_dtoh(from);
    let copied = copied.map_err(|error| stream.device().driver.failure_of("clone_dtoh", error))?;
    stream.synchronize()?;
    Ok(copied)
}

/// Returns the address of elements for work on a stream of cudarc, which waits for the other users.
fn place<'s, T>(
    memory: &impl KernelMemory,
    first: usize,
    (own, users): (&DeviceStream, &BufferUsers),
    stream: &'s CudaStream,
) -> (sys::CUdeviceptr, SyncOnDrop<'s>) {
    let on_device = |address| (address, SyncOnDrop::Record(None));
    let placed = if own.is(stream) {
        acquire(memory, own).map(on_device)
    } else if let Some(user) = DeviceStream::known(stream) {
        let placed = acquire(memory, &user).map(on_device);
        users.keep(user);
        placed
    } else {
        // Nothing else knows that it uses the block: the host waits for its work.
        acquire(memory, own).and_then(|address| {
            join(own, stream)?;
            Ok((address, SyncOnDrop::Sync(Some(stream))))
        })
    };
    match placed {
        Ok((address, sync)) => (address as sys::CUdeviceptr + (first * size_of::<T>()) as u64, sync),
        // This function cannot fail: the call that uses the address does.
        Err(error) => {
            trace_guarded(|| tracing::error!(%error, "a buffer has no address on a stream"));
            (NO_ADDRESS, SyncOnDrop::Sync(None))
        }
    }
}

impl<T> DeviceSlice<T> for DeviceBuffer<T> {
    fn len(&self) -> usize {
        self.len
    }

    fn stream(&self) -> &Arc<CudaStream> {
        self.stream.cudarc()
    }
}

impl<T> DevicePtr<T> for DeviceBuffer<T> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        place::<T>(&self.block, 0, (&self.stream, &self.users), stream)
    }
}

impl<T> DevicePtrMut<T> for DeviceBuffer<T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        place::<T>(&self.block, 0, (&self.stream, &self.users), stream)
    }
}

impl<T> DeviceSlice<T> for SharedBuffer<T> {
    fn len(&self) -> usize {
        self.range.len()
    }

    fn stream(&self) -> &Arc<CudaStream> {
        self.stream.cudarc()
    }
}

impl<T> DevicePtr<T> for SharedBuffer<T> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        place::<T>(&self.block, self.range.start, (&self.stream, &self.users), stream)
    }
}

impl<T> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBuffer").field("len", &self.len).field("stream", &self.stream).finish()
    }
}

impl<T> fmt::Debug for SharedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBuffer").field("range", &self.range).field("stream", &self.stream).finish()
    }
}
