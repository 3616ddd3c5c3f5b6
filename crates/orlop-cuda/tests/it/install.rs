//! A device in a context: pinned memory before and after it.

use crate::machine::{Machine, handle};
use orlop_alloc::{Allocator, Block, Error, Request};
use orlop_context::{AllocatorConfig, Context};
use orlop_core::{Device, MemoryKind};
use orlop_cuda::{CudaDevice, CudaOps, DeviceStream, install};
use orlop_cudasim_control::{KernelAccess, KernelRun, SimulationConfig};

const KIND: MemoryKind = MemoryKind::HostPinned;

fn host(context: &Context, bytes: usize) -> Block {
    context.allocate(Device::CPU, &Request::new(bytes).kind(KIND)).expect("host memory")
}

/// The host writes the block, and the device reads it later.
fn write_and_send(machine: &Machine, block: &mut Block, stream: &DeviceStream) {
    let (address, bytes) = (block.as_ptr().as_ptr().addr(), block.len());
    machine.host_access("host", KernelAccess::write(address, bytes)).expect("known memory");
    block.bytes_mut().expect("host memory").fill(1);
    machine.run_kernel(handle(stream), KernelRun::new("dma").reads(address, bytes)).expect("a launch");
}

#[test]
fn a_device_replaces_the_pinned_memory_of_a_context() {
    let machine = Machine::new(&SimulationConfig::new());
    let stream = machine.device.create_stream().unwrap();
    let ops = CudaOps::new(&machine.device);
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    // Without the device: aligned host memory, which no stream may use later.
    let mut before = host(&context, 100_000);
    let former = context.allocator(Device::CPU, KIND).unwrap().clone();
    assert_eq!((before.device(), before.kind(), before.is_pinned()), (Device::CPU, KIND, false));
    assert!(before.as_ptr().as_ptr().addr().is_multiple_of(64));
    before.bytes_mut().unwrap().fill(7);
    let refused = |block: &Block| {
        matches!(block.record_stream(stream.id()), Err(Error::StreamsNotHonoured { .. }))
            && !block.acquire_for(&ops, stream.id()).unwrap()
    };
    assert!(refused(&before));

    install(&context, &machine.device).unwrap();
    let block = host(&context, 100_000);
    let allocator = context.allocator(Device::CPU, KIND).unwrap();
    assert_eq!((allocator.name(), allocator.device()), ("cuda-pinned", Device::CPU));
    assert!(allocator.semantics().pinned && allocator.semantics().stream_ordered);
    assert_eq!((block.device(), block.kind(), block.is_pinned()), (Device::CPU, KIND, true));
    assert!(context.allocate_pinned(&Request::new(1000)).is_ok());
    assert!(block.acquire_for(&ops, stream.id()).unwrap());
    block.record_stream(stream.id()).unwrap();
    // Other kinds of host memory stay as they were.
    let plain = context.allocate(Device::CPU, &Request::new(1000)).unwrap();
    assert!(!plain.is_pinned() && refused(&plain));

    // The earlier block has its bytes and its allocator.
    assert!(refused(&before) && !before.is_pinned());
    assert!(before.bytes().unwrap().iter().all(|&byte| byte == 7));
    assert_eq!(former.stats().live(), before.capacity() as u64);
    drop(before);
    assert_eq!(former.stats().live(), 0);
}

#[test]
fn staging_memory_of_a_context_is_not_reused_before_the_copy() {
    let races = |is_recorded: bool| {
        let machine = Machine::new(&SimulationConfig::new());
        let stream = machine.device.create_stream().unwrap();
        let context = Context::with(Device::CPU, AllocatorConfig::new());
        install(&context, &machine.device).unwrap();
        for _ in 0..50 {
            let mut block = host(&context, 100_000);
            write_and_send(&machine, &mut block, &stream);
            if is_recorded {
                block.record_stream(stream.id()).unwrap();
            }
        }
        machine.races().len()
    };
    assert_eq!(races(true), 0);
    assert!(races(false) > 0, "a use that nothing records is a race");
}

/// A second device brings pinned memory of its own; blocks of the first remain valid.
#[test]
fn two_devices_in_a_context() {
    let machine = Machine::new(&SimulationConfig::new().devices([1 << 30, 1 << 30]));
    let second = CudaDevice::new(1).unwrap();
    let (stream, other) = (machine.device.create_stream().unwrap(), second.create_stream().unwrap());
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    install(&context, &machine.device).unwrap();
    let mut early = host(&context, 100_000);
    install(&context, &second).unwrap();
    write_and_send(&machine, &mut early, &stream);
    early.record_stream(stream.id()).unwrap();
    drop(early);
    // Pinned memory is for all devices: so are the streams that use it.
    for index in 0..50 {
        let mut block = host(&context, 100_000);
        let stream = if index % 2 == 0 { &stream } else { &other };
        write_and_send(&machine, &mut block, stream);
        block.record_stream(stream.id()).unwrap();
    }
    assert_eq!(machine.races(), []);
}
