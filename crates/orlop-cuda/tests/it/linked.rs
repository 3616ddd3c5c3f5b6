//! Allocators of one device that are linked: the cache of one is no reason for another one to fail.

use crate::machine::Machine;
use orlop_alloc::adaptor::Limit;
use orlop_alloc::engine::UpstreamArena;
use orlop_alloc::{Allocator, AllocatorRef, Error, Refusal, Request};
use orlop_context::registry::Registry;
use orlop_context::{AllocatorConfig, Context};
use orlop_cuda::{
    CudaDevice, DriverAllocator, MemoryPool, caching_allocator, caching_allocator_with, configured_allocator,
    install, register,
};
use orlop_cudasim_control::SimulationConfig;
use orlop_device::{DeviceConfig, Policy};
use std::sync::{Arc, Mutex};

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
fn caches_of_others_are_trimmed_before_a_request_fails() {
    for (cached, make_cached) in &ALLOCATORS[..3] {
        for (asking, make_asking) in ALLOCATORS {
            let machine = Machine::new(&SimulationConfig::new().memory(1 << 30).poison(false));
            let device = &machine.device;
            let (other, allocator) = (make_cached(device), make_asking(device));
            let request = Request::new(600 * MIB);
            drop(other.allocate(&request).unwrap());
            // The driver itself gives the unused memory of its pools to others.
            if *cached != "stream-ordered" {
                let refused = allocator.allocate(&request.no_retry()).unwrap_err();
                assert!(refused.is_out_of_memory(), "{cached} has a cache, {asking} allocates: {refused}");
            }
            drop(allocator.allocate(&request).unwrap());
            [&other, &allocator].iter().for_each(|allocator| allocator.verify().unwrap());
        }
    }
}

/// The cache of the lowest priority suffices; then that of the next one does.
#[test]
fn caches_are_trimmed_in_the_order_of_priorities() {
    for (asking, make) in ALLOCATORS {
        let machine = Machine::new(&SimulationConfig::new().memory(1 << 30).poison(false));
        let device = &machine.device;
        let others = [0, 1, 2].map(|_| ALLOCATORS[0].1(device));
        let allocator = make(device);
        for (other, priority) in others.iter().zip([5, -1, 1]) {
            device.link_with_priority(other, priority);
            drop(other.allocate(&Request::new(256 * MIB)).unwrap());
        }
        let reserved = || others.each_ref().map(|other| other.usage().reserved >> 20);
        let request = Request::new(400 * MIB);
        let first = allocator.allocate(&request).unwrap();
        assert_eq!(reserved(), [256, 0, 256], "{asking}");
        let second = allocator.allocate(&Request::new(300 * MIB)).unwrap();
        assert_eq!(reserved(), [256, 0, 0], "{asking}");
        drop((first, second));
    }
}

/// The caches of others are no room below a limit of the allocator itself.
#[test]
fn a_request_beyond_a_limit_trims_no_other_cache() {
    let machine = Machine::new(&SimulationConfig::new().memory(1 << 30).poison(false));
    let other = ALLOCATORS[0].1(&machine.device);
    drop(other.allocate(&Request::new(256 * MIB)).unwrap());
    let config = DeviceConfig::new().limit(128 << 20);
    let limited = configured_allocator(&machine.device, &config).unwrap().into_ref();
    let Err(Error::OutOfMemory(report)) = limited.allocate(&Request::new(200 * MIB)) else {
        panic!("more than the limit");
    };
    assert_eq!(report.refusal, Refusal::Limit);
    assert_eq!(other.usage().reserved, 256 << 20);
}

/// What is left of a region with a live block cannot be given back.
#[test]
fn an_error_names_the_caches_of_others() {
    for (asking, make) in ALLOCATORS {
        let machine = Machine::new(&SimulationConfig::new().memory(1 << 30).poison(false));
        let device = &machine.device;
        let torch = Policy::torch(&"".parse().unwrap());
        let other = caching_allocator_with(device, torch).unwrap().into_ref();
        let allocator = make(device);
        let _live = other.allocate(&Request::new(2 * MIB)).unwrap();
        let Err(Error::OutOfMemory(report)) = allocator.allocate(&Request::new(1024 * MIB)) else {
            panic!("{asking}: more than there is");
        };
        assert_eq!(*report.caches, [(other.name().into(), 18 << 20)], "{asking}");
        assert!(report.to_string().ends_with("; cached by torch: 18.0 MiB"), "{report}");
    }
}

/// A foreign allocator over the device's memory is linked by its owner; an adaptor over a handle is not.
#[test]
fn adaptors_are_linked_once() {
    let machine = Machine::new(&SimulationConfig::new());
    let allocator = ALLOCATORS[0].1(&machine.device);
    let limited = Limit::new(allocator, 1 << 20).into_ref();
    let direct = Limit::new(DriverAllocator::direct(&machine.device), 1 << 20).into_ref();
    machine.device.link_with_priority(&direct, 7);
    let names = machine.device.memory_use().unwrap().allocators.into_iter().map(|linked| linked.name);
    assert_eq!(names.collect::<Vec<_>>(), ["orlop".into(), direct.name().into()]);
    drop(limited);
    assert_eq!(machine.device.memory_use().unwrap().allocators.len(), 1);
}

#[test]
fn the_memory_of_a_device_is_summed_up_in_a_line() {
    let machine = Machine::new(&SimulationConfig::new().memory(1 << 30));
    let caching = ALLOCATORS[1].1(&machine.device);
    let _live = caching.allocate(&Request::new(100 * MIB)).unwrap();
    drop(caching.allocate(&Request::new(200 * MIB)).unwrap());
    let _elsewhere = machine.device.create_stream().unwrap().cudarc().alloc_zeros::<u8>(24 * MIB).unwrap();
    let memory = machine.device.memory_use().unwrap();
    assert_eq!((memory.live(), memory.reserved(), memory.elsewhere()), (100 << 20, 300 << 20, 24 << 20));
    let line = "cuda:0: 324 MiB of 1.00 GiB in use: 300 MiB by orlop (100 MiB live, 200 MiB cached), \
                24.0 MiB by the driver, other code and other processes";
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

/// A request that is larger than the device never fits.
#[test]
fn a_request_beyond_the_device_trims_no_other_cache() {
    for (asking, make) in ALLOCATORS {
        let machine = Machine::new(&SimulationConfig::new().memory(1 << 30).poison(false));
        let other = ALLOCATORS[0].1(&machine.device);
        drop(other.allocate(&Request::new(256 * MIB)).unwrap());
        let refused = make(&machine.device).allocate(&Request::new(2048 * MIB)).unwrap_err();
        assert!(refused.is_out_of_memory(), "{asking}: {refused}");
        assert_eq!(other.usage().reserved, 256 << 20, "{asking}");
    }
}

/// The callback frees a block into a cache that was trimmed before.
#[test]
fn what_a_callback_frees_into_another_cache_serves_the_request() {
    let machine = Machine::new(&SimulationConfig::new().memory(1 << 30).poison(false));
    let other = ALLOCATORS[1].1(&machine.device);
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let block = Mutex::new(Some(other.allocate(&Request::new(600 * MIB)).unwrap()));
    allocator.on_pressure(move || block.lock().is_ok_and(|mut block| block.take().is_some()));
    drop(allocator.allocate(&Request::new(600 * MIB)).unwrap());
    assert_eq!((other.usage().reserved, allocator.device_stats().num_ooms), (0, 0));
}

/// An arena frees its segments into the cache of the allocator below, which was trimmed before.
#[test]
fn what_an_arena_gives_back_serves_the_request() {
    for (asking, make) in ALLOCATORS {
        let machine = Machine::new(&SimulationConfig::new().memory(1 << 30).poison(false));
        let device = &machine.device;
        let below = ALLOCATORS[1].1(device);
        let arena = UpstreamArena::new(below.clone(), 600 * MIB).into_ref();
        device.link(&arena);
        drop(arena.allocate(&Request::new(600 * MIB)).unwrap());
        let served = make(device).allocate(&Request::new(600 * MIB));
        assert!(served.is_ok(), "{asking}: {served:?}");
        assert_eq!(below.usage().reserved, 0, "{asking}");
    }
}

/// PyTorch counts one for each exception.
#[test]
fn requests_that_fail_are_counted_once_and_others_never() {
    let machine = Machine::new(&SimulationConfig::new().memory(1 << 30).poison(false));
    let others = [0, 1, 2].map(|_| ALLOCATORS[1].1(&machine.device));
    let fill = || others.iter().for_each(|other| drop(other.allocate(&Request::new(256 * MIB)).unwrap()));
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    fill();
    drop(allocator.allocate(&Request::new(900 * MIB)).unwrap());
    assert_eq!(allocator.device_stats().num_ooms, 0);
    allocator.trim(0);
    let _live = others[0].allocate(&Request::new(256 * MIB)).unwrap();
    fill();
    assert!(allocator.allocate(&Request::new(900 * MIB)).is_err_and(|error| error.is_out_of_memory()));
    assert_eq!(allocator.device_stats().num_ooms, 1);
}

/// Without statistics it is not known which of the reserved bytes are live.
#[test]
fn an_error_names_no_cache_of_a_handle_without_statistics() {
    for (asking, make) in ALLOCATORS {
        let machine = Machine::new(&SimulationConfig::new().memory(1 << 30).poison(false));
        let other = AllocatorRef::with_statistics(caching_allocator(&machine.device).unwrap(), false);
        let _live = other.allocate(&Request::new(512 * MIB)).unwrap();
        let Err(Error::OutOfMemory(report)) = make(&machine.device).allocate(&Request::new(600 * MIB)) else {
            panic!("{asking}: more than there is");
        };
        assert_eq!(*report.caches, [], "{asking}");
    }
}

/// Each has blocks, and the first has freed some to the pool.
#[test]
fn the_memory_of_a_pool_is_counted_once() {
    let machine = Machine::new(&SimulationConfig::new().memory(1 << 30).poison(false));
    let pool = Arc::new(MemoryPool::new(&machine.device).unwrap());
    let first = DriverAllocator::in_pool(Arc::clone(&pool)).into_ref();
    let second = DriverAllocator::in_pool(pool).into_ref();
    let live = [&first, &second].map(|allocator| allocator.allocate(&Request::new(128 * MIB)).unwrap());
    drop(first.allocate(&Request::new(256 * MIB)).unwrap());
    let memory = machine.device.memory_use().unwrap();
    assert_eq!((memory.live(), memory.reserved()), (256 << 20, 512 << 20));
    let direct = DriverAllocator::direct(&machine.device).into_ref();
    let Err(Error::OutOfMemory(report)) = direct.allocate(&Request::new(900 * MIB).no_retry()) else {
        panic!("more than there is");
    };
    assert_eq!(*report.caches, [(second.name().into(), 256 << 20)]);
    // The second allocator counts what the pool keeps when the first one is gone.
    let [of_first, _of_second] = live;
    drop((of_first, first));
    let memory = machine.device.memory_use().unwrap();
    assert_eq!(
        (memory.live(), memory.reserved()),
        (128 << 20, second.pool().unwrap().usage().unwrap().reserved)
    );
}
