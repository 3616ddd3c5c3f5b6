//! How much memory a device has, as the context and the profiles report it.

use orlop_alloc::adaptor::{Limit, Tracking};
use orlop_alloc::{AllocatorRef, DeviceMemory, DeviceOps, DevicePtr, Error, Request, Result};
use orlop_context::Context;
use orlop_context::profile::MemorySteps;
use orlop_core::{Device, MemoryKind, StreamId};
use orlop_device::{DeviceAllocator, NullDevice, Policy};
use std::ptr::NonNull;
use std::sync::Arc;

const GPU: Device = Device::cuda(0);

fn allocator(memory: u64) -> DeviceAllocator<NullDevice> {
    DeviceAllocator::new(NullDevice::new(GPU, memory), Policy::orlop())
}

#[test]
fn an_allocator_reports_the_memory_of_its_device() {
    let context = Context::new();
    assert!(matches!(context.device_memory(GPU), Err(Error::MemoryUnknown { device: GPU })));
    // Adaptors pass it on.
    let limited = Limit::new(Tracking::new(allocator(1 << 30)), 1 << 30);
    context.register(GPU, MemoryKind::Default, AllocatorRef::new(limited)).unwrap();
    assert_eq!(context.device_memory(GPU).unwrap(), DeviceMemory { total: 1 << 30, free: 1 << 30 });
    let block = context.allocate(GPU, &Request::new(100)).unwrap();
    let free = (1 << 30) - (2 << 20);
    assert_eq!(context.device_memory(GPU).unwrap(), DeviceMemory { total: 1 << 30, free });
    // What is cached is not free.
    drop(block);
    assert_eq!(context.device_memory(GPU).unwrap().free, free);
    context.trim(GPU);
    assert_eq!(context.device_memory(GPU).unwrap().free, 1 << 30);
}

/// Device operations that know the memory, or do not, and can do nothing else.
#[derive(Debug)]
struct MockOps(Option<DeviceMemory>);

// SAFETY: it touches nothing.
unsafe impl DeviceOps for MockOps {
    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, _: usize, _: StreamId) -> Result<()> {
        Err(Error::NoCopyPath { from: from.device, to: to.device })
    }
    unsafe fn fill(&self, _: NonNull<u8>, _: &[u8], _: usize, _: StreamId) -> Result<()> {
        Err(Error::NoDeviceOps { device: GPU })
    }
    fn synchronize(&self, _: StreamId) -> Result<()> {
        Ok(())
    }
    fn memory(&self) -> Option<DeviceMemory> {
        self.0
    }
}

#[test]
fn device_operations_come_before_allocators() {
    let context = Context::new();
    context.register_ops(GPU, Arc::new(MockOps(None)));
    context.register(GPU, MemoryKind::Default, allocator(7).into_ref()).unwrap();
    assert_eq!(context.device_memory(GPU).unwrap().total, 7);
    let memory = DeviceMemory { total: 5, free: 3 };
    context.register_ops(GPU, Arc::new(MockOps(Some(memory))));
    assert_eq!(context.device_memory(GPU).unwrap(), memory);
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
