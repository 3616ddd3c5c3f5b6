//! Random programs that capture graphs: their memory is their own until they are gone.

use crate::machine::{Machine, handle};
use crate::random::Random;
use cudarc::driver::CudaGraph;
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use orlop_alloc::{Allocator, AllocatorRef, Block, Request};
use orlop_cuda::{CudaMemory, DeviceStream, caching_allocator_with};
use orlop_cudasim_control::{KernelRun, SimulationConfig};
use orlop_device::{DeviceAllocator, Policy, PoolId, StreamFilter, TorchConf};
use std::collections::VecDeque;

type Caching = AllocatorRef<DeviceAllocator<CudaMemory>>;

struct Program<'a> {
    machine: &'a Machine,
    allocator: Caching,
    random: Random,
    /// Captures, and launches.
    captured: DeviceStream,
    others: [DeviceStream; 2],
    /// Blocks outside of captures, which their stream and another one use.
    blocks: Vec<Block>,
}

impl Program<'_> {
    fn allocate(&mut self, stream: &DeviceStream) -> Block {
        let bytes = 1 + match self.random.below(3) {
            0 => self.random.below(1 << 12),
            1 => self.random.below(1 << 20),
            _ => self.random.below(8 << 20),
        };
        let request = Request::new(bytes).stream(stream.id());
        let request = if self.random.below(4) == 0 { request.zeroed() } else { request };
        self.allocator.allocate(&request).unwrap()
    }

    fn write(&self, stream: &DeviceStream, block: &Block) {
        let (address, bytes) = (block.as_ptr().as_ptr().addr(), block.len());
        let run = KernelRun::new("write").writes(address, bytes).takes(std::time::Duration::from_micros(20));
        self.machine.run_kernel(handle(stream), run).unwrap();
    }

    /// Work of streams that do not capture.
    fn elsewhere(&mut self) {
        let which = self.random.below(2);
        let (own, user) = (self.others[which].clone(), self.others[1 - which].clone());
        let block = self.allocate(&own);
        self.write(&own, &block);
        if self.random.below(2) == 0 {
            user.wait_for(own.id()).unwrap();
            block.record_stream(user.id()).unwrap();
            self.write(&user, &block);
        }
        self.blocks.push(block);
        while self.blocks.len() > 6 {
            let next = self.random.below(self.blocks.len());
            drop(self.blocks.swap_remove(next));
        }
    }

    /// Captures a graph. Some of its blocks are freed in it, and reused; the others are kept with it.
    fn capture(&mut self, pool: Option<PoolId>) -> (CudaGraph, Vec<Block>) {
        let stream = self.captured.clone();
        if let Some(pool) = pool {
            self.allocator.begin_allocate_to_pool(pool, StreamFilter::only([stream.id()])).unwrap();
        }
        self.allocator.mark_capture_begin();
        let mode = [
            CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
            CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
            CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
        ][self.random.below(3)];
        stream.cudarc().begin_capture(mode).unwrap();
        let mut kept = Vec::new();
        for _ in 0..20 {
            match self.random.below(4) {
                0 => self.elsewhere(),
                _ => {
                    let block = self.allocate(&stream);
                    self.write(&stream, &block);
                    kept.push(block);
                }
            }
            if self.random.below(2) == 0 && !kept.is_empty() {
                let next = self.random.below(kept.len());
                drop(kept.swap_remove(next));
            }
        }
        let graph = stream.cudarc().end_capture(CUgraphInstantiate_flags(0)).unwrap().expect("a graph");
        self.allocator.mark_capture_end().unwrap();
        if let Some(pool) = pool {
            self.allocator.end_allocate_to_pool(pool).unwrap();
        }
        (graph, kept)
    }
}

/// Runs a program, and returns the number of races.
fn races(seed: u64, policy: Policy, has_pools: bool) -> u64 {
    let machine = Machine::new(&SimulationConfig::new().memory(8 << 30).poison(false).seed(seed));
    let device = &machine.device;
    let allocator = caching_allocator_with(device, policy).unwrap().into_ref();
    let [captured, one, two] = [(); 3].map(|()| device.create_stream().unwrap());
    let random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut program =
        Program { machine: &machine, allocator, random, captured, others: [one, two], blocks: Vec::new() };
    let mut graphs: VecDeque<(PoolId, CudaGraph, Vec<Block>)> = VecDeque::new();
    for round in 0..12 {
        let pool: PoolId = (1, round);
        let (graph, kept) = program.capture(has_pools.then_some(pool));
        graphs.push_back((pool, graph, kept));
        for _ in 0..30 {
            match program.random.below(4) {
                0 => {
                    let next = program.random.below(graphs.len());
                    graphs[next].1.launch().unwrap();
                }
                // Memory that the stream of the graphs uses itself.
                1 => {
                    let stream = program.captured.clone();
                    let block = program.allocate(&stream);
                    program.write(&stream, &block);
                }
                _ => program.elsewhere(),
            }
        }
        if graphs.len() > 3
            && let Some((pool, graph, kept)) = graphs.pop_front()
        {
            drop(graph);
            drop(kept);
            if has_pools {
                program.allocator.release_pool(pool).unwrap();
            }
        }
        program.allocator.verify().unwrap();
    }
    assert_eq!(program.allocator.device_stats().num_failed_calls, 0);
    let Program { allocator, .. } = program;
    drop(graphs);
    allocator.trim(0);
    allocator.verify().unwrap();
    drop(allocator);
    machine.counts().races
}

fn policies() -> [Policy; 4] {
    let torch = |conf: &str| Policy::torch(&conf.parse::<TorchConf>().expect("valid settings"));
    [Policy::orlop(), Policy::orlop_without_pages(), torch(""), torch("expandable_segments:True")]
}

#[test]
fn captures_have_no_race_and_are_not_ended() {
    for seed in 1..4 {
        for policy in policies() {
            let name = policy.name;
            assert_eq!(races(seed, policy, true), 0, "{name}, seed {seed}");
        }
    }
}

/// Memory of a graph that is not in a pool of its own is handed to other streams, which race with launches.
#[test]
fn without_pools_the_same_programs_race() {
    let mut policy = Policy::orlop_without_pages();
    // Nothing is released as long as there is memory: a launch would find none.
    policy.extensions.hold_to_peak = None;
    let found: u64 = (1..4).map(|seed| races(seed, policy.clone(), false)).sum();
    assert!(found > 10, "{found} races");
}
