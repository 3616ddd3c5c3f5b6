//! Linked allocators that are used inside engines, and linked allocators of others that panic.

use crate::machine::Machine;
use orlop_alloc::backing::{RegionChange, Visitor};
use orlop_alloc::engine_support::RawBlock;
use orlop_alloc::{Allocator, AllocatorRef, Request, Result};
use orlop_cuda::{CudaDevice, CudaError, CudaMemory, DriverAllocator, caching_allocator};
use orlop_cudasim_control::SimulationConfig;
use orlop_device::{DeviceAllocator, Policy, VisitedDevice};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

const MIB: usize = 1 << 20;

type Make = fn(&CudaDevice) -> AllocatorRef;

const FAILING: [Make; 2] = [
    |device| caching_allocator(device).unwrap().into_ref().erase(),
    |device| DriverAllocator::direct(device).into_ref().erase(),
];

fn machine() -> Machine {
    Machine::new(&SimulationConfig::new().memory(1 << 30).poison(false))
}

/// Runs both on threads of their own. Fails if they do not end: they wait for each other.
fn run_both(both: [Box<dyn FnOnce() + Send>; 2]) {
    let (sender, ended) = mpsc::channel();
    for act in both {
        let sender = sender.clone();
        thread::spawn(move || {
            act();
            // The other end is gone if this test has failed.
            let _sent = sender.send(());
        });
    }
    for _ in 0..2 {
        assert_eq!(ended.recv_timeout(Duration::from_secs(60)), Ok(()), "a deadlock, or a panic");
    }
}

/// Each thread grows one allocator, whose visitor makes a request that fails while the other thread's visitor
/// does the same.
#[test]
fn requests_that_fail_in_visitors_wait_for_no_linked_allocator() {
    for make in FAILING {
        let machine = machine();
        let failing = make(&machine.device);
        let barrier = Arc::new(Barrier::new(2));
        let growing = [0, 1].map(|_| {
            let (failing, barrier) = (failing.clone(), Arc::clone(&barrier));
            let visitor: Visitor = Arc::new(move |change, _: &_, _| {
                if matches!(change, RegionChange::Reserved) {
                    barrier.wait();
                    assert!(failing.allocate(&Request::new(1024 * MIB)).is_err());
                    barrier.wait();
                }
            });
            let memory = VisitedDevice::new(CudaMemory::in_regions(&machine.device), vec![visitor]);
            DeviceAllocator::new(memory, Policy::orlop_without_pages()).into_ref()
        });
        run_both(growing.map(|allocator| -> Box<dyn FnOnce() + Send> {
            Box::new(move || drop(allocator.allocate(&Request::new(MIB)).unwrap()))
        }));
    }
}

/// Each thread inspects one allocator, and meanwhile makes a request to another one that fails.
#[test]
fn requests_that_fail_in_inspections_wait_for_no_linked_allocator() {
    for make in FAILING {
        let machine = machine();
        let _full = DriverAllocator::direct(&machine.device).into_ref();
        let _full = _full.allocate(&Request::new(512 * MIB)).unwrap();
        let barrier = Arc::new(Barrier::new(2));
        run_both([0, 1].map(|_| -> Box<dyn FnOnce() + Send> {
            let inspected = caching_allocator(&machine.device).unwrap().into_ref();
            let (failing, barrier) = (make(&machine.device), Arc::clone(&barrier));
            Box::new(move || {
                inspected.with_engine(|_| {
                    barrier.wait();
                    assert!(failing.allocate(&Request::new(600 * MIB)).is_err());
                    barrier.wait();
                });
            })
        }));
    }
}

/// Panics in what others call, except when its last handle is dropped.
#[derive(Debug)]
struct Panicking(DriverAllocator, AtomicBool);

// SAFETY: blocks are those of the allocator below.
unsafe impl Allocator for Panicking {
    orlop_alloc::forward!(0; except name, trim, on_shared);

    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        self.0.allocate(request)
    }

    fn name(&self) -> &str {
        panic!("the name of a linked allocator")
    }

    fn trim(&self, target: u64) -> u64 {
        assert!(!self.1.load(Ordering::Relaxed), "the cache of a linked allocator");
        self.0.trim(target)
    }
}

/// The request fails, or is served by what the next one gives back.
#[test]
fn panics_of_linked_allocators_do_not_leave_a_request() {
    for make in FAILING {
        let machine = machine();
        let pool = DriverAllocator::stream_ordered(&machine.device).unwrap();
        let panicking = Panicking(pool, AtomicBool::new(true)).into_ref();
        machine.device.link(&panicking);
        // Its pool keeps the second half.
        let halves = [0, 1].map(|_| panicking.allocate(&Request::new(100 * MIB)).unwrap());
        let [half, _] = halves;
        let other = caching_allocator(&machine.device).unwrap().into_ref();
        drop(other.allocate(&Request::new(400 * MIB)).unwrap());
        let allocator = make(&machine.device);
        let served = allocator.allocate(&Request::new(700 * MIB)).map(drop);
        let refused =
            catch_unwind(AssertUnwindSafe(|| allocator.allocate(&Request::new(1024 * MIB)).map(drop)));
        panicking.1.store(false, Ordering::Relaxed);
        assert!(served.is_ok(), "{served:?}");
        assert!(matches!(&refused, Ok(Err(error)) if error.is_out_of_memory()), "{refused:?}");
        drop(half);
    }
}

/// What the visitors and inspections of linked allocators ask, they are refused: an answer would wait.
#[test]
fn the_memory_of_a_device_is_not_summed_up_inside_an_engine() {
    let machine = machine();
    let allocators = [0, 1].map(|_| caching_allocator(&machine.device).unwrap().into_ref());
    let barrier = Arc::new(Barrier::new(2));
    run_both(allocators.map(|allocator| -> Box<dyn FnOnce() + Send> {
        let (device, barrier) = (machine.device.clone(), Arc::clone(&barrier));
        Box::new(move || {
            allocator.with_engine(|_| {
                barrier.wait();
                let refused = device.memory_use().unwrap_err();
                assert!(matches!(refused, CudaError::Unsupported { .. }), "{refused}");
                barrier.wait();
            });
            assert!(device.memory_use().is_ok());
        })
    }));
}

#[test]
fn a_linked_allocator_that_panics_is_left_out_of_the_sum() {
    let machine = machine();
    let pool = DriverAllocator::stream_ordered(&machine.device).unwrap();
    let panicking = Panicking(pool, AtomicBool::new(false)).into_ref();
    machine.device.link(&panicking);
    let other = caching_allocator(&machine.device).unwrap().into_ref();
    let _live = other.allocate(&Request::new(100 * MIB)).unwrap();
    let memory = machine.device.memory_use().unwrap();
    let names: Vec<&str> = memory.allocators.iter().map(|allocator| &*allocator.name).collect();
    assert_eq!((names, memory.live()), (vec!["orlop"], 100 << 20));
}
