//! Structures and numbers of the driver's C interface that this crate passes.
//!
//! cudarc declares them too, but differently for each toolkit version that is selected by its features. The
//! layout is the same in all of them, so these declarations fit whatever a program selects.

use std::ffi::c_void;

/// A handle of the driver: a stream, an event, a context.
pub(crate) type Handle = *mut c_void;

/// An address on a device.
pub(crate) type DeviceAddress = u64;

/// `CUDA_SUCCESS`.
pub(crate) const SUCCESS: i32 = 0;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub(crate) const OUT_OF_MEMORY: i32 = 2;
/// `CUDA_ERROR_NO_DEVICE`.
pub(crate) const NO_DEVICE: i32 = 100;
/// `CUDA_ERROR_INVALID_CONTEXT`.
pub(crate) const INVALID_CONTEXT: i32 = 201;
/// `CUDA_ERROR_NOT_READY`.
pub(crate) const NOT_READY: i32 = 600;

/// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`.
pub(crate) const CAPTURE_IMPLICIT: i32 = 906;

/// `CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_NOT_SUPPORTED`.
pub(crate) const INVALID_VALUE: i32 = 1;
pub(crate) const NOT_SUPPORTED: i32 = 801;

/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`.
pub(crate) const PEER_ACCESS_ALREADY_ENABLED: i32 = 704;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`, `CU_MEM_HANDLE_TYPE_FABRIC`.
pub(crate) const HANDLE_FILE_DESCRIPTOR: i32 = 1;
pub(crate) const HANDLE_FABRIC: i32 = 8;

/// The default of `cuEventCreate`, `CU_EVENT_DISABLE_TIMING` and `CU_EVENT_INTERPROCESS`.
pub(crate) const EVENT_WITH_TIMING: u32 = 0;
pub(crate) const EVENT_DISABLE_TIMING: u32 = 2;
pub(crate) const EVENT_INTERPROCESS: u32 = 4;
/// `CU_MEMHOSTALLOC_PORTABLE`: pinned for all contexts.
pub(crate) const HOST_ALLOC_PORTABLE: u32 = 1;
/// `CU_MEM_ATTACH_GLOBAL`.
pub(crate) const ATTACH_GLOBAL: u32 = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
pub(crate) const CAPTURE_MODE_RELAXED: i32 = 2;
/// `CU_STREAM_CAPTURE_STATUS_NONE`.
pub(crate) const CAPTURE_STATUS_NONE: i32 = 0;

/// `CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY`.
pub(crate) const ATTRIBUTE_MANAGED_MEMORY: i32 = 83;
/// `CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED`.
pub(crate) const ATTRIBUTE_VIRTUAL_MEMORY: i32 = 102;
/// `CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED`.
pub(crate) const ATTRIBUTE_FILE_DESCRIPTORS: i32 = 103;
/// `CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED`.
pub(crate) const ATTRIBUTE_FABRIC: i32 = 128;
/// `CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED`.
pub(crate) const ATTRIBUTE_RDMA_PAGES: i32 = 110;
/// `CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED`.
pub(crate) const ATTRIBUTE_MEMORY_POOLS: i32 = 115;

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`.
pub(crate) const POINTER_MEMORY_TYPE: i32 = 2;
/// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
pub(crate) const POINTER_DEVICE_ORDINAL: i32 = 9;

/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
pub(crate) const POOL_RELEASE_THRESHOLD: i32 = 4;
/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`.
pub(crate) const POOL_RESERVED: i32 = 5;
/// `CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH`.
pub(crate) const POOL_RESERVED_HIGH: i32 = 6;
/// `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`.
pub(crate) const POOL_USED: i32 = 7;
/// `CU_MEMPOOL_ATTR_USED_MEM_HIGH`.
pub(crate) const POOL_USED_HIGH: i32 = 8;

/// `CU_MEMORYTYPE_HOST`.
pub(crate) const MEMORY_TYPE_HOST: i32 = 1;
/// `CU_MEMORYTYPE_DEVICE`.
pub(crate) const MEMORY_TYPE_DEVICE: i32 = 2;

/// `CUmemLocation`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct MemoryLocation {
    /// `CU_MEM_LOCATION_TYPE_DEVICE`.
    kind: i32,
    id: i32,
}

/// `CUmemAllocationProp`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct AllocationProperties {
    /// `CU_MEM_ALLOCATION_TYPE_PINNED`.
    kind: i32,
    handle_types: i32,
    location: MemoryLocation,
    win32: *mut c_void,
    flags: [u8; 8],
}

impl AllocationProperties {
    /// Returns the properties of memory on a device that is exported by handles of these types, and which
    /// other hardware can access if `is_rdma`.
    pub(crate) fn on_device(ordinal: i32, handle_types: i32, is_rdma: bool) -> Self {
        let location = MemoryLocation { kind: 1, id: ordinal };
        // The second one is `gpuDirectRDMACapable`.
        let flags = [0, u8::from(is_rdma), 0, 0, 0, 0, 0, 0];
        Self { kind: 1, handle_types, location, win32: std::ptr::null_mut(), flags }
    }
}

/// `CUmemPoolProps`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct PoolProperties {
    /// `CU_MEM_ALLOCATION_TYPE_PINNED`.
    kind: i32,
    handle_types: i32,
    location: MemoryLocation,
    win32: *mut c_void,
    max_size: usize,
    reserved: [u8; 56],
}

impl PoolProperties {
    /// Returns the properties of a pool of memory on a device that is not exported.
    pub(crate) fn on_device(ordinal: i32) -> Self {
        let location = MemoryLocation { kind: 1, id: ordinal };
        Self {
            kind: 1,
            handle_types: 0,
            location,
            win32: std::ptr::null_mut(),
            max_size: 0,
            reserved: [0; 56],
        }
    }
}

/// `CUmemAccessDesc`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct AccessDescriptor {
    location: MemoryLocation,
    /// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
    flags: i32,
}

impl AccessDescriptor {
    /// Returns the right of a device to read and write.
    pub(crate) fn read_write(ordinal: i32) -> Self {
        Self { location: MemoryLocation { kind: 1, id: ordinal }, flags: 3 }
    }
}

/// `CUipcMemHandle`, `CUipcEventHandle` and `CUmemFabricHandle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct IpcHandle(pub(crate) [u8; 64]);

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
pub(crate) const IPC_LAZY_PEER_ACCESS: u32 = 1;

/// `CUDA_MEMCPY3D`, for memory that is addressed by rows of a pitch.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Copy3D {
    pub(crate) from: CopySide,
    pub(crate) to: CopySide,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// One side of a [`Copy3D`].
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct CopySide {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    kind: i32,
    host: *mut c_void,
    device: DeviceAddress,
    array: *mut c_void,
    reserved: *mut c_void,
    pitch: usize,
    height: usize,
}

impl CopySide {
    /// Returns a side on the device, or on the host, with rows of `pitch` bytes and planes of `height` rows.
    pub(crate) fn new(address: usize, on_host: bool, pitch: usize, height: usize) -> Self {
        let null = std::ptr::null_mut();
        let host = if on_host { std::ptr::with_exposed_provenance_mut(address) } else { null };
        Self {
            x: 0,
            y: 0,
            z: 0,
            level: 0,
            kind: if on_host { MEMORY_TYPE_HOST } else { MEMORY_TYPE_DEVICE },
            host,
            device: if on_host { 0 } else { address as DeviceAddress },
            array: null,
            reserved: null,
            pitch,
            height,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys;
    use std::mem::offset_of;

    #[test]
    fn layouts_are_those_of_cudarc() {
        assert_eq!(size_of::<AllocationProperties>(), size_of::<sys::CUmemAllocationProp>());
        assert_eq!(
            offset_of!(AllocationProperties, location),
            offset_of!(sys::CUmemAllocationProp, location)
        );
        assert_eq!(size_of::<PoolProperties>(), size_of::<sys::CUmemPoolProps>());
        assert_eq!(offset_of!(PoolProperties, location), offset_of!(sys::CUmemPoolProps, location));
        assert_eq!(size_of::<AccessDescriptor>(), size_of::<sys::CUmemAccessDesc>());
        assert_eq!(size_of::<IpcHandle>(), size_of::<sys::CUipcMemHandle>());
        assert_eq!(size_of::<IpcHandle>(), size_of::<sys::CUipcEventHandle>());
        assert_eq!(size_of::<Copy3D>(), size_of::<sys::CUDA_MEMCPY3D>());
        assert_eq!(
            offset_of!(Copy3D, to) + offset_of!(CopySide, pitch),
            offset_of!(sys::CUDA_MEMCPY3D, dstPitch)
        );
        assert_eq!(offset_of!(Copy3D, width), offset_of!(sys::CUDA_MEMCPY3D, WidthInBytes));
    }
}
