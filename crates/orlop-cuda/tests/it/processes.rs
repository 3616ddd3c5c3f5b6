//! Blocks that another process opens.

use crate::default_stream::blocking_stream;
use crate::machine::Machine;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use orlop_alloc::engine_support::{DeviceOps, DevicePtr};
use orlop_alloc::{Allocator, AllocatorRef, Block, Request};
use orlop_core::{Device, MemoryKind, StreamId};
use orlop_cuda::{
    CudaDevice, CudaError, CudaMemory, CudaOps, DriverAllocator, caching_allocator, caching_allocator_with,
};
use orlop_cudasim_control::SimulationConfig;
use orlop_device::{DeviceAllocator, Policy};
use std::process::Command;
use std::ptr::NonNull;

const BYTES: usize = 100_000;
const EXPORTED: &str = "ORLOP_TEST_EXPORTED_BLOCK";

pub(crate) fn fill(device: &CudaDevice, block: &Block, byte: u8) {
    let (ops, stream) = (CudaOps::new(device), block.stream());
    // SAFETY: the block has these bytes.
    unsafe { ops.fill(block.device_ptr(), &[byte], block.len(), stream) }.unwrap();
    ops.synchronize(stream).unwrap();
}

pub(crate) fn read(device: &CudaDevice, block: &Block) -> Vec<u8> {
    let (ops, stream, mut bytes) = (CudaOps::new(device), block.stream(), vec![0_u8; block.len()]);
    let to = DevicePtr::new(NonNull::from(bytes.as_mut_slice()).cast(), Device::CPU);
    // SAFETY: both have these bytes, and are kept until the stream was waited for.
    unsafe { ops.copy(to, block.device_ptr(), block.len(), stream) }.unwrap();
    ops.synchronize(stream).unwrap();
    bytes
}

pub(crate) fn in_regions(device: &CudaDevice) -> AllocatorRef {
    let memory = CudaMemory::in_regions(device);
    DeviceAllocator::new(memory, Policy::orlop_without_pages()).into_ref().erase()
}

/// Runs an ignored test in another process, which opens a block.
pub(crate) fn run_with(test: &str, exported: &[u8]) {
    let text: String = exported.iter().map(|byte| format!("{byte:02x}")).collect();
    let program = std::env::current_exe().unwrap();
    let arguments = [test, "--exact", "--ignored", "--nocapture"];
    let output = Command::new(program).args(arguments).env(EXPORTED, text).output().unwrap();
    let [said, failed] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(output.status.success() && said.contains("1 passed"), "{said}{failed}");
}

/// Returns what the first process has exported.
pub(crate) fn exported() -> Vec<u8> {
    let text = std::env::var(EXPORTED).expect("a block that was exported");
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// The second process reads what the first has written, and the first what the second has. The second block
/// of a region is shared, and the one before it stays as it is.
#[test]
fn two_processes_share_a_block() {
    let makes: [fn(&CudaDevice) -> AllocatorRef; 2] =
        [in_regions, |device| DriverAllocator::direct(device).into_ref().erase()];
    for make in makes {
        let machine = Machine::new(&SimulationConfig::new());
        let allocator = make(&machine.device);
        let [before, shared] = [(); 2].map(|()| allocator.allocate(&Request::new(BYTES)).unwrap());
        fill(&machine.device, &before, 1);
        fill(&machine.device, &shared, 7);
        let exported = machine.device.export_memory(&shared).unwrap();
        assert_eq!(exported.len(), 80);
        run_with("processes::the_other_process", &exported);
        assert_eq!(read(&machine.device, &shared), [8; BYTES]);
        assert_eq!(read(&machine.device, &before), [1; BYTES]);
        // A process cannot open its own memory.
        // SAFETY: the block is live, and nothing accesses it.
        let own = unsafe { machine.device.import_memory(&exported) }.unwrap_err();
        assert!(matches!(own.backend_error(), Some(CudaError::Failed(_))), "{own}");
    }
}

#[test]
#[ignore = "run by `two_processes_share_a_block`, in another process"]
fn the_other_process() {
    let machine = Machine::new(&SimulationConfig::new());
    let exported = exported();
    // SAFETY: the other process waits for this one, and keeps the block.
    let opened = [(); 2].map(|()| unsafe { machine.device.import_memory(&exported) }.unwrap());
    assert_eq!(opened[0].as_ptr(), opened[1].as_ptr());
    assert_eq!((opened[0].len(), opened[0].device()), (BYTES, machine.device.device()));
    assert_eq!(opened[0].stream(), machine.device.default_stream());
    assert_eq!(machine.used_memory(0), 0, "memory of another process");
    assert_eq!(read(&machine.device, &opened[0]), [7; BYTES]);
    let [first, second] = opened;
    drop(first);
    fill(&machine.device, &second, 8);
    // A handle of nothing, and parts that are outside.
    for change in [0, 71, 79] {
        let mut wrong = exported.clone();
        wrong[change] ^= 0x40;
        // SAFETY: refused.
        let refused = unsafe { machine.device.import_memory(&wrong) };
        assert!(refused.is_err(), "{change}");
    }
    drop(second);
    let (opened, closed) = (machine.calls("cuIpcOpenMemHandle_v2"), machine.calls("cuIpcCloseMemHandle"));
    assert_eq!((opened, closed, machine.races().len()), (5, 4, 0));
}

#[test]
fn a_block_of_another_process_is_open_until_its_memory_is_closed() {
    let machine = Machine::new(&SimulationConfig::new());
    let block = in_regions(&machine.device).allocate(&Request::new(BYTES)).unwrap();
    run_with("processes::the_other_process_captures", &machine.device.export_memory(&block).unwrap());
}

#[test]
#[ignore = "run by `a_block_of_another_process_is_open_until_its_memory_is_closed`, in another process"]
fn the_other_process_captures() {
    let machine = Machine::new(&SimulationConfig::new());
    let (device, exported) = (&machine.device, exported());
    // SAFETY: the other process waits for this one, and keeps the block.
    let import = || unsafe { device.import_memory(&exported) }.unwrap();
    let counts = || (device.open_imports(), machine.calls("cuIpcCloseMemHandle"));
    drop(import());
    assert_eq!(counts(), (0, 1));

    // The default stream waits for this one.
    let stream = blocking_stream(&machine);
    let block = import();
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
    assert_eq!(counts(), (1, 1));
    drop(block);
    assert_eq!(counts(), (1, 1), "open in the capture");
    let graph = stream.end_capture(CUgraphInstantiate_flags(0)).unwrap();
    assert!(graph.is_some());
    assert_eq!(machine.calls("cuIpcCloseMemHandle"), 1);
    assert_eq!(counts(), (0, 2), "closed after the capture");

    // Neither a wait nor a close that fails is a close.
    for (open, call) in [(1, "cuStreamSynchronize"), (2, "cuIpcCloseMemHandle")] {
        let block = import();
        machine.fail(call, 1, 999).unwrap();
        drop(block);
        machine.clear_faults();
        assert_eq!(device.open_imports(), open, "{call}");
    }
}

#[test]
fn what_cannot_be_shared_is_a_typed_error() {
    let machine = Machine::new(&SimulationConfig::new().devices([1 << 28, 1 << 28]));
    let device = &machine.device;
    let managed = DeviceAllocator::new(CudaMemory::managed(device).unwrap(), Policy::orlop_without_pages());
    let allocators: [AllocatorRef; 3] = [
        caching_allocator(device).unwrap().into_ref().erase(),
        managed.into_ref().erase(),
        DriverAllocator::stream_ordered(device).unwrap().into_ref().erase(),
    ];
    for allocator in &allocators {
        let request = Request::new(BYTES).kind(MemoryKind::Default);
        let refused = device.export_memory(&allocator.allocate(&request).unwrap()).unwrap_err();
        assert!(matches!(refused, CudaError::Unsupported { .. }), "{}: {refused}", allocator.name());
    }
    let far = CudaDevice::new(1).unwrap();
    let elsewhere = DriverAllocator::direct(&far).into_ref().allocate(&Request::new(BYTES)).unwrap();
    assert!(matches!(device.export_memory(&elsewhere), Err(CudaError::NotOnDevice { .. })));
    let empty = in_regions(device).allocate(&Request::new(0)).unwrap();
    assert!(matches!(device.export_memory(&empty), Err(CudaError::Unsupported { .. })));

    let block = in_regions(device).allocate(&Request::new(BYTES)).unwrap();
    let exported = device.export_memory(&block).unwrap();
    for wrong in [&[][..], &exported[..79], &[exported.as_slice(), &[0]].concat()] {
        // SAFETY: refused.
        let refused = unsafe { device.import_memory(wrong) }.unwrap_err();
        assert!(matches!(refused.backend_error(), Some(CudaError::NotExported { .. })), "{refused}");
    }
    // SAFETY: refused.
    let refused = unsafe { device.import_memory(&[0; 80]) }.unwrap_err();
    assert!(matches!(refused.backend_error(), Some(CudaError::Failed(_))), "{refused}");
    // What fails on the way leaves nothing open.
    let policy = caching_allocator_with(device, Policy::orlop_without_pages()).unwrap().into_ref();
    let block = policy.allocate(&Request::new(BYTES).stream(StreamId::HOST)).unwrap();
    machine.fail("cuIpcGetMemHandle", 1, 999).unwrap();
    assert!(matches!(device.export_memory(&block), Err(CudaError::Failed(_))));
    assert!(device.export_memory(&block).is_ok());
}
