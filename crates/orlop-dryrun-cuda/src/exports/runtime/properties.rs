//! What a device says about itself: its attributes and the structure of its properties.

use crate::abi::Out;
use crate::machine::Machine;
use orlop_dryrun::gpu::GpuModel;

/// Bytes of `cudaDeviceProp` of CUDA 13.
const BYTES: usize = 1008;

/// Returns the value of a device attribute. Those of features that a dry run lacks, and of textures, are 0.
pub(in crate::exports) fn attribute(gpu: &GpuModel, device: usize, number: i32) -> i32 {
    let limits = gpu.limits();
    let value = match number {
        // Threads of a block, in all and by dimension; blocks of a grid by dimension.
        1..=3 => 1024,
        4 => 64,
        5 => 0x7fff_ffff,
        6 | 7 => 65_535,
        8 => 48 << 10,
        9 => 64 << 10,
        10 => 32,
        11 => 0x7fff_ffff,
        // Registers of a block and of a multiprocessor.
        12 | 82 => 65_536,
        14 => 512,
        16 => gpu.multiprocessors,
        34 => u32::try_from(device).unwrap_or(u32::MAX),
        38 => gpu.l2_cache,
        39 => limits.threads,
        40 => 3,
        75 => gpu.capability.0.into(),
        76 => gpu.capability.1.into(),
        81 => limits.shared,
        97 => limits.shared_per_block,
        106 => limits.blocks,
        111 => 1024,
        120 => u32::from(gpu.capability.0 >= 9),
        // Mapped host memory, concurrent kernels, unified addresses, priorities, caches, managed memory,
        // cooperative launches, virtual memory, its handles as file descriptors, pools.
        19 | 31 | 41 | 78..=80 | 83 | 95 | 102 | 103 | 115 => 1,
        _ => 0,
    };
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// Writes `cudaDeviceProp` of CUDA 13.
pub(super) fn write(machine: &Machine, device: usize, out: &Out<u8>) {
    let (gpu, limits) = (machine.gpu(), machine.gpu().limits());
    let mut bytes = [0; BYTES];
    let name = gpu.name.as_bytes();
    bytes[..name.len().min(255)].copy_from_slice(&name[..name.len().min(255)]);
    let uuid = 256..272;
    bytes[uuid].copy_from_slice(&uuid_of(device));
    let mut put_u64 = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    put_u64(288, gpu.memory);
    put_u64(296, 48 << 10);
    put_u64(312, 0x7fff_ffff);
    put_u64(352, 64 << 10);
    put_u64(368, 512);
    put_u64(376, 32);
    put_u64(624, limits.shared.into());
    put_u64(672, limits.shared_per_block.into());
    put_u64(696, 1024);
    let device_number = u32::try_from(device).unwrap_or(u32::MAX);
    let u32s = [
        (304, 65_536),
        (308, 32),
        (320, 1024),
        (324, 1024),
        (328, 1024),
        (332, 64),
        (336, 0x7fff_ffff),
        (340, 65_535),
        (344, 65_535),
        (360, gpu.capability.0.into()),
        (364, gpu.capability.1.into()),
        (384, gpu.multiprocessors),
        (392, 1),
        (560, 1),
        (572, device_number),
        (584, 3),
        (588, 1),
        (596, gpu.l2_cache),
        (604, limits.threads),
        (608, 1),
        (612, 1),
        (616, 1),
        (632, 65_536),
        (636, 1),
        (668, 1),
        (688, limits.blocks),
        (720, 1),
        (748, u32::from(gpu.capability.0 >= 9)),
    ];
    for (at, value) in u32s {
        bytes[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
    }
    out.write(&bytes);
}

/// Returns the unique number of a device.
pub(in crate::exports) fn uuid_of(device: usize) -> [u8; 16] {
    let mut uuid = *b"orlop-dry-run-00";
    uuid[15] += u8::try_from(device).unwrap_or(0);
    uuid
}

/// Returns the address of a device on the bus, as text.
pub(in crate::exports) fn bus_address(device: usize) -> String {
    format!("00000000:00:{device:02X}.0")
}
