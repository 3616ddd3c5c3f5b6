//! The functions of the driver that this crate, and what it uses of cudarc, calls: all resolved at once.
//!
//! cudarc resolves each function at its first call, and panics if the library lacks it. So a driver that is
//! too old is found here, when it is loaded. Calls go through this table, which returns plain numbers: a
//! result code that is newer than these declarations is then an unknown number, and no invalid `enum`.
//! Functions under `optional` may be missing.

use super::abi::{
    AccessDescriptor, AllocationProperties, Copy3D, DeviceAddress, Handle, IpcHandle, PoolProperties,
};
use crate::error::CudaError;
use libloading::Library;
use std::ffi::{c_char, c_void};

macro_rules! symbols {
    (
        called { $($name:ident($($argument:ty),* $(,)?);)+ }
        optional { $($(#[$note:meta])? $newer:ident($($newer_argument:ty),* $(,)?);)+ }
        by_cudarc { $($other:ident)+ }
    ) => {
        /// Addresses of the driver's functions.
        #[expect(non_snake_case, reason = "the names are the driver's")]
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct Symbols {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> i32,)+
            $($(#[$note])? pub(crate) $newer: Option<unsafe extern "C" fn($($newer_argument),*) -> i32>,)+
        }

        impl Symbols {
            /// Resolves all functions.
            ///
            /// # Safety
            ///
            /// 1. The library is never unloaded.
            /// 2. It is a CUDA driver: its functions have the signatures that NVIDIA documents.
            pub(crate) unsafe fn resolve(library: &Library) -> Result<Self, CudaError> {
                $(
                    let name = concat!(stringify!($other), "\0").as_bytes();
                    // SAFETY: only looked up. (The type is that of some function.)
                    let found = unsafe { library.get::<unsafe extern "C" fn()>(name) };
                    found.map_err(|_| CudaError::DriverTooOld { symbol: stringify!($other) })?;
                )+
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the signature is the documented one (2), and the library stays (1).
                        let found = unsafe { library.get(name) };
                        *found.map_err(|_| CudaError::DriverTooOld { symbol: stringify!($name) })?
                    },)+
                    $($newer: {
                        let name = concat!(stringify!($newer), "\0").as_bytes();
                        // SAFETY: as above.
                        unsafe { library.get(name) }.ok().map(|found| *found)
                    },)+
                })
            }
        }
    };
}

symbols! {
    called {
    cuInit(u32);
    cuDriverGetVersion(*mut i32);
    cuGetErrorName(i32, *mut *const c_char);
    cuDeviceGetCount(*mut i32);
    cuDeviceGetAttribute(*mut i32, i32, i32);
    cuCtxGetCurrent(*mut Handle);
    cuCtxSetCurrent(Handle);
    cuCtxSynchronize();
    cuDeviceCanAccessPeer(*mut i32, i32, i32);
    cuCtxEnablePeerAccess(Handle, u32);
    cuThreadExchangeStreamCaptureMode(*mut i32);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemAlloc_v2(*mut DeviceAddress, usize);
    cuMemFree_v2(DeviceAddress);
    cuMemAllocManaged(*mut DeviceAddress, usize, u32);
    cuMemFreeAsync(DeviceAddress, Handle);
    cuMemAllocFromPoolAsync(*mut DeviceAddress, usize, Handle, Handle);
    cuMemPoolCreate(*mut Handle, *const PoolProperties);
    cuMemPoolDestroy(Handle);
    cuMemPoolTrimTo(Handle, usize);
    cuMemPoolSetAccess(Handle, *const AccessDescriptor, usize);
    cuMemPoolGetAttribute(Handle, i32, *mut c_void);
    cuMemPoolSetAttribute(Handle, i32, *mut c_void);
    cuDeviceGetMemPool(*mut Handle, i32);
    cuDeviceGetDefaultMemPool(*mut Handle, i32);
    cuDeviceSetMemPool(i32, Handle);
    cuMemHostAlloc(*mut *mut c_void, usize, u32);
    cuMemFreeHost(*mut c_void);
    cuPointerGetAttribute(*mut c_void, i32, DeviceAddress);
    cuMemGetAllocationGranularity(*mut usize, *const AllocationProperties, i32);
    cuMemAddressReserve(*mut DeviceAddress, usize, usize, DeviceAddress, u64);
    cuMemAddressFree(DeviceAddress, usize);
    cuMemCreate(*mut u64, usize, *const AllocationProperties, u64);
    cuMemRelease(u64);
    cuMemMap(DeviceAddress, usize, usize, u64, u64);
    cuMemUnmap(DeviceAddress, usize);
    cuMemSetAccess(DeviceAddress, usize, *const AccessDescriptor, usize);
    cuStreamSynchronize(Handle);
    cuStreamWaitEvent(Handle, Handle, u32);
    cuStreamIsCapturing(Handle, *mut i32);
    cuEventCreate(*mut Handle, u32);
    cuEventDestroy_v2(Handle);
    cuEventRecord(Handle, Handle);
    cuEventQuery(Handle);
    cuEventSynchronize(Handle);
    cuMemcpyHtoDAsync_v2(DeviceAddress, *const c_void, usize, Handle);
    cuMemcpyDtoHAsync_v2(*mut c_void, DeviceAddress, usize, Handle);
    cuMemcpyDtoDAsync_v2(DeviceAddress, DeviceAddress, usize, Handle);
    cuMemcpyPeerAsync(DeviceAddress, Handle, DeviceAddress, Handle, usize, Handle);
    cuMemcpy3DAsync_v2(*const Copy3D, Handle);
    cuMemsetD8Async(DeviceAddress, u8, usize, Handle);
    cuMemsetD16Async(DeviceAddress, u16, usize, Handle);
    cuMemsetD32Async(DeviceAddress, u32, usize, Handle);
    cuModuleLoadData(*mut Handle, *const c_void);
    cuModuleUnload(Handle);
    cuModuleGetFunction(*mut Handle, Handle, *const c_char);
    cuLaunchKernel(
        Handle, u32, u32, u32, u32, u32, u32, u32, Handle, *mut *mut c_void, *mut *mut c_void,
    );
    } optional {
    cuCtxGetId(Handle, *mut u64);
    cuIpcGetMemHandle(*mut IpcHandle, DeviceAddress);
    cuIpcOpenMemHandle_v2(*mut DeviceAddress, IpcHandle, u32);
    cuIpcCloseMemHandle(DeviceAddress);
    cuIpcGetEventHandle(*mut IpcHandle, Handle);
    cuIpcOpenEventHandle(*mut Handle, IpcHandle);
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "pages are exported on Linux"))]
    cuMemExportToShareableHandle(*mut c_void, u64, i32, u64);
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "pages are exported on Linux"))]
    cuMemImportFromShareableHandle(*mut u64, *mut c_void, i32);
    cuMemGetAddressRange_v2(*mut DeviceAddress, *mut usize, DeviceAddress);
    cuEventElapsedTime(*mut f32, Handle, Handle);
    cuEventElapsedTime_v2(*mut f32, Handle, Handle);
    cuStreamGetCaptureInfo_v2(Handle, *mut i32, *mut u64, *mut Handle, *mut *const Handle, *mut usize);
    } by_cudarc {
    cuDeviceGet cuDeviceGetName cuDeviceTotalMem_v2 cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2
    cuGetErrorString cuStreamCreate cuStreamDestroy_v2
    }
}
