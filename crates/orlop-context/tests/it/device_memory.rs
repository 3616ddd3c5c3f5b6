//! The size of a device's memory.

use orlop_alloc::{
    DeviceMemory, Error, Result,
    engine_support::{DeviceOps, DevicePtr},
};
use orlop_context::Context;
use orlop_core::{Device, StreamId};
use std::sync::Arc;

const GPU: Device = Device::cuda(0);

/// A backend that reports its memory and supports nothing else.
#[derive(Debug)]
struct ReportedMemory(Option<DeviceMemory>);

// SAFETY: it accesses no memory.
unsafe impl DeviceOps for ReportedMemory {
    fn device(&self) -> Device {
        GPU
    }
    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, _: usize, _: StreamId) -> Result<()> {
        Err(Error::NoCopyPath { from: from.device, to: to.device })
    }
    unsafe fn fill(&self, _: DevicePtr, _: &[u8], _: usize, _: StreamId) -> Result<()> {
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
fn operations_are_queried_first() {
    let context = Context::new();
    context.register_ops(GPU, Arc::new(ReportedMemory(None))).unwrap();
    assert!(context.device_memory(GPU).is_err());
    let memory = DeviceMemory { total: 5, free: 3 };
    context.register_ops(GPU, Arc::new(ReportedMemory(Some(memory)))).unwrap();
    assert_eq!(context.device_memory(GPU).unwrap(), memory);
}

#[test]
#[cfg(target_os = "linux")]
fn the_processor_has_memory() {
    let memory = Context::new().device_memory(Device::CPU).unwrap();
    assert!(memory.total > 1 << 20 && memory.free <= memory.total, "{memory}");
}
