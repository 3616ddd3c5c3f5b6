//! Devices, contexts, access between devices, and codes for what is not simulated.

use crate::support::{OK, allocate, at, driver, start, start_with};
use cudarc::driver::{CudaContext, result, sys};
use orlop_cudasim_control::SimulationConfig;
use std::ptr;
use sys::CUresult::{
    CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_HANDLE,
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NO_DEVICE, CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_NOT_SUPPORTED,
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
};

#[test]
fn a_machine_without_devices_or_with_several() {
    let sim = driver(&SimulationConfig::new().devices([]));
    let mut count = 0;
    assert_eq!(cu!(cuDeviceGetCount(&raw mut count)), CUDA_ERROR_NOT_INITIALIZED);
    assert_eq!(CudaContext::new(0).map(|_| ()).map_err(|error| error.0), Err(CUDA_ERROR_NO_DEVICE));
    sim.reset(&SimulationConfig::new().devices([1 << 20, 2 << 20]).version(12_040)).expect("a reset");
    let mut version = 0;
    assert_eq!(cu!(cuDriverGetVersion(&raw mut version)), OK);
    assert_eq!(version, 12_040);
    let contexts = [0, 1].map(|device| CudaContext::new(device).expect("a device"));
    assert_eq!(CudaContext::new(2).map(|_| ()).map_err(|error| error.0), Err(CUDA_ERROR_INVALID_DEVICE));
    assert_eq!(result::device::get_count(), Ok(2));
    assert_ne!(contexts[0].uuid().expect("an id").bytes, contexts[1].uuid().expect("an id").bytes);
    for (device, context) in contexts.iter().enumerate() {
        context.bind_to_thread().expect("a context");
        assert_eq!(result::mem_get_info().expect("figures").1, (1 << 20) << device);
        allocate(4096);
        assert_eq!(sim.used_memory(device), 4096);
        assert!(context.name().expect("a name").contains("Simulated"));
    }
    // An event of one device is not recorded in a stream of another.
    let stream = contexts[0].new_stream().expect("a stream");
    contexts[1].bind_to_thread().expect("a context");
    let mut event = ptr::null_mut();
    assert_eq!(cu!(cuEventCreate(&raw mut event, 2)), OK);
    assert_eq!(cu!(cuEventRecord(event, stream.cu_stream())), CUDA_ERROR_INVALID_HANDLE);
}

#[test]
fn access_between_devices_is_a_matter_of_configuration() {
    for has_access in [false, true] {
        let config = SimulationConfig::new().devices([1 << 20, 1 << 20]).peer_access(has_access);
        let (sim, first) = start_with(&config);
        let second = CudaContext::new(1).expect("a device");
        let from = allocate(64);
        first.bind_to_thread().expect("a context");
        let to = allocate(64);
        let mut can = 0;
        assert_eq!(cu!(cuDeviceCanAccessPeer(&raw mut can, 0, 1)), OK);
        assert_eq!(can, i32::from(has_access));
        let enable = || cu!(cuCtxEnablePeerAccess(second.cu_ctx(), 0));
        if has_access {
            assert_eq!((enable(), enable()), (OK, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED));
        } else {
            assert_eq!(enable(), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
        }
        // A copy between devices works in either case, through the host if need be.
        sim.write(at(from), &[9; 64]).expect("it is there");
        let stream = first.new_stream().expect("a stream");
        let copied =
            cu!(cuMemcpyPeerAsync(to, first.cu_ctx(), from, second.cu_ctx(), 64, stream.cu_stream()));
        assert_eq!(copied, OK);
        stream.synchronize().expect("a wait");
        assert_eq!(sim.read(at(to), 64).expect("it is there"), [9; 64]);
    }
}

#[test]
fn handles_for_other_processes_are_checked() {
    let (_driver, _context) = start();
    let address = allocate(64);
    // SAFETY: zero is a valid value of every field.
    let mut memory: sys::CUipcMemHandle = unsafe { std::mem::zeroed() };
    let mut opened = 0;
    assert_eq!(cu!(cuIpcOpenMemHandle_v2(&raw mut opened, memory, 1)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuIpcGetMemHandle(&raw mut memory, address + 1)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuIpcGetMemHandle(&raw mut memory, address)), OK);
    // A process cannot open its own memory.
    assert_eq!(cu!(cuIpcOpenMemHandle_v2(&raw mut opened, memory, 1)), CUDA_ERROR_INVALID_CONTEXT);
    assert_eq!(cu!(cuIpcOpenMemHandle_v2(&raw mut opened, memory, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuIpcCloseMemHandle(address)), CUDA_ERROR_INVALID_VALUE);
    // SAFETY: zero is a valid value of every field.
    let mut event: sys::CUipcEventHandle = unsafe { std::mem::zeroed() };
    assert_eq!(cu!(cuIpcGetEventHandle(&raw mut event, ptr::null_mut())), CUDA_ERROR_INVALID_HANDLE);
    let mut opened = ptr::null_mut();
    assert_eq!(cu!(cuIpcOpenEventHandle(&raw mut opened, event)), CUDA_ERROR_INVALID_VALUE);
    let mut table = ptr::null();
    // SAFETY: zero is a valid value of every field.
    let id: sys::CUuuid = unsafe { std::mem::zeroed() };
    assert_eq!(cu!(cuGetExportTable(&raw mut table, &raw const id)), CUDA_ERROR_NOT_SUPPORTED);
}

#[test]
fn codes_have_names_and_descriptions() {
    let _driver = driver(&SimulationConfig::new());
    let code = sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    let error = result::DriverError(code);
    let name = error.error_name().expect("a name");
    assert_eq!(name.to_str(), Ok("CUDA_ERROR_STREAM_CAPTURE_ISOLATION"));
    let text = error.error_string().expect("a description");
    assert!(text.to_string_lossy().contains("uncaptured work"));
}
