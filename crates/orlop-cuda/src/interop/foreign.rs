//! Device memory of other code as blocks.

use crate::device::{self, CudaDevice, DeviceStream};
use crate::driver::{abi, call};
use crate::error::CudaError;
use cudarc::driver::{CudaSlice, DevicePtrMut};
use orlop_alloc::{
    Access, Allocator, Block, Deleter, Error, OutOfMemory, Refusal, Request, Result, Semantics, Usage,
    engine_support::{RawBlock, Record},
};
use orlop_core::{Alignment, Device, StreamId};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fmt, mem};

/// The allocator of one block, whose memory is a slice of cudarc.
#[derive(Debug)]
struct SliceOwner<T> {
    device: CudaDevice,
    /// The slice's stream, which waits for the others that used the block before the memory is freed.
    stream: DeviceStream,
    address: usize,
    bytes: usize,
    state: Mutex<SliceState<T>>,
}

#[derive(Debug)]
enum SliceState<T> {
    /// The block is not made yet.
    Ready(CudaSlice<T>),
    Lent {
        /// Its drop frees the memory.
        _slice: CudaSlice<T>,
    },
    Gone,
}

// SAFETY: 1. the slice's memory, which it has until it is dropped, is handed out once. 2. it is the device's.
// 3. zeros are refused. 4. the state is locked, and cudarc may be called from any thread. 5. nothing refers
// to
// `self`. 6. there is no counter.
unsafe impl<T: Send + fmt::Debug + 'static> Allocator for SliceOwner<T> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        let mut state = self.lock();
        let asks_for_it =
            request.bytes == self.bytes && !request.zeroed && request.align.is_aligned(self.address);
        *state = match mem::replace(&mut *state, SliceState::Gone) {
            SliceState::Ready(slice) if asks_for_it => SliceState::Lent { _slice: slice },
            other => {
                *state = other;
                return Err(OutOfMemory::new(Refusal::Backing, self.name(), self.device(), request).into());
            }
        };
        let ptr = NonNull::new(ptr::with_exposed_provenance_mut::<u8>(self.address));
        let ptr = ptr.ok_or(Error::ForeignPointer { address: self.address })?;
        let mut record = Box::new(Record::new(ptr, self.bytes, self.device(), Access::Device));
        record.assign(request);
        record.stream = self.stream.id();
        Ok(RawBlock::new(record))
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        let uses: Vec<StreamId> = block.stream_uses().collect();
        let (device, stream) = (self.device.clone(), self.stream.clone());
        let take = || mem::replace(&mut *self.lock(), SliceState::Gone);
        match prepare_free(&stream, &uses) {
            Ok(()) => {
                // The current context of the thread is restored.
                let scope = device.state().enter()?;
                drop(take());
                drop(scope);
            }
            Err(CudaError::Capturing { .. }) => drop_after_capture(device, stream, uses, take()),
            // The block stays as it is, and its memory is not reused.
            Err(error) => return Err(error.into()),
        }
        // SAFETY: the block of this allocator has a box from `allocate`.
        drop(unsafe { block.into_record() });
        Ok(())
    }

    fn device(&self) -> Device {
        self.device.device()
    }

    fn name(&self) -> &str {
        "cudarc-slice"
    }

    fn usage(&self) -> Usage {
        let state = self.lock();
        let reserved = if matches!(*state, SliceState::Gone) { 0 } else { self.bytes as u64 };
        Usage { reserved, peak_reserved: self.bytes as u64, ..Usage::default() }
    }

    fn semantics(&self) -> Semantics {
        Semantics { stream_ordered: true, ..Semantics::default() }
    }
}

impl<T> SliceOwner<T> {
    fn lock(&self) -> MutexGuard<'_, SliceState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the stream of a slice wait for the others that used it, unless a capture forbids that or the free.
fn prepare_free(stream: &DeviceStream, uses: &[StreamId]) -> std::result::Result<(), CudaError> {
    for &user in uses {
        let event = device::record(user)?;
        device::wait(stream.id(), event).inspect_err(|_| device::forget(event))?;
    }
    let scope = stream.device().enter()?;
    // A graph frees only its own memory.
    scope.refuse_capturing(stream.handle(), "cuMemFreeAsync")
}

/// Drops a slice when no capture forbids that, in the order of its stream and after all users.
fn drop_after_capture(
    device: CudaDevice,
    stream: DeviceStream,
    uses: Vec<StreamId>,
    slice: impl Send + 'static,
) {
    let mut slice = Some(slice);
    device::free_after_capture(Box::new(move || {
        prepare_free(&stream, &uses)?;
        let scope = device.state().enter()?;
        drop(slice.take());
        drop(scope);
        Ok(())
    }));
}

impl CudaDevice {
    /// Makes a block of cudarc's memory, for the stream of the slice, which waits for the work that other
    /// streams were given on it. Dropping the block drops the slice, which frees its memory in the order of
    /// that stream, after the work of all streams that used the block.
    ///
    /// # Errors
    ///
    /// [`CudaError::OtherContext`] if it is memory of another context; [`CudaError::PerThreadStream`];
    /// [`CudaError::Capturing`] if its stream captures (the slice is then dropped after the capture), or if
    /// the device must be waited for and a stream captures; failures of the driver.
    pub fn block_of_slice<T: Send + fmt::Debug + 'static>(&self, mut slice: CudaSlice<T>) -> Result<Block> {
        device::run_deferred_frees();
        let stream = self.adopt_stream(slice.stream().clone())?;
        // cudarc makes the stream wait for events from before the capture, which would end it.
        let scope = self.state().enter()?;
        if let Err(error) = scope.refuse_capturing(stream.handle(), "cuStreamWaitEvent") {
            drop(scope);
            drop_after_capture(self.clone(), stream, Vec::new(), slice);
            return Err(error.into());
        }
        drop(scope);
        if !self.context().is_managing_stream_synchronization() {
            // While a context has one stream, cudarc does not know which streams use a slice.
            self.state().synchronize()?;
        }
        let bytes = slice.num_bytes();
        let (address, used) = slice.device_ptr_mut(stream.cudarc());
        drop(used);
        let wrong = CudaError::NotOnDevice { device: self.device(), address: usize::MAX };
        let address = usize::try_from(address).map_err(|_| wrong)?;
        let align = Alignment::new(1 << address.trailing_zeros().min(Alignment::PLANNED.log2()))?;
        let request = Request::new(bytes).align(align).stream(stream.id());
        let state = Mutex::new(SliceState::Ready(slice));
        let owner = SliceOwner { device: self.clone(), stream, address, bytes, state };
        owner.into_ref().allocate(&request)
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
}
