//! [`Segments`]: memory that PyTorch's own allocator divides into blocks.
//!
//! PyTorch names the stream that is current when it asks for a segment, and uses it on others. It frees a
//! segment as it would by `cudaFree`, which waits for the device. So a segment is freed after such a wait,
//! and no stream matters to it.

use crate::error::TorchError;
use crate::process;
use orlop_alloc::{AllocatorRef, Block, Request};
use orlop_cuda::{CudaDevice, CudaMemory};
use orlop_device::DeviceAllocator;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
pub(crate) struct Segments {
    state: Mutex<SegmentTable>,
}

#[derive(Debug, Default)]
struct SegmentTable {
    live: HashMap<usize, Block>,
    /// Freed while a stream captures, which forbids to wait for the device.
    unfinished: Vec<Block>,
}

impl Segments {
    /// Allocates a segment, and returns its address.
    pub(crate) fn allocate(
        &self,
        device: &CudaDevice,
        allocator: &AllocatorRef<DeviceAllocator<CudaMemory>>,
        bytes: usize,
    ) -> Result<usize, TorchError> {
        self.flush(device);
        let block = allocator.allocate(&Request::new(bytes).stream(device.default_stream()))?;
        let address = block.as_ptr().as_ptr().addr();
        self.table().live.insert(address, block);
        Ok(address)
    }

    /// Frees the segment at an address, after all work of the device.
    pub(crate) fn free(&self, device: &CudaDevice, address: usize) -> Result<(), TorchError> {
        let mut table = self.table();
        let block = table.live.remove(&address).ok_or(TorchError::UnknownBlock(address))?;
        table.unfinished.push(block);
        drop(table);
        self.flush(device);
        Ok(())
    }

    /// Frees segments after all work of the device. If it cannot be waited for, they are freed later.
    pub(crate) fn flush(&self, device: &CudaDevice) {
        let unfinished = std::mem::take(&mut self.table().unfinished);
        if unfinished.is_empty() {
            return;
        }
        if let Err(error) = device.synchronize() {
            process::keep_error(&format!("segments wait for the end of the device's work: {error}"));
            self.table().unfinished.extend(unfinished);
        }
    }

    fn table(&self) -> MutexGuard<'_, SegmentTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
