//! What a device says about itself: its attributes and the structure of its properties.

use crate::abi::Out;
use crate::machine::Machine;
use orlop_dryrun::gpu::GpuModel;

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

/// Where the fields of `cudaDeviceProp` are that differ between versions of CUDA.
#[derive(Debug, Clone, Copy)]
pub(super) struct PropertiesForm {
    bytes: usize,
    multiprocessors: usize,
    map_host_memory: usize,
    concurrent_kernels: usize,
    bus: usize,
    copy_engines: usize,
    unified_addresses: usize,
    l2_cache: usize,
    /// Followed by stream priorities, and caches in L1 of global and local memory.
    threads: usize,
    /// Followed by the registers of a multiprocessor and managed memory.
    shared: usize,
    cooperative_launch: usize,
    shared_per_block: usize,
    blocks: usize,
    reserved_shared: usize,
    memory_pools: usize,
    cluster_launch: usize,
}

impl PropertiesForm {
    /// Of CUDA 12: `cudaGetDeviceProperties_v2`.
    pub(super) const CUDA_12: Self = Self {
        bytes: 1032,
        multiprocessors: 388,
        map_host_memory: 400,
        concurrent_kernels: 576,
        bus: 584,
        copy_engines: 600,
        unified_addresses: 604,
        l2_cache: 616,
        threads: 624,
        shared: 640,
        cooperative_launch: 688,
        shared_per_block: 696,
        blocks: 712,
        reserved_shared: 720,
        memory_pools: 744,
        cluster_launch: 772,
    };

    /// Of CUDA 13, which has fewer fields: `cudaGetDeviceProperties`.
    pub(super) const CUDA_13: Self = Self {
        bytes: 1008,
        multiprocessors: 384,
        map_host_memory: 392,
        concurrent_kernels: 560,
        bus: 568,
        copy_engines: 584,
        unified_addresses: 588,
        l2_cache: 596,
        threads: 604,
        shared: 624,
        cooperative_launch: 668,
        shared_per_block: 672,
        blocks: 688,
        reserved_shared: 696,
        memory_pools: 720,
        cluster_launch: 748,
    };
}

/// Writes `cudaDeviceProp`.
pub(super) fn write(machine: &Machine, device: usize, form: &PropertiesForm, out: &Out<u8>) {
    let (gpu, limits) = (machine.gpu(), machine.gpu().limits());
    let mut bytes = vec![0; form.bytes];
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
    put_u64(form.shared, limits.shared.into());
    put_u64(form.shared_per_block, limits.shared_per_block.into());
    put_u64(form.reserved_shared, 1024);
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
        (form.multiprocessors, gpu.multiprocessors),
        (form.map_host_memory, 1),
        (form.concurrent_kernels, 1),
        (form.bus + 4, device_number),
        (form.copy_engines, 3),
        (form.unified_addresses, 1),
        (form.l2_cache, gpu.l2_cache),
        (form.threads, limits.threads),
        (form.threads + 4, 1),
        (form.threads + 8, 1),
        (form.threads + 12, 1),
        (form.shared + 8, 65_536),
        (form.shared + 12, 1),
        (form.cooperative_launch, 1),
        (form.blocks, limits.blocks),
        (form.memory_pools, 1),
        (form.cluster_launch, u32::from(gpu.capability.0 >= 9)),
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
