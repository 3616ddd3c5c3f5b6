//! Programs that make streams all the time: what the allocators know of them is bounded.

use crate::machine::{Machine, handle};
use orlop_alloc::{Allocator, Request};
use orlop_cuda::{CudaMemory, DeviceStream, PinnedAllocator, caching_allocator, caching_allocator_with};
use orlop_cudasim_control::{KernelRun, SimulationConfig};
use orlop_device::{DeviceAllocator, Policy, TorchConf};
use std::time::Duration;

const STREAMS: usize = 5000;

fn metadata(allocator: &DeviceAllocator<CudaMemory>) -> usize {
    allocator.with_engine(|engine| engine.metadata())
}

/// Each stream has blocks of its own, uses a block of another stream, and ends before its work.
#[test]
fn metadata_does_not_grow_with_streams_that_end() {
    let torch = Policy::torch(&TorchConf::default());
    for policy in [Policy::orlop(), Policy::orlop_without_pages(), torch] {
        let machine = Machine::new(&SimulationConfig::new().poison(false));
        let main = machine.device.create_stream().unwrap();
        let allocator = caching_allocator_with(&machine.device, policy).unwrap().into_ref();
        // Used by many streams, and freed at the end.
        let kept = allocator.allocate(&Request::new(5000).stream(main.id())).unwrap();
        let mut after_few = 0;
        for count in 0..STREAMS {
            let stream = machine.device.create_stream().unwrap();
            let own = allocator.allocate(&Request::new(1 << 20).stream(stream.id())).unwrap();
            machine.write(&stream, &own);
            let shared = allocator.allocate(&Request::new(70_000).stream(main.id())).unwrap();
            machine.write(&main, &shared);
            stream.wait_for(main.id()).unwrap();
            shared.record_stream(stream.id()).unwrap();
            machine.write(&stream, &shared);
            if count % 500 == 0 {
                kept.record_stream(stream.id()).unwrap();
            }
            if count % 2 == 0 {
                drop(stream);
                drop((own, shared));
            } else {
                drop((own, shared));
                drop(stream);
            }
            // The device keeps up with the host.
            machine.advance(Duration::from_micros(100));
            if count == 1000 {
                after_few = metadata(&allocator);
            }
        }
        assert_eq!(machine.races(), []);
        let bytes = metadata(&allocator);
        assert!(bytes <= 2 * after_few, "{bytes} bytes after {STREAMS}, {after_few} after 1,000");
        println!("{bytes} bytes after {STREAMS} streams, {after_few} after 1,000");
        allocator.verify().unwrap();
        assert_eq!(allocator.device_stats().num_failed_calls, 0);
        drop(kept);
        allocator.trim(0);
        assert_eq!(allocator.device_stats().reserved_bytes.all.current, 0);
    }
}

/// Streams that only use blocks of others, and never allocate.
#[test]
fn metadata_does_not_grow_with_streams_that_only_use_blocks() {
    let torch = Policy::torch(&TorchConf::default());
    for policy in [Policy::orlop(), torch] {
        let machine = Machine::new(&SimulationConfig::new().poison(false));
        let main = machine.device.create_stream().unwrap();
        let allocator = caching_allocator_with(&machine.device, policy).unwrap().into_ref();
        for _ in 0..STREAMS {
            let block = allocator.allocate(&Request::new(70_000).stream(main.id())).unwrap();
            let stream = machine.device.create_stream().unwrap();
            block.record_stream(stream.id()).unwrap();
        }
        let bytes = metadata(&allocator);
        assert!(bytes < 64 << 10, "{bytes} bytes");
        allocator.verify().unwrap();
    }
}

/// Pinned blocks are the host's; streams use them for copies.
#[test]
fn metadata_of_pinned_memory_does_not_grow_with_streams_that_end() {
    let machine = Machine::new(&SimulationConfig::new());
    let pinned = PinnedAllocator::new(&machine.device).into_ref();
    for _ in 0..STREAMS {
        let block = pinned.allocate(&Request::new(5000)).unwrap();
        let stream = machine.device.create_stream().unwrap();
        block.record_stream(stream.id()).unwrap();
    }
    // Records are made by segments of 64 KiB.
    let bytes = pinned.stats().usage.metadata;
    assert!(bytes < (64 + 16) << 10, "{bytes} bytes");
    pinned.verify().unwrap();
}

/// A stream that is gone while its work runs is retired after that work.
#[test]
fn streams_with_work_are_not_retired() {
    let machine = Machine::new(&SimulationConfig::new());
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let allocate = |stream: &DeviceStream| {
        let block = allocator.allocate(&Request::new(1 << 20).stream(stream.id())).unwrap();
        let address = block.as_ptr().as_ptr().addr();
        let write = KernelRun::new("write").writes(address, block.len()).takes(Duration::from_secs(1));
        machine.run_kernel(handle(stream), write).unwrap();
        block
    };
    let streams: Vec<_> = (0..60).map(|_| machine.device.create_stream().unwrap()).collect();
    let blocks: Vec<_> = streams.iter().map(allocate).collect();
    drop(streams);
    drop(blocks);
    // There are enough streams to ask which have ended: these have not.
    let more: Vec<_> = (0..20).map(|_| machine.device.create_stream().unwrap()).collect();
    drop(more.iter().map(allocate).collect::<Vec<_>>());
    assert_eq!(machine.races(), []);
    let default = Request::new(1 << 20).stream(machine.device.default_stream());
    let block = allocator.allocate(&default).unwrap();
    let write = KernelRun::new("write").writes(block.as_ptr().as_ptr().addr(), block.len());
    machine.device.context().bind_to_thread().unwrap();
    machine.run_kernel(0, write).unwrap();
    assert_eq!(machine.races(), []);
    allocator.verify().unwrap();
}

/// Several blocks wait for the one event of a stream that is gone while it works.
#[test]
fn the_events_of_streams_that_end_are_used_again() {
    let torch = Policy::torch(&TorchConf::default());
    for policy in [Policy::orlop(), Policy::orlop_without_pages(), torch] {
        let machine = Machine::new(&SimulationConfig::new().poison(false));
        let main = machine.device.create_stream().unwrap();
        let allocator = caching_allocator_with(&machine.device, policy).unwrap().into_ref();
        let request = Request::new(70_000).stream(main.id());
        for _ in 0..1000 {
            let stream = machine.device.create_stream().unwrap();
            let blocks = [(); 3].map(|()| allocator.allocate(&request).unwrap());
            stream.wait_for(main.id()).unwrap();
            for block in &blocks {
                machine.write(&stream, block);
                block.record_stream(stream.id()).unwrap();
            }
            drop(stream);
            drop(blocks);
            // The device keeps up with the host.
            machine.advance(Duration::from_micros(100));
        }
        // cudarc creates and destroys one for each fork of a stream.
        let events = machine.counts().events;
        assert!(events < 40, "{events} events");
        assert_eq!(machine.races(), []);
        allocator.verify().unwrap();
    }
}
