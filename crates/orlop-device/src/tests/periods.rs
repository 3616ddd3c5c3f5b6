//! Workloads that repeat a period, and diverge from it.

use super::{MIB, engine, on};
use crate::{DeviceAllocator, DeviceBlock, DeviceRequest, Engine, NullDevice, Policy};
use orlop_alloc::{Allocator, Request};
use orlop_core::{Device, StreamId};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use std::cell::Cell;
use std::collections::HashMap;

/// A period: the sizes of its blocks, and the order of their allocations and frees.
#[derive(Debug, Clone)]
struct Program {
    /// In order of time: the index of a block, and whether it is allocated or freed.
    events: Vec<(usize, bool)>,
    sizes: Vec<usize>,
}

fn program() -> impl Strategy<Value = Program> {
    // Models request a few sizes repeatedly.
    let bytes = prop::sample::select(vec![2, 4, 4, 8, 8, 16, 24, 32, 64]).prop_map(|mib: usize| mib * MIB);
    let block = (0_u32..1000, 1_u32..200, bytes);
    prop::collection::vec(block, 20..120).prop_map(|blocks| {
        let mut events = Vec::new();
        for (number, &(start, duration, _)) in blocks.iter().enumerate() {
            events.push((start, number, true));
            events.push((start + duration, number, false));
        }
        events.sort_unstable_by_key(|&(time, number, allocates)| (time, allocates, number));
        let events = events.into_iter().map(|(_, number, allocates)| (number, allocates)).collect();
        Program { events, sizes: blocks.iter().map(|&(.., bytes)| bytes).collect() }
    })
}

struct Run {
    engine: Engine<NullDevice>,
    live: HashMap<usize, DeviceBlock>,
}

impl Run {
    fn new(weights: usize) -> Self {
        let mut engine = engine(Policy::orlop(), 1 << 20);
        // A block that stays: a 128th of it may be reserved beyond the peak.
        engine.allocate(on(weights, 0)).expect("the device has memory");
        Self { engine, live: HashMap::new() }
    }

    fn allocate(&mut self, name: usize, bytes: usize, stream: u64) {
        let block = self
            .engine
            .allocate(DeviceRequest::new(bytes, StreamId::from_raw(stream)))
            .expect("the device has memory");
        assert!(self.live.insert(name, block).is_none());
    }

    fn free(&mut self, name: usize) {
        if let Some(block) = self.live.remove(&name) {
            self.engine.free(block).expect("it is live");
        }
    }

    fn period(&mut self, program: &Program) {
        for &(number, allocates) in &program.events {
            if allocates {
                self.allocate(number, program.sizes[number], 0);
            } else {
                self.free(number);
            }
        }
    }
}

/// Some programs cannot be planned, and a few only late: so they are the same in each run.
#[test]
fn a_program_that_repeats_soon_moves_no_pages() {
    let config = ProptestConfig {
        cases: 200,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let planned = Cell::new(0);
    let programs = (program(), 0_usize..20_000);
    let outcome = TestRunner::new(config).run(&programs, |(program, weights)| {
        let mut run = Run::new(weights);
        let mut moved = Vec::new();
        for _ in 0..16 {
            let before = run.engine.stats().remapped_bytes;
            run.period(&program);
            run.engine.verify().expect("the invariants hold");
            moved.push(run.engine.stats().remapped_bytes - before);
        }
        // For a few programs no plan fits.
        if run.engine.period.is_planned() {
            planned.set(planned.get() + 1);
            prop_assert_eq!(moved.last(), Some(&0), "{:?}", moved);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(planned.get() > 10, "only {} were planned", planned.get());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever the divergence, blocks do not overlap, and the invariants hold.
    #[test]
    fn divergences_from_a_plan_break_no_invariant(
        program in program(),
        weights in 0_usize..20_000,
        divergences in prop::collection::vec((0_usize..2000, 0_u8..6, any::<usize>()), 0..40),
    ) {
        let mut run = Run::new(weights);
        let mut event = 0;
        for _ in 0..8 {
            for &(number, allocates) in &program.events {
                event += 1;
                let divergence = divergences.iter().find(|&&(when, ..)| when == event);
                match divergence {
                    // Another block is allocated, and stays for a while.
                    Some(&(_, 0, name)) if !run.live.contains_key(&(1000 + name % 50)) => {
                        run.allocate(1000 + name % 50, 1 + name % (60 * MIB), 0);
                    }
                    Some(&(_, 1, name)) => run.free(1000 + name % 50),
                    Some(&(_, 2, name)) if !run.live.contains_key(&(2000 + name % 9)) => {
                        run.allocate(2000 + name % 9, 1 + name % (20 * MIB), 1 + (name % 3) as u64);
                    }
                    Some(&(_, 3, _)) => run.engine.empty_cache().unwrap(),
                    Some(&(_, 4, _)) => {
                        if let Some(&block) = run.live.get(&number) {
                            run.engine.record_stream(block, StreamId::from_raw(7)).expect("it is live");
                        }
                    }
                    // An allocation is left out.
                    Some(&(_, 5, _)) if allocates => continue,
                    _ => {}
                }
                if allocates && !run.live.contains_key(&number) {
                    run.allocate(number, program.sizes[number], 0);
                } else if !allocates {
                    run.free(number);
                }
            }
            run.engine.verify().expect("the invariants hold");
        }
        let mut blocks: Vec<_> =
            run.live.values().map(|&block| (run.engine.address(block), run.engine.size(block))).collect();
        blocks.sort_unstable();
        prop_assert!(blocks.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        prop_assert_eq!(run.engine.backing().used(), run.engine.stats().reserved_bytes.all.current);
    }
}

/// Thread caches hide none of the requests that a plan is made of: what the engine alone would plan is
/// planned through an allocator, or moves no pages without a plan.
#[test]
fn programs_of_a_thread_with_a_cache_are_planned() {
    let config = ProptestConfig {
        cases: 60,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let planned = Cell::new([0, 0]);
    let outcome = TestRunner::new(config).run(&(program(), 0_usize..20_000), |(program, weights)| {
        let mut bare = Run::new(weights);
        let device = NullDevice::new(Device::cuda(0), 1 << 40);
        let allocator = DeviceAllocator::new(device, Policy::orlop()).into_ref();
        let allocate = |bytes| allocator.allocate(&Request::new(bytes)).expect("the device has memory");
        let _weights = (weights > 0).then(|| allocate(weights * MIB));
        let mut blocks = HashMap::new();
        let mut moved = Vec::new();
        for _ in 0..16 {
            bare.period(&program);
            let before = allocator.device_stats().remapped_bytes;
            for &(number, allocates) in &program.events {
                if allocates {
                    blocks.insert(number, allocate(program.sizes[number]));
                } else {
                    blocks.remove(&number);
                }
            }
            moved.push(allocator.device_stats().remapped_bytes - before);
        }
        let is_planned =
            [bare.engine.period.is_planned(), allocator.with_engine(|engine| engine.period.is_planned())];
        planned.set(std::array::from_fn(|which| planned.get()[which] + usize::from(is_planned[which])));
        if is_planned.contains(&true) {
            prop_assert_eq!(moved.last(), Some(&0), "{:?}", moved);
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    let [bare, cached] = planned.get();
    assert!(cached > 3, "{cached} were planned, {bare} without a cache");
}

/// A request that takes the slow path of an allocator is one request of the log.
#[test]
fn requests_of_an_allocator_are_logged_once() {
    let allocator = DeviceAllocator::new(NullDevice::new(Device::cuda(0), 1 << 30), Policy::orlop());
    let allocator = allocator.into_ref();
    let on = |mib: usize, stream| Request::new(mib * MIB).stream(StreamId::from_raw(stream));
    // The first stream is watched. Each request takes back a cached block of the other one, and misses again.
    drop(allocator.allocate(&on(1, 1)).unwrap());
    let blocks: Vec<_> = (11..31)
        .map(|mib| {
            drop([(); 2].map(|()| allocator.allocate(&on(2, 2)).unwrap()));
            allocator.allocate(&on(mib, 1)).unwrap()
        })
        .collect();
    let numbers = allocator.with_engine(|engine| {
        let block_of = |address| engine.block_at(address).expect("it is live");
        let blocks = blocks.iter().map(|block| block_of(block.as_ptr().as_ptr().addr()));
        blocks.map(|block| engine.chunks[block.0].after).collect::<Vec<_>>()
    });
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{numbers:?}");
}
