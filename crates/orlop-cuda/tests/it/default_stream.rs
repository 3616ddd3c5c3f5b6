//! The default stream while a stream captures that it waits for: work there would end the capture.

use crate::machine::Machine;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode, CUstreamCaptureStatus};
use cudarc::driver::{CudaStream, result::stream};
use orlop_alloc::{Allocator, Request, Result, engine_support::DeviceOps};
use orlop_cuda::{CudaError, CudaOps, DeviceBuffer, DriverAllocator, KernelPointer, caching_allocator};
use orlop_cudasim_control::SimulationConfig;
use std::sync::Arc;

const BYTES: usize = 1 << 20;

type Refused = std::result::Result<(), CudaError>;

/// A stream that the default stream waits for, and that waits for it. Streams of cudarc do neither.
pub(crate) fn blocking_stream(machine: &Machine) -> Arc<CudaStream> {
    machine.device.context().bind_to_thread().unwrap();
    let handle = stream::create(stream::StreamKind::Default).unwrap();
    // SAFETY: a stream of this context, which is destroyed after the test, with the driver.
    unsafe { machine.device.context().wrap_borrowed_stream(handle) }
}

fn of_backend<T>(result: Result<T>) -> Refused {
    result.map(drop).map_err(|error| *error.backend_error::<CudaError>().expect("an error of CUDA"))
}

/// Each call is refused and the capture goes on; after the capture each is made.
#[test]
fn work_on_the_default_stream_is_refused_in_a_capture() {
    let machine = Machine::new(&SimulationConfig::new());
    let device = &machine.device;
    let captured = blocking_stream(&machine);
    let (ops, other) = (CudaOps::new(device), device.create_stream().unwrap());
    let default = device.adopt_stream(device.context().default_stream()).unwrap();
    let direct = DriverAllocator::direct(device).into_ref();
    let ordered = DriverAllocator::stream_ordered(device).unwrap().into_ref();
    let caching = caching_allocator(device).unwrap().into_ref();
    let request = Request::new(BYTES);
    let block = direct.allocate(&request).unwrap();
    let of_other = caching.allocate(&request.stream(other.id())).unwrap();
    let buffer = DeviceBuffer::<u8>::zeroed(&caching, &default, BYTES).unwrap();
    let calls: [(&str, &dyn Fn() -> Refused); 10] = [
        ("create_stream", &|| device.create_stream().map(drop)),
        // SAFETY: inside the block.
        ("fill", &|| of_backend(unsafe { ops.fill(block.device_ptr(), &[1], BYTES, default.id()) })),
        ("zeroed", &|| of_backend(direct.allocate(&request.zeroed()))),
        ("stream-ordered", &|| of_backend(ordered.allocate(&request))),
        ("synchronize", &|| default.synchronize()),
        ("synchronize by operations", &|| of_backend(ops.synchronize(default.id()))),
        ("wait for it", &|| other.wait_for(default.id())),
        ("let it wait", &|| default.wait_for(other.id())),
        ("a pointer", &|| of_backend(KernelPointer::<u8>::of(&of_other, &default))),
        ("a copy to the host", &|| of_backend(buffer.to_vec())),
    ];
    captured.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
    for (name, call) in calls {
        assert!(matches!(call(), Err(CudaError::Capturing { .. })), "{name}: {:?}", call());
        let active = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
        assert_eq!(captured.capture_status(), Ok(active), "{name}");
    }
    assert!(captured.end_capture(CUgraphInstantiate_flags(0)).unwrap().is_some());
    for (name, call) in calls {
        assert_eq!(call(), Ok(()), "{name}");
    }
    assert_eq!(machine.races(), []);
}
