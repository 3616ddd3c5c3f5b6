//! The testkit's suite over every allocator of this crate, with streams of the device. No call of the driver
//! may fail in it.
#![cfg(all(target_os = "linux", not(any(miri, loom))))]
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use orlop_alloc::{Allocator, AllocatorRef, Request};
use orlop_core::StreamId;
use orlop_cuda::{
    CudaDevice, CudaMemory, DeviceStream, DriverAllocator, PinnedAllocator, caching_allocator,
    caching_allocator_with,
};
use orlop_cudasim_control::{SimulatedDriver, SimulationConfig};
use orlop_device::{DeviceAllocator, Policy, TorchConf};
use orlop_testkit::{SuiteProfile, conformance};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Collects what is traced as an error: calls of the driver that failed, memory that leaked.
#[derive(Debug, Clone, Default)]
struct TracedErrors(Arc<Mutex<Vec<String>>>);

impl TracedErrors {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Subscriber for TracedErrors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = String::new();
        event.record(&mut |field: &Field, value: &dyn Debug| text += &format!("{field}={value:?} "));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn torch(conf: &str) -> Policy {
    Policy::torch(&conf.parse::<TorchConf>().expect("valid settings"))
}

/// Frees a block that a stream used which was neither created nor adopted.
fn use_unknown_stream(device: &CudaDevice) {
    let allocator = caching_allocator_with(device, torch("")).unwrap().into_ref();
    let block = allocator.allocate(&Request::new(1000)).unwrap();
    block.record_stream(StreamId::unique()).unwrap();
    drop(block);
}

#[test]
fn every_allocator() {
    let config = SimulationConfig::new().memory(2 << 30).pinned_limit(1 << 30).poison(false);
    let driver = SimulatedDriver::exclusive(&config).expect("the simulated driver is built");
    let device = CudaDevice::new(0).expect("a device");
    let traced = TracedErrors::default();
    tracing::subscriber::set_global_default(traced.clone()).expect("the only one");
    let streams = [(); 9].map(|()| device.create_stream().expect("a stream"));
    let profile = SuiteProfile::strict().streams(streams.each_ref().map(DeviceStream::id));

    let caching = |policy: Policy| caching_allocator_with(&device, policy).unwrap().into_ref().erase();
    conformance("cuda", profile, || caching_allocator(&device).unwrap().into_ref().erase());
    for policy in [torch(""), torch("expandable_segments:True"), Policy::orlop_without_pages()] {
        let name = format!("cuda, {}", policy.name);
        conformance(&name, profile, || caching(policy.clone()));
    }
    conformance("cuda-managed", profile, || {
        let memory = CudaMemory::managed(&device).unwrap();
        DeviceAllocator::new(memory, Policy::orlop_without_pages()).into_ref().erase()
    });
    let make = |allocator: DriverAllocator| -> AllocatorRef { allocator.into_ref().erase() };
    conformance("cuda-direct", profile, || make(DriverAllocator::direct(&device)));
    conformance("cuda-stream-ordered", profile, || make(DriverAllocator::stream_ordered(&device).unwrap()));
    conformance("cuda-pinned", profile, || PinnedAllocator::new(&device).into_ref().erase());

    drop(streams);
    driver.advance(std::time::Duration::from_secs(1));
    assert_eq!((driver.used_memory(0), driver.counts().pinned), (0, 0));
    // The suite frees pointers that it must not.
    let failed = traced.take().into_iter().filter(|text| !text.starts_with("message=free refused"));
    assert_eq!(failed.collect::<Vec<_>>(), Vec::<String>::new());
    // Streams that no device knows are an error, which is seen.
    use_unknown_stream(&device);
    assert!(traced.take().iter().any(|text| text.contains("UNKNOWN_STREAM")));
}
