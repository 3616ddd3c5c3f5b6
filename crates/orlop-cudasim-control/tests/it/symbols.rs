//! The exported functions.

use crate::support::{OK, driver};
use cudarc::driver::sys;
use orlop_cudasim_control::SimulationConfig;
use std::ffi::{CString, c_void};
use std::ptr;

/// The functions that cudarc's `driver::result` and `driver::safe` call.
const USED_BY_CUDARC: &str = "\
    cuCtxCreate_v4 cuCtxDestroy_v2 cuCtxGetCacheConfig cuCtxGetCurrent cuCtxGetLimit \
    cuCtxGetStreamPriorityRange cuCtxSetCacheConfig cuCtxSetCurrent cuCtxSetFlags cuCtxSetLimit \
    cuCtxSynchronize cuDestroyExternalMemory cuDeviceGet cuDeviceGetAttribute cuDeviceGetCount \
    cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuDeviceGetName cuDeviceGetUuid_v2 \
    cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxRetain cuDeviceSetMemPool cuDeviceTotalMem_v2 \
    cuEventCreate cuEventDestroy_v2 cuEventElapsedTime_v2 cuEventQuery cuEventRecord cuEventSynchronize \
    cuExternalMemoryGetMappedBuffer cuFuncGetAttribute cuFuncSetAttribute cuFuncSetCacheConfig \
    cuGetErrorName cuGetErrorString cuGraphDestroy cuGraphExecDestroy cuGraphInstantiateWithFlags \
    cuGraphLaunch cuGraphUpload cuImportExternalMemory cuInit cuLaunchCooperativeKernel cuLaunchHostFunc \
    cuLaunchKernel cuMemAdvise_v2 cuMemAllocAsync cuMemAllocFromPoolAsync cuMemAllocManaged cuMemAlloc_v2 \
    cuMemFreeAsync cuMemFreeHost cuMemFree_v2 cuMemGetInfo_v2 cuMemHostAlloc cuMemPoolCreate \
    cuMemPoolDestroy cuMemPoolGetAttribute cuMemPoolSetAttribute cuMemPoolTrimTo cuMemPrefetchAsync_v2 \
    cuMemcpyDtoDAsync_v2 cuMemcpyDtoD_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoH_v2 cuMemcpyHtoDAsync_v2 \
    cuMemcpyHtoD_v2 cuMemcpyPeerAsync cuMemsetD8Async cuMemsetD8_v2 cuModuleGetFunction \
    cuModuleGetGlobal_v2 cuModuleLoad cuModuleLoadData cuModuleUnload \
    cuOccupancyAvailableDynamicSMemPerBlock cuOccupancyMaxActiveBlocksPerMultiprocessor \
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxActiveClusters \
    cuOccupancyMaxPotentialBlockSize cuOccupancyMaxPotentialBlockSizeWithFlags \
    cuOccupancyMaxPotentialClusterSize cuProfilerStart cuProfilerStop cuStreamAttachMemAsync \
    cuStreamBeginCapture_v2 cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy_v2 \
    cuStreamEndCapture cuStreamIsCapturing cuStreamSynchronize cuStreamWaitEvent";

#[test]
fn every_function_that_cudarc_calls_is_exported() {
    let _driver = driver(&SimulationConfig::new());
    // SAFETY: the driver is loaded.
    let library = unsafe { sys::culib() };
    for name in USED_BY_CUDARC.split_whitespace() {
        // SAFETY: the symbol is not used.
        let found = unsafe { library.get::<*const ()>(name.as_bytes()) };
        assert!(found.is_ok(), "{name}");
    }
}

#[test]
fn functions_are_found_by_name_and_version() {
    let _driver = driver(&SimulationConfig::new().version(12_040));
    let find = |name: &str, version| {
        let name = CString::new(name).expect("a name");
        let mut function: *mut c_void = ptr::null_mut();
        let mut status = sys::CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS;
        let code = cu!(cuGetProcAddress_v2(name.as_ptr(), &raw mut function, version, 0, &raw mut status));
        (code == OK, function.is_null(), status)
    };
    use sys::CUdriverProcAddressQueryResult as Status;
    assert_eq!(find("cuMemAlloc", 12_000), (true, false, Status::CU_GET_PROC_ADDRESS_SUCCESS));
    assert_eq!(find("cuNone", 12_000), (false, true, Status::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND));
    let newer = find("cuMemAlloc", 13_000);
    assert_eq!(newer, (false, true, Status::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT));
}
