//! Virtual memory management.

use crate::support::{OK, at, handle, start, start_with};
use cudarc::driver::sys;
use orlop_cudasim_control::{KernelRun, LiveKind, SimulationConfig};
use sys::CUresult::{
    CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY,
};

const PAGE: usize = 2 << 20;
const PAGE_STEP: u64 = 2 << 20;

fn properties() -> sys::CUmemAllocationProp {
    // SAFETY: zero is a valid value of every field.
    let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
    properties.type_ = sys::CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type_ = sys::CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE;
    properties
}

/// Creates physical memory of so many pages.
pub(crate) fn create(pages: usize) -> Result<sys::CUmemGenericAllocationHandle, sys::CUresult> {
    let mut handle = 0;
    match cu!(cuMemCreate(&raw mut handle, pages * PAGE, &properties(), 0)) {
        OK => Ok(handle),
        code => Err(code),
    }
}

fn reserve(pages: usize) -> sys::CUdeviceptr {
    let mut address = 0;
    assert_eq!(cu!(cuMemAddressReserve(&raw mut address, pages * PAGE, 0, 0, 0)), OK);
    address
}

fn allow(address: sys::CUdeviceptr, pages: usize, flags: sys::CUmemAccess_flags) -> sys::CUresult {
    let access = sys::CUmemAccessDesc { location: properties().location, flags };
    cu!(cuMemSetAccess(address, pages * PAGE, &raw const access, 1))
}

const READ_WRITE: sys::CUmemAccess_flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
const READ: sys::CUmemAccess_flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ;

#[test]
fn one_page_at_two_addresses_is_one_page() {
    let (driver, context) = start();
    let (a, b) = (context.new_stream().expect("a stream"), context.new_stream().expect("a stream"));
    let range = reserve(4);
    let page = create(1).expect("memory");
    let (first, second) = (range, range + 3 * PAGE_STEP);
    for address in [first, second] {
        assert_eq!(cu!(cuMemMap(address, PAGE, 0, page, 0)), OK);
        assert_eq!(allow(address, 1, READ_WRITE), OK);
    }
    assert_eq!(driver.used_memory(0), PAGE as u64);
    assert_eq!(driver.read(at(second), 4).expect("it is mapped"), [0xCD; 4]);
    assert_eq!(cu!(cuMemsetD8Async(first, 5, 100, a.cu_stream())), OK);
    a.synchronize().expect("a wait");
    assert_eq!(driver.read(at(second), 101).expect("it is mapped")[98..], [5, 5, 0xCD]);
    assert_eq!(driver.races(), []);
    // The race check sees through the alias.
    driver.run_kernel(handle(&a), KernelRun::new("a").writes(at(first), 8)).expect("ok");
    driver.run_kernel(handle(&b), KernelRun::new("b").reads(at(second) + 4, 8)).expect("ok");
    assert_eq!(driver.take_races().len(), 1);
    context.synchronize().expect("a wait");
    // The handle is not needed while there are mappings.
    assert_eq!(cu!(cuMemRelease(page)), OK);
    assert_eq!(cu!(cuMemRelease(page)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemUnmap(first, PAGE)), OK);
    assert_eq!(driver.read(at(second), 1).expect("it is mapped"), [5]);
    assert_eq!(cu!(cuMemAddressFree(range, 4 * PAGE)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemUnmap(second, PAGE)), OK);
    assert_eq!((driver.used_memory(0), driver.races()), (0, Vec::new()));
    assert_eq!(cu!(cuMemAddressFree(range, 4 * PAGE)), OK);
    assert_eq!(driver.live_allocations(), []);
}

#[test]
fn contiguous_mappings_serve_one_operation() {
    let (driver, context) = start();
    let stream = context.new_stream().expect("a stream");
    let range = reserve(2);
    for page in 0..2u64 {
        let handle = create(1).expect("memory");
        assert_eq!(cu!(cuMemMap(range + page * PAGE_STEP, PAGE, 0, handle, 0)), OK);
        assert_eq!(cu!(cuMemRelease(handle)), OK);
    }
    // Access can be set for several mappings at once, but only for whole ones.
    assert_eq!(allow(range + PAGE_STEP, 2, READ_WRITE), CUDA_ERROR_INVALID_VALUE);
    let refused = cu!(cuMemsetD8Async(range, 1, 2 * PAGE, stream.cu_stream()));
    assert_eq!(refused, CUDA_ERROR_INVALID_VALUE);
    assert_eq!(allow(range, 2, READ_WRITE), OK);
    assert_eq!(cu!(cuMemsetD8Async(range, 1, 2 * PAGE, stream.cu_stream())), OK);
    stream.synchronize().expect("a wait");
    assert_eq!(driver.read(at(range) + PAGE - 2, 4).expect("it is mapped"), [1; 4]);
    assert_eq!(cu!(cuMemUnmap(range + PAGE_STEP / 2, PAGE)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemUnmap(range, 2 * PAGE)), OK);
    assert!(driver.read(at(range), 1).is_err());
}

#[test]
fn unmapping_under_a_stream_is_a_race_and_an_illegal_address() {
    let (driver, context) = start();
    let stream = context.new_stream().expect("a stream");
    let range = reserve(1);
    let page = create(1).expect("memory");
    assert_eq!(cu!(cuMemMap(range, PAGE, 0, page, 0)), OK);
    assert_eq!(allow(range, 1, READ_WRITE), OK);
    let run = KernelRun::new("long").writes(at(range), 64).takes(std::time::Duration::from_millis(1));
    driver.run_kernel(handle(&stream), run).expect("ok");
    assert_eq!(cu!(cuMemUnmap(range, PAGE)), OK);
    let races = driver.take_races();
    assert_eq!((races.len(), races[0].later.name.as_str()), (1, "cuMemUnmap"));
    assert_eq!(cu!(cuStreamSynchronize(stream.cu_stream())), CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn a_write_to_read_only_memory_is_an_illegal_address() {
    let (driver, context) = start();
    let stream = context.new_stream().expect("a stream");
    let range = reserve(1);
    let page = create(1).expect("memory");
    assert_eq!(cu!(cuMemMap(range, PAGE, 0, page, 0)), OK);
    assert_eq!(allow(range, 1, READ), OK);
    assert_eq!(driver.read(at(range), 2).expect("it is mapped"), [0xCD; 2]);
    assert_eq!(cu!(cuMemsetD8Async(range, 1, 64, stream.cu_stream())), OK);
    assert_eq!(cu!(cuStreamSynchronize(stream.cu_stream())), CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn limits_and_arguments_are_checked() {
    let (driver, _context) = start_with(&SimulationConfig::new().memory(4 << 20));
    let mut granularity = 0;
    let option = sys::CUmemAllocationGranularity_flags_enum::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    let asked = cu!(cuMemGetAllocationGranularity(&raw mut granularity, &properties(), option));
    assert_eq!((asked, granularity), (OK, PAGE));
    let page = create(2).expect("memory");
    assert_eq!(create(1), Err(CUDA_ERROR_OUT_OF_MEMORY));
    let mut handle = 0;
    let odd = cu!(cuMemCreate(&raw mut handle, PAGE + 1, &properties(), 0));
    assert_eq!(odd, CUDA_ERROR_INVALID_VALUE);
    let range = reserve(2);
    // Not reserved, not aligned, beyond the handle's memory, mapped already.
    assert_eq!(cu!(cuMemMap(range + PAGE_STEP, 2 * PAGE, 0, page, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemMap(range + 512, PAGE, 0, page, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemMap(range, 2 * PAGE, PAGE, page, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemMap(range, PAGE, PAGE, page, 0)), OK);
    assert_eq!(cu!(cuMemMap(range, PAGE, 0, page, 0)), CUDA_ERROR_INVALID_VALUE);
    let mut same = 0;
    let address = std::ptr::without_provenance_mut(at(range) + 100);
    assert_eq!(cu!(cuMemRetainAllocationHandle(&raw mut same, address)), OK);
    assert_eq!(same, page);
    assert_eq!(cu!(cuMemRelease(page)), OK);
    assert_eq!(cu!(cuMemUnmap(range, PAGE)), OK);
    assert_eq!(driver.used_memory(0), 4 << 20);
    assert_eq!(cu!(cuMemRelease(page)), OK);
    assert_eq!(driver.used_memory(0), 0);
    let live: Vec<LiveKind> = driver.live_allocations().iter().map(|found| found.kind).collect();
    assert_eq!(live, [LiveKind::Reservation]);
}

#[test]
fn a_device_may_lack_it() {
    let (_driver, context) = start_with(&SimulationConfig::new().virtual_memory(false));
    let name = sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    assert_eq!(context.attribute(name), Ok(0));
    let mut address = 0;
    assert_eq!(cu!(cuMemAddressReserve(&raw mut address, PAGE, 0, 0, 0)), CUDA_ERROR_NOT_SUPPORTED);
    assert_eq!(create(1), Err(CUDA_ERROR_NOT_SUPPORTED));
}
