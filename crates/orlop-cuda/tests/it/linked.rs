//! Allocators of one device that are linked: the cache of one is no reason for another one to fail.

use crate::machine::Machine;
use orlop_alloc::{Allocator, AllocatorRef, Error, Request};
use orlop_context::registry::Registry;
use orlop_context::{AllocatorConfig, Context};
use orlop_cuda::{CudaDevice, DriverAllocator, caching_allocator, caching_allocator_with, install, register};
use orlop_cudasim_control::SimulationConfig;
use orlop_device::Policy;

const MIB: usize = 1 << 20;

type Make = fn(&CudaDevice) -> AllocatorRef;

const ALLOCATORS: [(&str, Make); 4] = [
    ("pages", |device| caching_allocator(device).unwrap().into_ref().erase()),
    ("regions", |device| {
        caching_allocator_with(device, Policy::orlop_without_pages()).unwrap().into_ref().erase()
    }),
    ("stream-ordered", |device| DriverAllocator::stream_ordered(device).unwrap().into_ref().erase()),
    ("direct", |device| DriverAllocator::direct(device).into_ref().erase()),
];

#[test]
fn caches_of_linked_allocators_are_trimmed_before_a_request_fails() {
    for (cached, make_cached) in &ALLOCATORS[..3] {
        for (asking, make_asking) in ALLOCATORS {
            for is_linked in [false, true] {
                let machine = Machine::new(&SimulationConfig::new().memory(1 << 30).poison(false));
                let device = &machine.device;
                let (other, allocator) = (make_cached(device), make_asking(device));
                if is_linked {
                    device.link(&other);
                    device.link(&allocator);
                }
                let request = Request::new(600 * MIB);
                drop(other.allocate(&request).unwrap());
                let block = allocator.allocate(&request);
                // The driver gives the unused memory of its pools to others of them.
                let are_pools = *cached == "stream-ordered" && asking == "stream-ordered";
                assert_eq!(block.is_ok(), is_linked || are_pools, "{cached} has a cache, {asking} allocates");
                if let Err(error) = block {
                    assert!(error.is_out_of_memory(), "{error}");
                }
                [&other, &allocator].iter().for_each(|allocator| allocator.verify().unwrap());
            }
        }
    }
}

/// What is left of a region with a live block cannot be given back.
#[test]
fn an_error_names_the_caches_of_linked_allocators() {
    for (asking, make) in ALLOCATORS {
        let machine = Machine::new(&SimulationConfig::new().memory(1 << 30).poison(false));
        let device = &machine.device;
        let torch = Policy::torch(&"".parse().unwrap());
        let other = caching_allocator_with(device, torch).unwrap().into_ref();
        let allocator = make(device);
        device.link(&other);
        let _live = other.allocate(&Request::new(2 * MIB)).unwrap();
        let Err(Error::OutOfMemory(report)) = allocator.allocate(&Request::new(1024 * MIB)) else {
            panic!("{asking}: more than there is");
        };
        assert_eq!(*report.caches, [(other.name().into(), 18 << 20)], "{asking}");
        assert!(report.report().contains("cached by torch: 18.0 MiB"), "{}", report.report());
    }
}

#[test]
fn the_memory_of_a_device_is_summed_up_in_a_line() {
    let machine = Machine::new(&SimulationConfig::new().memory(1 << 30));
    let (caching, other) = (ALLOCATORS[1].1(&machine.device), ALLOCATORS[3].1(&machine.device));
    machine.device.link(&caching);
    let _live = caching.allocate(&Request::new(100 * MIB)).unwrap();
    drop(caching.allocate(&Request::new(200 * MIB)).unwrap());
    let _elsewhere = other.allocate(&Request::new(24 * MIB)).unwrap();
    let memory = machine.device.memory_use().unwrap();
    assert_eq!((memory.live(), memory.reserved(), memory.elsewhere()), (100 << 20, 300 << 20, 24 << 20));
    let line = "cuda:0: 324 MiB of 1.00 GiB in use: 300 MiB by orlop (100 MiB live, 200 MiB cached), \
                24.0 MiB by others";
    assert_eq!(memory.to_string(), line);
    // An allocator without handles is not linked.
    drop((caching, _live));
    assert!(machine.device.memory_use().unwrap().allocators.is_empty());
}

#[test]
fn allocators_of_contexts_and_names_are_linked() {
    let machine = Machine::new(&SimulationConfig::new());
    let (context, registry) = (Context::new(), Registry::new());
    install(&context, &machine.device).unwrap();
    register(&registry).unwrap();
    let _named = registry.make("cuda-stream-ordered:0", &AllocatorConfig::new()).unwrap();
    let _pinned = registry.make("cuda-pinned:0", &AllocatorConfig::new()).unwrap();
    let linked = machine.device.memory_use().unwrap().allocators;
    let names: Vec<&str> = linked.iter().map(|allocator| &*allocator.name).collect();
    assert_eq!(names, ["orlop", "cuda-stream-ordered"]);
}
