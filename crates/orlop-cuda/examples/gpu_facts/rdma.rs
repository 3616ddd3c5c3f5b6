//! Pages that other hardware can access.

use super::calls::check;
use super::{Facts, Result, head, row};
use cudarc::driver::sys::{self, CUdevice_attribute};
use orlop_alloc::{Allocator, Block, Request};
use orlop_cuda::{CudaError, CudaMemory};
use orlop_device::{DeviceAllocator, Policy};
use std::mem::MaybeUninit;

const BYTES: usize = 5 << 20;

type Memory = std::result::Result<CudaMemory, CudaError>;

/// Allocates in pages for other hardware and in plain ones, and reads the flag of the pages.
pub(super) fn rdma(facts: &Facts) -> Result<()> {
    let device = &facts.device;
    device.context().bind_to_thread()?;
    let attributes = [
        ("`GPU_DIRECT_RDMA_SUPPORTED`", CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED),
        (
            "`GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED`",
            CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
        ),
        ("`DMA_BUF_SUPPORTED`", CUdevice_attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED),
    ];
    head(&["attribute", "value"]);
    for (name, attribute) in attributes {
        let value = device.context().attribute(attribute);
        row(name, [value.map_or_else(|error| error.to_string(), |value| value.to_string())]);
    }
    println!();
    head(&["memory", "supported", "wrong bytes", "`gpuDirectRDMACapable` of its pages"]);
    let makes: [(&str, Memory, u8); 2] = [
        ("`CudaMemory::for_rdma`", CudaMemory::for_rdma(device), 1),
        ("`CudaMemory::new`", CudaMemory::new(device), 0),
    ];
    let mut failed = 0;
    for (name, memory, expected) in makes {
        let memory = match memory {
            Ok(memory) => memory,
            Err(error @ CudaError::Unsupported { .. }) => {
                row(name, [error.to_string(), "-".to_owned(), "-".to_owned()]);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let allocator = DeviceAllocator::new(memory, Policy::orlop()).into_ref();
        let block = allocator.allocate(&Request::new(BYTES))?;
        facts.fill_on(block.stream(), &block, 9)?;
        let wrong = facts.wrong_bytes_on(block.stream(), &block, 9)?;
        let flag = flag_of(&block)?;
        failed += usize::from(wrong > 0 || flag != expected);
        row(name, ["yes".to_owned(), wrong.to_string(), flag.to_string()]);
    }
    if failed > 0 { Err(format!("{failed} of the blocks are wrong").into()) } else { Ok(()) }
}

/// Returns the flag of the page that a block begins in.
fn flag_of(block: &Block) -> Result<u8> {
    let mut handle = 0;
    // SAFETY: it writes one handle; the block is live.
    check(unsafe { sys::cuMemRetainAllocationHandle(&raw mut handle, block.as_ptr().as_ptr().cast()) })?;
    let mut properties = MaybeUninit::<sys::CUmemAllocationProp>::zeroed();
    // SAFETY: it writes the properties; the handle was retained above.
    let read = unsafe { sys::cuMemGetAllocationPropertiesFromHandle(properties.as_mut_ptr(), handle) };
    // SAFETY: retained above, and released once.
    check(unsafe { sys::cuMemRelease(handle) })?;
    check(read)?;
    // SAFETY: the driver has written it; zeros are a value, too. The other fields are not read: a driver that
    // is newer may have other values of their enumerations.
    let flags = unsafe { &raw const (*properties.as_ptr()).allocFlags };
    // SAFETY: numbers, inside the properties.
    Ok(unsafe { flags.read() }.gpuDirectRDMACapable)
}
