//! What real drivers may do without a promise: the simulation does it only where a switch says so.

use crate::pools::new_pool;
use crate::support::{OK, allocate, at, handle, start, start_with};
use crate::virtual_memory::create;
use cudarc::driver::{CudaContext, CudaStream, sys};
use orlop_cudasim_control::{KernelRun, SimulationConfig};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;
use sys::CUresult::{
    CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
};
use sys::CUstreamCaptureStatus_enum as Status;

const PAGE: usize = 2 << 20;

fn long_kernel(driver: &orlop_cudasim_control::SimulatedDriver, stream: &Arc<CudaStream>) {
    driver.run_kernel(handle(stream), KernelRun::new("long").takes(Duration::from_millis(2))).expect("ok");
}

#[test]
fn pools_do_not_wait_for_pending_frees() {
    for waits in [false, true] {
        let (driver, context) = start_with(&SimulationConfig::new().memory(1 << 20).waiting_pools(waits));
        let stream = context.new_stream().expect("a stream");
        let mut address = 0;
        assert_eq!(cu!(cuMemAllocAsync(&raw mut address, 1 << 20, stream.cu_stream())), OK);
        long_kernel(&driver, &stream);
        assert_eq!(cu!(cuMemFreeAsync(address, stream.cu_stream())), OK);
        let mut other = 0;
        let expected = if waits { OK } else { CUDA_ERROR_OUT_OF_MEMORY };
        assert_eq!(cu!(cuMemAllocAsync(&raw mut other, 1 << 20, stream.cu_stream())), expected);
        if !waits {
            stream.synchronize().expect("a wait");
            assert_eq!(cu!(cuMemAllocAsync(&raw mut other, 1 << 20, stream.cu_stream())), OK);
        }
    }
}

fn number(stream: &Arc<CudaStream>) -> u64 {
    let mut number = 0;
    assert_eq!(cu!(cuStreamGetId(stream.cu_stream(), &raw mut number)), OK);
    number
}

#[test]
fn handles_of_streams_and_events_are_given_again() {
    for is_unique in [false, true] {
        let (driver, context) = start_with(&SimulationConfig::new().unique_handles(is_unique));
        let [_kept, first] = [(); 2].map(|()| context.new_stream().expect("a stream"));
        long_kernel(&driver, &first);
        let old = first.cu_stream();
        let old_number = number(&first);
        let mut event = ptr::null_mut();
        assert_eq!(cu!(cuEventCreate(&raw mut event, 2)), OK);
        assert_eq!(cu!(cuEventRecord(event, old)), OK);
        drop(first);
        // Its work goes on, and so does what waits for it.
        let second = context.new_stream().expect("a stream");
        assert_ne!(second.cu_stream(), old);
        assert_eq!(cu!(cuStreamWaitEvent(second.cu_stream(), event, 0)), OK);
        assert_eq!(cu!(cuEventSynchronize(event)), OK);
        let third = context.new_stream().expect("a stream");
        assert_eq!(third.cu_stream() == old, !is_unique);
        // "The Id is unique for the life of the program", also of a stream with an old handle.
        assert_ne!(number(&third), old_number);
        third.synchronize().expect("nothing to wait for");
        assert_eq!(cu!(cuEventDestroy_v2(event)), OK);
        let mut again = ptr::null_mut();
        assert_eq!(cu!(cuEventCreate(&raw mut again, 2)), OK);
        assert_eq!(again == event, !is_unique);
        assert_eq!(cu!(cuEventQuery(again)), OK, "it was never recorded");
    }
}

#[test]
fn a_stream_takes_a_bounded_number_of_operations() {
    for (limit, waits) in [(8, true), (usize::MAX, false)] {
        let (driver, context) = start_with(&SimulationConfig::new().launch_queue(limit));
        let stream = context.new_stream().expect("a stream");
        for _ in 0..20 {
            long_kernel(&driver, &stream);
        }
        assert_eq!(driver.counts().operations < 20, waits);
        assert_eq!(driver.now() > Duration::from_millis(2), waits);
        stream.synchronize().expect("a wait");
    }
}

/// Two devices of which one may access the other's memory, and a kernel's result there.
fn far_kernel(
    shares: bool,
    address: impl FnOnce() -> usize,
    allow: impl FnOnce(usize, &CudaContext),
) -> sys::CUresult {
    let config = SimulationConfig::new().devices([8 << 20, 8 << 20]).peer_access(true).shared_access(shares);
    let (driver, own) = start_with(&config);
    let far = CudaContext::new(1).expect("a device");
    own.bind_to_thread().expect("a context");
    let address = address();
    far.bind_to_thread().expect("a context");
    allow(address, &own);
    let stream = far.new_stream().expect("a stream");
    let _reported_later = driver.run_kernel(handle(&stream), KernelRun::new("far").writes(address, 64));
    cu!(cuStreamSynchronize(stream.cu_stream()))
}

#[test]
fn access_rights_are_those_of_a_device() {
    let enable = |_, own: &CudaContext| {
        assert_eq!(cu!(cuCtxEnablePeerAccess(own.cu_ctx(), 0)), OK);
    };
    let linear = || at(allocate(64));
    assert_eq!(far_kernel(false, linear, |_, _| ()), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(far_kernel(false, linear, enable), OK);
    assert_eq!(far_kernel(true, linear, |_, _| ()), OK);

    let access_for = |device: i32, address: usize| {
        // A location (its type and number) and the rights to read and write.
        let access = [1, device, 3];
        let address = sys::CUdeviceptr::try_from(address).expect("64 bits");
        assert_eq!(cu!(cuMemSetAccess(address, PAGE, access.as_ptr().cast(), 1)), OK);
    };
    let mapped = || {
        // SAFETY: zero is a valid value of every field.
        let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
        properties.type_ = sys::CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type_ = sys::CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE;
        let (mut page, mut address) = (0, 0);
        assert_eq!(cu!(cuMemCreate(&raw mut page, PAGE, &raw const properties, 0)), OK);
        assert_eq!(cu!(cuMemAddressReserve(&raw mut address, PAGE, 0, 0, 0)), OK);
        assert_eq!(cu!(cuMemMap(address, PAGE, 0, page, 0)), OK);
        access_for(0, at(address));
        at(address)
    };
    assert_eq!(far_kernel(false, mapped, |_, _| ()), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(far_kernel(false, mapped, enable), CUDA_ERROR_ILLEGAL_ADDRESS, "that is for other memory");
    assert_eq!(far_kernel(false, mapped, |address, _| access_for(1, address)), OK);
    assert_eq!(far_kernel(true, mapped, |_, _| ()), OK);
}

#[test]
fn modules_wait_for_the_device_and_are_allowed_in_captures() {
    const PTX: &[u8] =
        b".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry nothing()\n{\nret;\n}\n\0";
    for waits in [false, true] {
        let (driver, context) = start_with(&SimulationConfig::new().waiting_modules(waits));
        let [busy, capturing] = [(); 2].map(|()| context.new_stream().expect("a stream"));
        long_kernel(&driver, &busy);
        let load = || {
            let mut module = ptr::null_mut();
            let code = cu!(cuModuleLoadData(&raw mut module, PTX.as_ptr().cast()));
            (code, module)
        };
        let (code, module) = load();
        assert_eq!(code, OK);
        assert_eq!(driver.now() > Duration::from_millis(1), waits);
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_GLOBAL;
        assert_eq!(cu!(cuStreamBeginCapture_v2(capturing.cu_stream(), mode)), OK);
        let expected = if waits { OK } else { CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED };
        assert_eq!(load().0, expected);
        assert_eq!(cu!(cuModuleUnload(module)), expected);
    }
}

#[test]
fn handles_of_pools_and_pages_are_given_again() {
    for is_unique in [false, true] {
        let (_driver, context) = start_with(&SimulationConfig::new().unique_handles(is_unique));
        let stream = context.new_stream().expect("a stream");
        let (first, mut address) = (new_pool(), 0);
        assert_eq!(cu!(cuMemAllocFromPoolAsync(&raw mut address, 64, first, stream.cu_stream())), OK);
        assert_eq!(cu!(cuMemPoolDestroy(first)), OK);
        // It is there until its memory is free.
        let second = new_pool();
        assert_ne!(second, first);
        assert_eq!(cu!(cuMemFreeAsync(address, stream.cu_stream())), OK);
        stream.synchronize().expect("a wait");
        assert_eq!(new_pool() == first, !is_unique);

        let page = create(1).expect("a page");
        assert_eq!(cu!(cuMemRelease(page)), OK);
        assert_eq!(create(1).expect("a page") == page, !is_unique);
    }
}

#[test]
fn a_graph_frees_only_its_own_memory() {
    let (_driver, context) = start();
    let stream = context.new_stream().expect("a stream");
    let (raw, mut outside) = (stream.cu_stream(), 0);
    assert_eq!(cu!(cuMemAllocAsync(&raw mut outside, 4096, raw)), OK);
    let status = || {
        let mut status = Status::CU_STREAM_CAPTURE_STATUS_NONE;
        assert_eq!(cu!(cuStreamIsCapturing(raw, &raw mut status)), OK);
        status
    };
    let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;
    assert_eq!(cu!(cuStreamBeginCapture_v2(raw, mode)), OK);
    let mut inside = 0;
    assert_eq!(cu!(cuMemAllocAsync(&raw mut inside, 4096, raw)), OK);
    assert_eq!(cu!(cuMemFreeAsync(inside, raw)), OK);
    assert_eq!(status(), Status::CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_eq!(cu!(cuMemFreeAsync(outside, raw)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(status(), Status::CU_STREAM_CAPTURE_STATUS_ACTIVE);
}

/// "The blocking stream capture is not invalidated."
#[test]
fn a_query_of_the_default_stream_ends_no_capture() {
    let (_driver, _context) = start();
    let (mut stream, mut graph) = (ptr::null_mut(), ptr::null_mut());
    assert_eq!(cu!(cuStreamCreate(&raw mut stream, 0)), OK);
    let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;
    assert_eq!(cu!(cuStreamBeginCapture_v2(stream, mode)), OK);
    let mut status = Status::CU_STREAM_CAPTURE_STATUS_NONE;
    let asked = cu!(cuStreamIsCapturing(ptr::null_mut(), &raw mut status));
    assert_eq!(asked, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_eq!(cu!(cuStreamEndCapture(stream, &raw mut graph)), OK);
}
