//! Every call of the driver fails in turn.

use crate::machine::Machine;
use orlop_alloc::{Allocator, AllocatorRef, Block, DeviceOps, DevicePtr, Request, Result};
use orlop_core::Device;
use orlop_cuda::{
    CudaDevice, CudaOps, DeviceStream, DriverAllocator, PinnedAllocator, caching_allocator,
    caching_allocator_with,
};
use orlop_cudasim_control::SimulationConfig;
use orlop_device::Policy;
use std::ptr::NonNull;

/// A program that uses everything, and passes errors on.
fn program(device: &CudaDevice, streams: &[DeviceStream], allocator: &AllocatorRef) -> Result<()> {
    let ops = CudaOps::new(device);
    let mut blocks: Vec<Block> = Vec::new();
    for step in 0..30_usize {
        let stream = &streams[step % streams.len()];
        let host = allocator.device().is_cpu();
        let bytes = [700, 3 << 20, 90_000, 11 << 20, 1 << 20][step % 5];
        let mut request = Request::new(bytes);
        if !host {
            request = request.stream(stream.id());
        }
        let request = if step % 3 == 0 { request.zeroed() } else { request };
        let block = allocator.allocate(&request)?;
        if !host {
            let mut source = vec![7_u8; bytes.min(100_000)];
            let from = DevicePtr::new(NonNull::from(source.as_mut_slice()).cast(), Device::CPU);
            let to = DevicePtr::new(block.as_ptr(), block.device());
            // SAFETY: both have this many bytes.
            unsafe { ops.copy(to, from, source.len(), stream.id()) }?;
            // SAFETY: inside the block.
            unsafe { ops.fill(block.as_ptr(), &[1, 2, 3], 100, stream.id()) }?;
        }
        let other = &streams[(step + 1) % streams.len()];
        block.acquire_for(&ops, other.id())?;
        blocks.push(block);
        if step % 2 == 1 {
            drop(blocks.swap_remove(step / 3 % blocks.len()));
        }
        if step % 10 == 9 {
            allocator.trim(0);
        }
    }
    ops.synchronize(streams[0].id())
}

type Make = fn(&CudaDevice) -> AllocatorRef;

const ALLOCATORS: [(&str, Make); 5] = [
    ("pages", |device| caching_allocator(device).unwrap().into_ref().erase()),
    ("regions", |device| {
        caching_allocator_with(device, Policy::orlop_without_pages()).unwrap().into_ref().erase()
    }),
    ("direct", |device| DriverAllocator::direct(device).into_ref().erase()),
    ("stream-ordered", |device| DriverAllocator::stream_ordered(device).unwrap().into_ref().erase()),
    ("pinned", |device| PinnedAllocator::new(device).into_ref().erase()),
];

/// Runs the program with a fault, or without one. Returns the calls, and whether it failed.
fn run(
    name: &str,
    make: Make,
    fault: Option<(&str, u64, i32)>,
) -> (std::collections::BTreeMap<String, u64>, bool) {
    let config = SimulationConfig::new().poison(false).memory(80 << 20);
    let machine = Machine::new(&config);
    let driver = *machine;
    let streams: Vec<_> = (0..3).map(|_| machine.device.create_stream().unwrap()).collect();
    let allocator = make(&machine.device);
    drop(driver.take_calls());
    if let Some((function, nth, code)) = fault {
        driver.fail(function, nth, code).unwrap();
    }
    let failed = program(&machine.device, &streams, &allocator).is_err();
    let calls = driver.take_calls();
    driver.clear_faults();
    let is_lost = fault.is_some_and(|(_, _, code)| code == 700);
    allocator.verify().unwrap_or_else(|error| panic!("{name}, {fault:?}: {error}"));
    assert_eq!(allocator.stats().totals.all.live_blocks(), 0, "{fault:?}");
    if !is_lost {
        program(&machine.device, &streams, &allocator)
            .unwrap_or_else(|error| panic!("{name}, {fault:?}: {error}"));
        allocator.verify().unwrap();
    }
    drop(allocator);
    drop(streams);
    // A call that releases memory, or without which none can be called.
    let releases = ["Free", "Unmap", "Release", "cuCtx", "cuThread"];
    // Without a cache, memory whose streams cannot be waited for is never given back.
    let retries = !["direct", "stream-ordered"].contains(&name);
    if retries
        && !is_lost
        && !fault.is_some_and(|(function, ..)| releases.iter().any(|part| function.contains(part)))
    {
        drop(machine.device);
        let left = (driver.used_memory(0), driver.counts().pinned, driver.counts().events);
        assert_eq!(left, (0, 0, 0), "{fault:?}: {:?}", driver.live_allocations());
    }
    (calls, failed)
}

#[test]
fn every_call_fails_in_turn() {
    let (mut faults, all) = (0, std::env::var_os("ORLOP_CUDA_ALL_CODES").is_some());
    for (name, make) in ALLOCATORS {
        let (calls, failed) = run(name, make, None);
        assert!(!failed, "{name}");
        for (function, count) in &calls {
            let nths = [1, 2, count / 2, *count];
            for nth in nths.into_iter().filter(|nth| (1..=*count).contains(nth)) {
                // In turn, or with ORLOP_CUDA_ALL_CODES each of them.
                let codes = [2, 1, 900, 700];
                let codes = if all { codes.to_vec() } else { vec![codes[faults % 4]] };
                for code in codes {
                    run(name, make, Some((function, nth, code)));
                    faults += 1;
                }
            }
        }
    }
    println!("{faults} faults");
}
