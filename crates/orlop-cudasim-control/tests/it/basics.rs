//! Allocations, copies and fills.

use crate::support::{OK, allocate, at, start, start_with};
use cudarc::driver::{result, sys};
use orlop_cudasim_control::{LiveKind, SimulationConfig};
use std::ptr;
use sys::CUresult::{CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY};

#[test]
fn a_round_trip_keeps_the_bytes() {
    let (driver, context) = start();
    let stream = context.new_stream().expect("a stream");
    let values: Vec<u32> = (0..100_000).collect();
    let device = stream.clone_htod(&values).expect("a copy");
    let back = stream.clone_dtoh(&device).expect("a copy");
    stream.synchronize().expect("a wait");
    assert_eq!(back, values);
    drop(device);
    stream.synchronize().expect("a wait");
    assert_eq!(driver.races(), []);
    assert_eq!(driver.live_allocations(), []);
    assert_eq!(result::mem_get_info().expect("figures").1, 1 << 30);
}

#[test]
fn the_memory_limit_is_exact_and_leaks_are_listed() {
    let (driver, _context) = start_with(&SimulationConfig::new().memory(1 << 20));
    let half = allocate(1 << 19);
    let mut other = 0;
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut other, (1 << 19) + 1)), CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut other, 0)), CUDA_ERROR_INVALID_VALUE);
    let rest = allocate(1 << 19);
    assert_eq!(driver.used_memory(0), 1 << 20);
    assert_eq!(result::mem_get_info().expect("figures"), (0, 1 << 20));
    let live = driver.live_allocations();
    assert_eq!(
        live.iter().map(|found| (found.kind, found.bytes)).collect::<Vec<_>>(),
        [(LiveKind::Device, 1 << 19), (LiveKind::Device, 1 << 19)]
    );
    assert_eq!(cu!(cuMemFree_v2(half + 512)), CUDA_ERROR_INVALID_VALUE);
    for address in [half, rest] {
        assert_eq!(cu!(cuMemFree_v2(address)), OK);
    }
    assert_eq!(cu!(cuMemFree_v2(half)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemFree_v2(0)), OK);
    assert_eq!((driver.used_memory(0), driver.live_allocations()), (0, Vec::new()));
}

#[test]
fn new_memory_is_poisoned_and_freed_memory_is_gone() {
    let (driver, _context) = start();
    let address = allocate(1000);
    assert_eq!(driver.read(at(address), 1000).expect("it is there"), [0xCD; 1000]);
    driver.write(at(address), &[1; 1000]).expect("it is there");
    assert_eq!(cu!(cuMemFree_v2(address)), OK);
    assert!(driver.read(at(address), 1).is_err());
    let mut byte = 0u8;
    let copied = cu!(cuMemcpyDtoH_v2((&raw mut byte).cast(), address, 1));
    assert_eq!(copied, CUDA_ERROR_INVALID_VALUE);
    let again = allocate(1000);
    // The addresses are used again at once, and never with the bytes of before.
    assert_eq!(again, address);
    assert_eq!(driver.read(at(again), 1000).expect("it is there"), [0xCD; 1000]);
    // A copy that reaches one byte beyond an allocation is refused.
    let long = cu!(cuMemsetD8_v2(again, 0, 1001));
    assert_eq!(long, CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn fills_of_each_width_and_in_rows() {
    let (driver, context) = start();
    let stream = context.new_stream().expect("a stream");
    let address = allocate(64);
    assert_eq!(cu!(cuMemsetD8_v2(address, 0, 64)), OK);
    assert_eq!(cu!(cuMemsetD16_v2(address, 0x0102, 2)), OK);
    assert_eq!(cu!(cuMemsetD32_v2(address + 8, 0x0A0B_0C0D, 2)), OK);
    // The stream is not ordered with the default stream, that the fills above run in.
    context.synchronize().expect("a wait");
    assert_eq!(cu!(cuMemsetD2D8Async(address + 32, 8, 9, 3, 2, stream.cu_stream())), OK);
    assert_eq!(cu!(cuMemsetD32_v2(address + 2, 0, 1)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuCtxSynchronize()), OK);
    let mut expected = [0u8; 64];
    expected[..4].copy_from_slice(&[2, 1, 2, 1]);
    expected[8..16].copy_from_slice(&[0x0D, 0x0C, 0x0B, 0x0A, 0x0D, 0x0C, 0x0B, 0x0A]);
    expected[32..35].fill(9);
    expected[40..43].fill(9);
    assert_eq!(driver.read(at(address), 64).expect("it is there"), expected);
}

#[test]
fn rows_and_slices_are_copied() {
    let (driver, context) = start();
    let stream = context.new_stream().expect("a stream");
    let (from, to) = (allocate(512), allocate(512));
    let numbers: Vec<u8> = (0..=255).chain(0..=255).collect();
    driver.write(at(from), &numbers).expect("it is there");
    assert_eq!(cu!(cuMemsetD8_v2(to, 0, 512)), OK);
    let device = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
    let mut rows = sys::CUDA_MEMCPY2D {
        srcXInBytes: 2,
        srcY: 1,
        srcMemoryType: device,
        srcHost: ptr::null(),
        srcDevice: from,
        srcArray: ptr::null_mut(),
        srcPitch: 16,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: device,
        dstHost: ptr::null_mut(),
        dstDevice: to,
        dstArray: ptr::null_mut(),
        dstPitch: 4,
        WidthInBytes: 4,
        Height: 3,
    };
    assert_eq!(cu!(cuMemcpy2DAsync_v2(&raw const rows, stream.cu_stream())), OK);
    assert_eq!(cu!(cuStreamSynchronize(stream.cu_stream())), OK);
    let copied = driver.read(at(to), 13).expect("it is there");
    assert_eq!(copied, [18, 19, 20, 21, 34, 35, 36, 37, 50, 51, 52, 53, 0]);
    // A pitch below the width is refused.
    rows.dstPitch = 3;
    assert_eq!(cu!(cuMemcpy2D_v2(&raw const rows)), CUDA_ERROR_INVALID_VALUE);

    let mut host = [0u8; 8];
    let slices = sys::CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: device,
        srcHost: ptr::null(),
        srcDevice: from,
        srcArray: ptr::null_mut(),
        reserved0: ptr::null_mut(),
        srcPitch: 8,
        srcHeight: 4,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
        dstHost: host.as_mut_ptr().cast(),
        dstDevice: 0,
        dstArray: ptr::null_mut(),
        reserved1: ptr::null_mut(),
        dstPitch: 2,
        dstHeight: 2,
        WidthInBytes: 2,
        Height: 2,
        Depth: 2,
    };
    assert_eq!(cu!(cuMemcpy3DAsync_v2(&raw const slices, stream.cu_stream())), OK);
    assert_eq!(host, [0, 1, 8, 9, 32, 33, 40, 41]);
}

#[test]
fn managed_and_pinned_memory_and_what_a_pointer_is() {
    let (driver, _context) = start_with(&SimulationConfig::new().pinned_limit(8192));
    let mut managed = 0;
    assert_eq!(cu!(cuMemAllocManaged(&raw mut managed, 4096, 1)), OK);
    let pinned = crate::support::allocate_pinned(8192);
    let mut more = ptr::null_mut();
    assert_eq!(cu!(cuMemHostAlloc(&raw mut more, 1, 0)), CUDA_ERROR_OUT_OF_MEMORY);
    assert_eq!(driver.counts().pinned, 8192);
    let device = allocate(256);
    let kind = |address: u64| {
        let (mut kind, mut is_managed) = (0u32, 9u8);
        use sys::CUpointer_attribute_enum as Attribute;
        let name = Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        let found = cu!(cuPointerGetAttribute((&raw mut kind).cast(), name, address));
        let name = Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED;
        let _ = cu!(cuPointerGetAttribute((&raw mut is_managed).cast(), name, address));
        (found, kind, is_managed)
    };
    assert_eq!(kind(device + 255), (OK, 2, 0));
    assert_eq!(kind(managed), (OK, 2, 1));
    assert_eq!(kind(pinned.expose_provenance() as u64), (OK, 1, 0));
    assert_eq!(kind(0x1234), (CUDA_ERROR_INVALID_VALUE, 0, 9));
    let (mut start, mut bytes) = (0, 0);
    assert_eq!(cu!(cuMemGetAddressRange_v2(&raw mut start, &raw mut bytes, device + 100)), OK);
    assert_eq!((start, bytes), (device, 256));
    assert_eq!(cu!(cuMemFreeHost(pinned)), OK);
    assert_eq!(cu!(cuMemFreeHost(pinned)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemFree_v2(managed)), OK);
    // Registered memory of the program.
    let mut own = vec![0u8; 4096];
    let own = own.as_mut_ptr().cast::<std::ffi::c_void>();
    assert_eq!(cu!(cuMemHostRegister_v2(own, 4096, 0)), OK);
    let twice = cu!(cuMemHostRegister_v2(own, 1, 0));
    assert_eq!(twice, sys::CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    assert_eq!(kind(own.expose_provenance() as u64), (OK, 1, 0));
    assert_eq!(cu!(cuMemHostUnregister(own)), OK);
    let twice = cu!(cuMemHostUnregister(own));
    assert_eq!(twice, sys::CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

#[test]
fn a_thread_without_a_context_is_refused() {
    let (_driver, _context) = start();
    let refused = std::thread::spawn(|| {
        let mut address = 0;
        cu!(cuMemAlloc_v2(&raw mut address, 64))
    });
    assert_eq!(refused.join().expect("no panic"), CUDA_ERROR_INVALID_CONTEXT);
}
