//! The testkit's suite over every allocator of this crate.
//!
//! The suite's streams have the numbers 1 to 9. So this program creates nine streams before anything else, in
//! its only test: they get these numbers.
#![cfg(all(target_os = "linux", not(any(miri, loom))))]
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use orlop_alloc::{Allocator, AllocatorRef};
use orlop_cuda::{
    CudaDevice, CudaMemory, DriverAllocator, PinnedAllocator, caching_allocator, caching_allocator_with,
};
use orlop_cudasim_control::{SimulatedDriver, SimulationConfig};
use orlop_device::{DeviceAllocator, Policy, TorchConf};
use orlop_testkit::{SuiteProfile, conformance};

fn torch(conf: &str) -> Policy {
    Policy::torch(&conf.parse::<TorchConf>().expect("valid settings"))
}

#[test]
fn every_allocator() {
    let config = SimulationConfig::new().memory(2 << 30).pinned_limit(1 << 30).poison(false);
    let driver = SimulatedDriver::exclusive(&config).expect("the simulated driver is built");
    let device = CudaDevice::new(0).expect("a device");
    let streams: Vec<_> = (0..9).map(|_| device.create_stream().expect("a stream")).collect();
    assert_eq!(streams.last().map(|stream| stream.id().raw()), Some(9));

    let caching = |policy: Policy| caching_allocator_with(&device, policy).unwrap().into_ref().erase();
    conformance("cuda", SuiteProfile::strict(), || caching_allocator(&device).unwrap().into_ref().erase());
    for policy in [torch(""), torch("expandable_segments:True"), Policy::orlop_without_pages()] {
        let name = format!("cuda, {}", policy.name);
        conformance(&name, SuiteProfile::strict(), || caching(policy.clone()));
    }
    conformance("cuda-managed", SuiteProfile::strict(), || {
        let memory = CudaMemory::managed(&device).unwrap();
        DeviceAllocator::new(memory, Policy::orlop_without_pages()).into_ref().erase()
    });
    let make = |allocator: DriverAllocator| -> AllocatorRef { allocator.into_ref().erase() };
    conformance("cuda-direct", SuiteProfile::strict(), || make(DriverAllocator::direct(&device)));
    conformance("cuda-stream-ordered", SuiteProfile::strict(), || {
        make(DriverAllocator::stream_ordered(&device).unwrap())
    });
    conformance("cuda-pinned", SuiteProfile::strict(), || PinnedAllocator::new(&device).into_ref().erase());

    drop(streams);
    driver.advance(std::time::Duration::from_secs(1));
    assert_eq!((driver.used_memory(0), driver.counts().pinned), (0, 0));
}
