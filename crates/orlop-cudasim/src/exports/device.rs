//! Devices and their properties.

use crate::abi::{Out, write_text};
use crate::call::calls;
use crate::codes::Failure;
use crate::driver::Driver;
use crate::exports::limits::MULTIPROCESSORS;

/// The properties of a simulated device, by the number of their `CUdevice_attribute`.
fn attribute(driver: &Driver, attribute: i32) -> Option<i32> {
    let has = i32::from;
    Some(match attribute {
        1 => 1024,                                       // MAX_THREADS_PER_BLOCK
        2 | 3 => 1024,                                   // MAX_BLOCK_DIM_X, _Y
        4 => 64,                                         // MAX_BLOCK_DIM_Z
        5 => i32::MAX,                                   // MAX_GRID_DIM_X
        6 | 7 => 65_535,                                 // MAX_GRID_DIM_Y, _Z
        8 => 49_152,                                     // MAX_SHARED_MEMORY_PER_BLOCK
        10 => 32,                                        // WARP_SIZE
        11 => i32::MAX,                                  // MAX_PITCH
        13 => 1_000_000,                                 // CLOCK_RATE
        14 => 512,                                       // TEXTURE_ALIGNMENT
        16 => MULTIPROCESSORS,                           // MULTIPROCESSOR_COUNT
        19 => 1,                                         // CAN_MAP_HOST_MEMORY
        31 => 1,                                         // CONCURRENT_KERNELS
        39 => 2048,                                      // MAX_THREADS_PER_MULTIPROCESSOR
        40 => 2,                                         // ASYNC_ENGINE_COUNT
        41 => 1,                                         // UNIFIED_ADDRESSING
        75 => 9,                                         // COMPUTE_CAPABILITY_MAJOR
        76 => 0,                                         // COMPUTE_CAPABILITY_MINOR
        78 => 1,                                         // STREAM_PRIORITIES_SUPPORTED
        81 => 233_472,                                   // MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
        82 => 65_536,                                    // MAX_REGISTERS_PER_MULTIPROCESSOR
        83 | 89 => 1,                                    // MANAGED_MEMORY, CONCURRENT_MANAGED_ACCESS
        91 => 1,                                         // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        97 => 232_448,                                   // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        99 => 1,                                         // HOST_REGISTER_SUPPORTED
        102 => has(driver.config.has_vmm),               // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        103 => driver.config.page_handle_types & 1,      // HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
        110 => has(driver.config.has_rdma),              // GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
        115 => has(driver.config.has_pools),             // MEMORY_POOLS_SUPPORTED
        125 => 1,                                        // IPC_EVENT_SUPPORTED
        128 => driver.config.page_handle_types >> 3 & 1, // HANDLE_TYPE_FABRIC_SUPPORTED
        // Every other property: unsupported, or zero of it.
        12
        | 15
        | 17
        | 18
        | 20..=30
        | 32..=38
        | 42..=74
        | 77
        | 79
        | 80
        | 84..=88
        | 90
        | 92..=96
        | 98
        | 100
        | 101
        | 104..=109
        | 111..=114
        | 116..=124
        | 126..=127
        | 129..=150 => 0,
        9 => 65_536, // TOTAL_CONSTANT_MEMORY
        _ => return None,
    })
}

/// Returns an id that is the same in every run.
fn uuid(device: usize) -> [u8; 16] {
    let mut id = *b"orlop-cudasim-00";
    id[15] = id[15].wrapping_add(u8::try_from(device % 10).unwrap_or(0));
    id
}

calls! {
    fn cuDeviceGetCount(count: Out<i32>) Init |driver| {
        count.set(i32::try_from(driver.devices.len()).unwrap_or(i32::MAX))
    }

    fn cuDeviceGet(device: Out<i32>, ordinal: i32) Init |driver| {
        driver.device(ordinal)?;
        device.set(ordinal)
    }

    fn cuDeviceGetName(name: Out<u8>, length: i32, device: i32) Init |driver| {
        driver.device(device)?;
        write_text(&name, length, "Simulated device (host memory)")
    }

    fn cuDeviceGetUuid(id: Out<[u8; 16]>, device: i32) Init |driver| {
        id.set(uuid(driver.device(device)?))
    }

    fn cuDeviceGetUuid_v2(id: Out<[u8; 16]>, device: i32) Init |driver| {
        id.set(uuid(driver.device(device)?))
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) Init |driver| {
        let device = driver.device(device)?;
        bytes.set(usize::try_from(driver.devices[device].total).unwrap_or(usize::MAX))
    }

    fn cuDeviceGetAttribute(value: Out<i32>, name: i32, device: i32) Init |driver| {
        driver.device(device)?;
        value.set(attribute(driver, name).ok_or(Failure::INVALID_VALUE)?)
    }

    fn cuDeviceGetPCIBusId(id: Out<u8>, length: i32, device: i32) Init |driver| {
        let device = driver.device(device)?;
        write_text(&id, length, &format!("0000:{device:02x}:00.0"))
    }
}
