//! The testkit's suite over every allocator of this crate.

use crate::machine::Machine;
use orlop_alloc::{Allocator, AllocatorRef};
use orlop_cuda::{
    CudaMemory, DriverAllocator, PinnedAllocator, caching_allocator, caching_allocator_with,
};
use orlop_cudasim_control::SimulationConfig;
use orlop_device::{DeviceAllocator, Policy, TorchConf};
use orlop_testkit::{SuiteProfile, conformance};

fn config() -> SimulationConfig {
    SimulationConfig::new().memory(2 << 30).poison(false)
}

fn torch(conf: &str) -> Policy {
    Policy::torch(&conf.parse::<TorchConf>().expect("valid settings"))
}

#[test]
fn caching_allocators() {
    let machine = Machine::new(&config());
    conformance("cuda", SuiteProfile::strict(), || {
        caching_allocator(&machine.device).unwrap().into_ref().erase()
    });
    let policies = [torch(""), torch("expandable_segments:True"), Policy::orlop_without_pages()];
    for policy in policies {
        conformance(&format!("cuda, {}", policy.name), SuiteProfile::strict(), || {
            caching_allocator_with(&machine.device, policy.clone()).unwrap().into_ref().erase()
        });
    }
    conformance("cuda-managed", SuiteProfile::strict(), || {
        let memory = CudaMemory::managed(&machine.device).unwrap();
        DeviceAllocator::new(memory, Policy::orlop_without_pages()).into_ref().erase()
    });
    assert_eq!(machine.used_memory(0), 0);
}

#[test]
fn allocators_of_the_driver() {
    let machine = Machine::new(&config());
    let make = |allocator: DriverAllocator| -> AllocatorRef { allocator.into_ref().erase() };
    conformance("cuda-direct", SuiteProfile::strict(), || make(DriverAllocator::direct(&machine.device)));
    conformance("cuda-stream-ordered", SuiteProfile::strict(), || {
        make(DriverAllocator::stream_ordered(&machine.device).unwrap())
    });
}

#[test]
fn pinned_memory() {
    let machine = Machine::new(&config());
    conformance("cuda-pinned", SuiteProfile::strict(), || {
        PinnedAllocator::new(&machine.device).into_ref().erase()
    });
    assert_eq!(machine.counts().pinned, 0);
}
