//! Calls of the driver whose answers are what is looked for. Handles are the caller's own, and live.

use super::Result;
use super::calls::{check, set_device};
use cudarc::driver::sys::{self, CUevent, CUfunction, CUmemoryPool, CUmodule, CUstream};
use std::ffi::{CStr, c_void};
use std::ptr;

pub(super) const NON_BLOCKING: u32 = 1;

/// A module of one kernel that does nothing.
pub(super) const MODULE: &CStr =
    c".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry nothing() { ret; }\n";

pub(super) fn create_stream(flags: u32) -> Result<CUstream> {
    let mut stream = ptr::null_mut();
    // SAFETY: it writes one handle.
    check(unsafe { sys::cuStreamCreate(&raw mut stream, flags) })?;
    Ok(stream)
}

pub(super) fn destroy_stream(stream: CUstream) -> Result<()> {
    // SAFETY: a live stream, which the caller uses no more.
    check(unsafe { sys::cuStreamDestroy_v2(stream) })
}

pub(super) fn synchronize(stream: CUstream) -> Result<()> {
    // SAFETY: a live stream.
    check(unsafe { sys::cuStreamSynchronize(stream) })
}

pub(super) fn query(stream: CUstream) -> Result<()> {
    // SAFETY: a live stream.
    check(unsafe { sys::cuStreamQuery(stream) })
}

pub(super) fn synchronize_context() -> Result<()> {
    // SAFETY: it takes nothing.
    check(unsafe { sys::cuCtxSynchronize() })
}

pub(super) fn create_event() -> Result<CUevent> {
    let mut event = ptr::null_mut();
    // SAFETY: it writes one handle.
    check(unsafe { sys::cuEventCreate(&raw mut event, 2) })?;
    Ok(event)
}

pub(super) fn destroy_event(event: CUevent) -> Result<()> {
    // SAFETY: a live event, which the caller uses no more.
    check(unsafe { sys::cuEventDestroy_v2(event) })
}

pub(super) fn record(event: CUevent, stream: CUstream) -> Result<()> {
    // SAFETY: both are live.
    check(unsafe { sys::cuEventRecord(event, stream) })
}

pub(super) fn query_event(event: CUevent) -> Result<()> {
    // SAFETY: a live event.
    check(unsafe { sys::cuEventQuery(event) })
}

pub(super) fn synchronize_event(event: CUevent) -> Result<()> {
    // SAFETY: a live event.
    check(unsafe { sys::cuEventSynchronize(event) })
}

pub(super) fn wait_event(stream: CUstream, event: CUevent) -> Result<()> {
    // SAFETY: both are live.
    check(unsafe { sys::cuStreamWaitEvent(stream, event, 0) })
}

pub(super) fn allocate(bytes: usize) -> Result<u64> {
    let mut address = 0;
    // SAFETY: it writes one address.
    check(unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes) })?;
    Ok(address)
}

pub(super) fn allocate_managed(bytes: usize) -> Result<u64> {
    let mut address = 0;
    // SAFETY: it writes one address; 1 is memory for every stream.
    check(unsafe { sys::cuMemAllocManaged(&raw mut address, bytes, 1) })?;
    Ok(address)
}

pub(super) fn free(address: u64) -> Result<()> {
    // SAFETY: the driver knows its addresses, and the caller uses this one no more.
    check(unsafe { sys::cuMemFree_v2(address) })
}

pub(super) fn allocate_host(bytes: usize) -> Result<*mut c_void> {
    let mut address = ptr::null_mut();
    // SAFETY: it writes one address.
    check(unsafe { sys::cuMemHostAlloc(&raw mut address, bytes, 0) })?;
    Ok(address)
}

pub(super) fn free_host(address: *mut c_void) -> Result<()> {
    // SAFETY: as in `free`.
    check(unsafe { sys::cuMemFreeHost(address) })
}

pub(super) fn register_host(address: *mut c_void, bytes: usize) -> Result<()> {
    // SAFETY: memory of the caller, kept until it is unregistered.
    check(unsafe { sys::cuMemHostRegister_v2(address, bytes, 0) })
}

pub(super) fn unregister_host(address: *mut c_void) -> Result<()> {
    // SAFETY: registered by the caller.
    check(unsafe { sys::cuMemHostUnregister(address) })
}

/// Allocates from the current pool of the device.
pub(super) fn allocate_on(stream: CUstream, bytes: usize) -> Result<u64> {
    let mut address = 0;
    // SAFETY: it writes one address; a live stream.
    check(unsafe { sys::cuMemAllocAsync(&raw mut address, bytes, stream) })?;
    Ok(address)
}

pub(super) fn free_on(stream: CUstream, address: u64) -> Result<()> {
    // SAFETY: as in `free`; a live stream.
    check(unsafe { sys::cuMemFreeAsync(address, stream) })
}

/// Creates a pool of the first device, which keeps up to `threshold` bytes.
pub(super) fn create_pool(threshold: u64) -> Result<CUmemoryPool> {
    // SAFETY: numbers and a null pointer, of which zeros are values.
    let mut properties: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
    properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    set_device(&mut properties.location);
    let mut pool = ptr::null_mut();
    // SAFETY: it reads the properties, and writes one handle.
    check(unsafe { sys::cuMemPoolCreate(&raw mut pool, &raw const properties) })?;
    let (mut value, attribute) = (threshold, sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD);
    // SAFETY: the value of this attribute is a number of eight bytes.
    check(unsafe { sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut value).cast()) })?;
    Ok(pool)
}

pub(super) fn destroy_pool(pool: CUmemoryPool) -> Result<()> {
    // SAFETY: a live pool, which the caller uses no more.
    check(unsafe { sys::cuMemPoolDestroy(pool) })
}

pub(super) fn trim_pool(pool: CUmemoryPool) -> Result<()> {
    // SAFETY: a live pool.
    check(unsafe { sys::cuMemPoolTrimTo(pool, 0) })
}

pub(super) fn allocate_from(pool: CUmemoryPool, stream: CUstream, bytes: usize) -> Result<u64> {
    let mut address = 0;
    // SAFETY: it writes one address; both are live.
    check(unsafe { sys::cuMemAllocFromPoolAsync(&raw mut address, bytes, pool, stream) })?;
    Ok(address)
}

pub(super) fn free_memory() -> Result<usize> {
    let [mut free, mut total] = [0; 2];
    // SAFETY: it writes two numbers.
    check(unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
    Ok(free)
}

pub(super) fn fill(address: u64, bytes: usize, stream: CUstream) -> Result<()> {
    // SAFETY: memory of the caller, kept until the stream was waited for.
    check(unsafe { sys::cuMemsetD8Async(address, 1, bytes, stream) })
}

pub(super) fn fill_now(address: u64, bytes: usize) -> Result<()> {
    // SAFETY: memory of the caller, which nothing else uses.
    check(unsafe { sys::cuMemsetD8_v2(address, 1, bytes) })
}

pub(super) fn copy(to: u64, from: u64, bytes: usize, stream: CUstream) -> Result<()> {
    // SAFETY: memory of the caller, kept until the stream was waited for.
    check(unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, stream) })
}

pub(super) fn read_now(to: &mut [u8], from: u64) -> Result<()> {
    // SAFETY: both have these bytes, and the call waits.
    check(unsafe { sys::cuMemcpyDtoH_v2(to.as_mut_ptr().cast(), from, to.len()) })
}

pub(super) fn load_module() -> Result<CUmodule> {
    let mut module = ptr::null_mut();
    // SAFETY: it reads a text that ends with a zero, and writes one handle.
    check(unsafe { sys::cuModuleLoadData(&raw mut module, MODULE.as_ptr().cast()) })?;
    Ok(module)
}

pub(super) fn unload_module(module: CUmodule) -> Result<()> {
    // SAFETY: a live module, whose kernels the caller launches no more.
    check(unsafe { sys::cuModuleUnload(module) })
}

/// Finds and launches the kernel of the module.
pub(super) fn launch(module: CUmodule, stream: CUstream) -> Result<()> {
    let mut function: CUfunction = ptr::null_mut();
    // SAFETY: it reads a text that ends with a zero, and writes one handle.
    check(unsafe { sys::cuModuleGetFunction(&raw mut function, module, c"nothing".as_ptr()) })?;
    let none = ptr::null_mut();
    // SAFETY: the kernel has no arguments; the module is loaded until the stream was waited for.
    check(unsafe { sys::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, none, none) })
}

pub(super) fn begin_capture(stream: CUstream, mode: sys::CUstreamCaptureMode) -> Result<()> {
    // SAFETY: a live stream.
    check(unsafe { sys::cuStreamBeginCapture_v2(stream, mode) })
}

/// Returns `true` if the capture of a stream goes on.
pub(super) fn is_capturing(stream: CUstream) -> Result<bool> {
    let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: a live stream; it writes one number.
    check(unsafe { sys::cuStreamIsCapturing(stream, &raw mut status) })?;
    Ok(status == sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE)
}

/// Ends a capture, and destroys its graph.
pub(super) fn end_capture(stream: CUstream) -> Result<()> {
    let mut graph = ptr::null_mut();
    // SAFETY: a live stream; it writes one handle.
    check(unsafe { sys::cuStreamEndCapture(stream, &raw mut graph) })?;
    if graph.is_null() {
        return Ok(());
    }
    // SAFETY: the graph of this capture, which was never instantiated.
    check(unsafe { sys::cuGraphDestroy(graph) })
}
