//! Calls of the driver for large blocks in pages, and for the moves of their pages.

use crate::machine::Machine;
use orlop_alloc::{Allocator, Block, Request};
use orlop_cuda::{caching_allocator, caching_allocator_with};
use orlop_cudasim_control::SimulationConfig;
use orlop_device::Policy;
use std::collections::BTreeMap;

const MIB: usize = 1 << 20;

fn machine() -> Machine {
    Machine::new(&SimulationConfig::new().memory(4 << 30).poison(false))
}

fn of(calls: &BTreeMap<String, u64>, name: &str) -> u64 {
    calls.get(name).copied().unwrap_or(0)
}

/// PyTorch's expandable segments take 52 pages of 20 MiB.
#[test]
fn one_gibibyte_takes_few_calls() {
    let expandable = Policy::torch(&"expandable_segments:True".parse().unwrap());
    for (policy, pages) in [(Policy::orlop(), 32), (expandable, 52)] {
        let machine = machine();
        let stream = machine.device.create_stream().unwrap();
        let allocator = caching_allocator_with(&machine.device, policy).unwrap().into_ref();
        drop(machine.take_calls());
        let block = allocator.allocate(&Request::new(1024 * MIB).stream(stream.id())).unwrap();
        let calls = machine.take_calls();
        assert_eq!([of(&calls, "cuMemCreate"), of(&calls, "cuMemMap")], [pages; 2], "{calls:?}");
        machine.write(&stream, &block);
        assert_eq!(machine.races(), []);
    }
}

/// Two free halves become one block: the pages of one move behind the other. `--nocapture` prints the figures
/// of docs/cuda.md.
#[test]
fn one_gibibyte_is_moved_in_few_calls() {
    let machine = machine();
    let stream = machine.device.create_stream().unwrap();
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let of_mib = |mib: usize| -> Block {
        let block = allocator.allocate(&Request::new(mib * MIB).stream(stream.id())).unwrap();
        machine.write(&stream, &block);
        block
    };
    let [one, between, two, end] = [1024, 100, 1024, 100].map(of_mib);
    drop((one, two));
    drop(machine.take_calls());
    let whole = of_mib(2048);
    let calls = machine.take_calls();
    let moving = ["cuMemUnmap", "cuMemMap", "cuMemSetAccess", "cuMemCreate", "cuMemRelease"];
    let moving = moving.map(|name| of(&calls, name));
    println!("1 GiB moved: {calls:?}");
    assert_eq!(allocator.device_stats().remapped_bytes, 1 << 30);
    assert_eq!((&moving[..2], &moving[3..]), (&[32, 32][..], &[0, 0][..]), "{calls:?}");
    assert!(moving[2] == 1, "{calls:?}");
    allocator.verify().unwrap();
    drop((whole, between, end));
    allocator.trim(0);
    assert_eq!((machine.used_memory(0), machine.races()), (0, vec![]));
}

/// Small blocks lie in the large pages of a freed one: a request for as much makes room around them.
#[test]
fn large_pages_around_small_blocks_stay() {
    let machine = machine();
    let stream = machine.device.create_stream().unwrap();
    let allocator = caching_allocator(&machine.device).unwrap().into_ref();
    let request = |bytes: usize| Request::new(bytes).stream(stream.id());
    drop(allocator.allocate(&request(1024 * MIB)).unwrap());
    let small: Vec<_> = (0..200).map(|_| allocator.allocate(&request(2 * MIB)).unwrap()).collect();
    // Every fifth one stays, in pages of 32 MiB.
    let kept: Vec<_> = small.into_iter().step_by(5).collect();
    let large = allocator.allocate(&request(900 * MIB)).unwrap();
    for block in kept.iter().chain([&large]) {
        machine.write(&stream, block);
    }
    allocator.verify().unwrap();
    drop((kept, large));
    allocator.trim(0);
    assert_eq!((allocator.usage().reserved, machine.used_memory(0)), (0, 0));
    assert_eq!((machine.races(), allocator.device_stats().num_failed_calls), (vec![], 0));
}
