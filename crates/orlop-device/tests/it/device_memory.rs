//! The memory of a device, as the context and the profiles report it.

use orlop_alloc::adaptor::{Limit, Tracking};
use orlop_alloc::{Allocator, DeviceMemory, Error, Request};
use orlop_context::Context;
use orlop_context::profile::MemorySteps;
use orlop_core::{Device, MemoryKind};
use orlop_device::{DeviceAllocator, NullDevice, Policy};
use orlop_testkit::queued_device::QueuedDevice;
use std::sync::Arc;

const GPU: Device = Device::cuda(0);

fn allocator(memory: u64) -> DeviceAllocator<NullDevice> {
    DeviceAllocator::new(NullDevice::new(GPU, memory), Policy::orlop())
}

#[test]
fn an_allocator_reports_the_memory_of_its_device() {
    let context = Context::new();
    assert!(matches!(context.device_memory(GPU), Err(Error::MemoryUnknown { device: GPU })));
    // Adaptors forward it.
    let limited = Limit::new(Tracking::new(allocator(1 << 30)), 1 << 30);
    context.register(GPU, MemoryKind::Default, limited.into_ref()).unwrap();
    assert_eq!(context.device_memory(GPU).unwrap(), DeviceMemory { total: 1 << 30, free: 1 << 30 });
    let block = context.allocate(GPU, &Request::new(100)).unwrap();
    let free = (1 << 30) - (2 << 20);
    assert_eq!(context.device_memory(GPU).unwrap(), DeviceMemory { total: 1 << 30, free });
    // Cached memory is not free.
    drop(block);
    assert_eq!(context.device_memory(GPU).unwrap().free, free);
    context.trim(GPU);
    assert_eq!(context.device_memory(GPU).unwrap().free, 1 << 30);
}

#[test]
fn device_operations_come_before_allocators() {
    let context = Context::new();
    context.register(GPU, MemoryKind::Default, allocator(7).into_ref()).unwrap();
    assert_eq!(context.device_memory(GPU).unwrap().total, 7);
    let queued = QueuedDevice::new(GPU, 1 << 20);
    context.register_ops(GPU, Arc::new(queued)).unwrap();
    // Where the operations do not know the memory, the allocators do.
    assert_eq!(context.device_memory(GPU).unwrap().total, 7);
}

#[test]
fn a_printed_profile_has_the_memory_of_devices() {
    let context = Context::new();
    context.register(GPU, MemoryKind::Default, allocator(1 << 30).into_ref()).unwrap();
    let text = MemorySteps::on(&context).to_string();
    assert!(text.ends_with("\ncuda:0: 1.00 GiB free of 1.00 GiB"), "{text}");
    let allocator = context.allocator(GPU, MemoryKind::Default).unwrap();
    let alone = MemorySteps::on_allocator(&allocator);
    assert_eq!(alone.to_string().lines().count(), 2);
}
