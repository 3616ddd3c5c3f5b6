//! What operations keep in a context of the driver: one module, and pinned memory that was not freed.

use crate::machine::Machine;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaContext, DevicePtr as _};
use orlop_alloc::{
    Allocator, Block, Request,
    engine_support::{DeviceOps, DevicePtr},
};
use orlop_core::Device;
use orlop_cuda::{CudaDevice, CudaOps, DeviceStream, caching_allocator};
use orlop_cudasim_control::{DriverOptions, SimulatedDriver, SimulationConfig};
use orlop_testkit::child;
use std::ptr::NonNull;
use std::sync::Arc;

/// The bytes of a buffer for copies of pageable memory.
const BUFFER: u64 = 2 << 20;

/// Fills a block by a kernel, and reads it through a pinned buffer.
fn use_kernel(ops: &CudaOps, stream: &DeviceStream, block: &Block) {
    // SAFETY: inside the block.
    unsafe { ops.fill(block.device_ptr(), &[1, 2, 3, 4, 5, 6, 7, 8], 100, stream.id()) }.unwrap();
    let mut bytes = vec![0_u8; 800];
    copy_out(ops, stream, block, &mut bytes).unwrap();
    assert!(bytes == [1, 2, 3, 4, 5, 6, 7, 8].repeat(100));
}

fn copy_out(
    ops: &CudaOps,
    stream: &DeviceStream,
    block: &Block,
    bytes: &mut [u8],
) -> orlop_alloc::Result<()> {
    let to = DevicePtr::new(NonNull::from(&mut *bytes).cast(), Device::CPU);
    // SAFETY: both have this many bytes, and are kept until the stream was waited for.
    unsafe { ops.copy(to, DevicePtr::new(block.as_ptr(), block.device()), bytes.len(), stream.id()) }?;
    ops.synchronize(stream.id())
}

/// Opens a device, uses everything once, and closes the device.
fn open_and_close() {
    let device = CudaDevice::new(0).unwrap();
    let stream = device.create_stream().unwrap();
    let block = caching_allocator(&device).unwrap().into_ref().allocate(&Request::new(800)).unwrap();
    for ops in [CudaOps::new(&device), CudaOps::new(&device)] {
        use_kernel(&ops, &stream, &block);
    }
}

#[test]
fn a_module_is_loaded_once_for_a_context_that_others_keep() {
    let Machine { device, driver } = Machine::new(&SimulationConfig::new());
    drop(device);
    for kept in 0..3 {
        let others = CudaContext::new(0).unwrap();
        for cycle in 0..5 {
            open_and_close();
            let loaded = (driver.calls("cuModuleLoadData"), driver.counts().modules);
            assert_eq!(loaded, (kept + 1, 1), "{cycle}");
        }
        // It ends with the last that keeps the context; the next one is another, with the same handle.
        drop(others);
        assert_eq!(driver.counts().modules, 0, "{kept}");
    }
    // Without others each device has a context of its own.
    for cycle in 0..3 {
        open_and_close();
        assert_eq!(driver.counts().modules, 0, "{cycle}");
    }
    assert_eq!(driver.calls("cuModuleLoadData"), 6);
    assert_eq!(driver.live_allocations(), []);
}

/// A graph keeps the context, not the device.
#[test]
fn a_graph_is_launched_after_its_device_was_closed() {
    let Machine { device, driver } = Machine::new(&SimulationConfig::new());
    let stream = device.create_stream().unwrap();
    let cudarc = Arc::clone(stream.cudarc());
    let memory = cudarc.alloc_zeros::<u8>(800).unwrap();
    let (address, ordered) = memory.device_ptr(&cudarc);
    drop(ordered);
    let ops = CudaOps::new(&device);
    ops.load_kernels().unwrap();
    cudarc.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
    let there = NonNull::new(std::ptr::with_exposed_provenance_mut(address as usize)).unwrap();
    let place = DevicePtr::new(there, device.device());
    // SAFETY: all of the memory, which is kept until the last launch.
    unsafe { ops.fill(place, &[1, 2, 3, 4, 5, 6, 7, 8], 100, stream.id()) }.unwrap();
    let graph = cudarc.end_capture(CUgraphInstantiate_flags(0)).unwrap().expect("a graph");
    drop((ops, stream, device));
    assert_eq!(driver.counts().modules, 1);
    graph.launch().unwrap();
    assert!(cudarc.clone_dtoh(&memory).unwrap() == [1, 2, 3, 4, 5, 6, 7, 8].repeat(100));
    drop((graph, memory, cudarc));
    assert_eq!(driver.counts().modules, 0);
}

#[test]
fn a_driver_without_ids_of_contexts_works() {
    const TEST: &str = "in_context::a_driver_without_ids_of_contexts_works";
    if !child::plays("without ids") {
        child::run(TEST, "without ids", &[]);
        return;
    }
    let options = DriverOptions::new().without_symbol("cuCtxGetId");
    let driver = SimulatedDriver::load_with(&options).expect("the simulated driver is built");
    driver.reset(&SimulationConfig::new()).unwrap();
    for cycle in 1..=3 {
        open_and_close();
        assert_eq!((driver.calls("cuModuleLoadData"), driver.counts().modules), (cycle, 0));
    }
}

/// The calls that free a buffer.
const FREEING: [&str; 4] =
    ["cuCtxGetCurrent", "cuThreadExchangeStreamCaptureMode", "cuCtxSetCurrent", "cuMemFreeHost"];

#[test]
fn a_buffer_that_was_not_freed_is_counted_and_freed_later() {
    for call in FREEING {
        for code in [1, 2, 900, 999] {
            let machine = Machine::new(&SimulationConfig::new());
            let stream = machine.device.create_stream().unwrap();
            let allocator = caching_allocator(&machine.device).unwrap().into_ref();
            let block = allocator.allocate(&Request::new(800).stream(stream.id())).unwrap();
            let ops = CudaOps::new(&machine.device);
            assert_eq!(ops.staging().kept, 0);
            copy_out(&ops, &stream, &block, &mut [0; 800]).unwrap();
            assert_eq!((ops.staging().kept, ops.staging().unfreed), (BUFFER, 0));

            machine.fail(call, 1, code).unwrap();
            drop(ops);
            machine.clear_faults();
            let ops = CudaOps::new(&machine.device);
            let (freed, unfreed) = (machine.counts().pinned, ops.staging().unfreed);
            assert_eq!(freed, unfreed, "{call} {code}: what is pinned is counted");
            assert_eq!(unfreed, BUFFER, "{call} {code}");

            // The next buffer is created after it was freed.
            copy_out(&ops, &stream, &block, &mut [0; 800]).unwrap();
            assert_eq!((ops.staging().kept, ops.staging().unfreed), (BUFFER, 0), "{call} {code}");
            assert_eq!(machine.counts().pinned, BUFFER, "{call} {code}");
            drop(ops);
            assert_eq!(machine.counts().pinned, 0, "{call} {code}");
        }
    }
}

#[test]
fn buffers_that_are_refused_again_and_again_are_all_kept_and_counted() {
    let machine = Machine::new(&SimulationConfig::new());
    let stream = machine.device.create_stream().unwrap();
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let block = allocator.allocate(&Request::new(800).stream(stream.id())).unwrap();
    for number in 1..=5 {
        let ops = CudaOps::new(&machine.device);
        copy_out(&ops, &stream, &block, &mut [0; 800]).unwrap();
        (1..=20).for_each(|nth| machine.fail("cuMemFreeHost", nth, 1).unwrap());
        drop(ops);
        assert_eq!(CudaOps::new(&machine.device).staging().unfreed, BUFFER, "{number}");
        machine.clear_faults();
    }
    // Elsewhere in the process, by a device that is opened again in the same context.
    let others = CudaContext::new(0).unwrap();
    drop((block, allocator, stream));
    let Machine { device, driver } = machine;
    drop(device);
    assert_eq!(driver.counts().pinned, BUFFER);
    open_and_close();
    assert_eq!(driver.counts().pinned, 0);
    drop(others);
}

#[test]
fn the_buffers_of_a_lost_device_are_counted() {
    let machine = Machine::new(&SimulationConfig::new().poison(false));
    let stream = machine.device.create_stream().unwrap();
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let block = allocator.allocate(&Request::new(800).stream(stream.id())).unwrap();
    let (ops, other) = (CudaOps::new(&machine.device), CudaOps::new(&machine.device));
    copy_out(&ops, &stream, &block, &mut [0; 800]).unwrap();
    machine.poison(0, 700).unwrap();
    copy_out(&other, &stream, &block, &mut [0; 800]).unwrap_err();
    assert_eq!(other.staging().unfreed, 0);
    drop(ops);
    assert_eq!((other.staging().unfreed, machine.counts().pinned), (BUFFER, BUFFER));
}
