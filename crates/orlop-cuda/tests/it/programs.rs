//! Random programs of several streams and threads, checked for races.
//!
//! `ORLOP_CUDA_SEEDS` and `ORLOP_CUDA_OPERATIONS` set the number of programs and of operations in each.

use crate::machine::{Machine, handle};
use orlop_alloc::{Access, Allocator, AllocatorRef, Block, DeviceOps, DevicePtr, Request};
use orlop_core::{Device, StreamId};
use orlop_cuda::{
    CudaDevice, CudaMemory, CudaOps, DeviceStream, DriverAllocator, PinnedAllocator, caching_allocator,
    caching_allocator_with,
};
use orlop_cudasim_control::{KernelAccess, KernelRun, SimulatedDriver, SimulationConfig};
use orlop_device::{BackingError, DeviceAllocator, DeviceBacking, EventId, Policy, TorchConf};
use std::sync::Mutex;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end
    }
}

/// A block and the stream that used it last: a program orders its own uses.
struct Used {
    block: Block,
    last: DeviceStream,
}

struct Shared<'a> {
    driver: SimulatedDriver,
    device: &'a CudaDevice,
    ops: CudaOps,
    allocator: AllocatorRef,
    pinned: AllocatorRef,
    /// Blocks pass from thread to thread.
    blocks: Mutex<Vec<Used>>,
}

impl Shared<'_> {
    /// Makes a stream the next user of a block.
    fn order(&self, used: &mut Used, stream: &DeviceStream) {
        if used.last.id() != stream.id() {
            stream.wait_for(used.last.id()).unwrap();
            assert!(used.block.acquire_for(&self.ops, stream.id()).unwrap());
            used.last = stream.clone();
        }
    }

    fn kernel(&self, random: &mut Random, used: &mut Used, stream: &DeviceStream) {
        self.order(used, stream);
        let (address, bytes) = (used.block.as_ptr().as_ptr().addr(), used.block.len());
        let from = random.below(bytes);
        let run = KernelRun::new("kernel").writes(address + from, bytes - from);
        let run = run.takes(std::time::Duration::from_nanos(100 + random.below(20_000) as u64));
        self.driver.run_kernel(handle(stream), run).unwrap();
    }

    fn copy(&self, random: &mut Random, used: &mut Used, stream: &DeviceStream) {
        self.order(used, stream);
        let bytes = used.block.len().min(1 + random.below(1 << 18));
        let mut host = self.pinned.allocate(&Request::new(bytes)).unwrap();
        let (address, there) = (host.as_ptr().as_ptr().addr(), DevicePtr::kept(host.as_ptr()));
        let here = DevicePtr::new(used.block.as_ptr(), used.block.device());
        let access = |access| self.driver.host_access("host", access).unwrap();
        host.record_stream(stream.id()).unwrap();
        if random.below(2) == 0 {
            access(KernelAccess::write(address, bytes));
            host.bytes_mut().unwrap().fill(3);
            // SAFETY: both have this many bytes, and are kept until the stream's work.
            unsafe { self.ops.copy(here, there, bytes, stream.id()) }.unwrap();
        } else {
            // SAFETY: as above.
            unsafe { self.ops.copy(there, here, bytes, stream.id()) }.unwrap();
            if random.below(4) == 0 {
                self.ops.synchronize(stream.id()).unwrap();
                access(KernelAccess::read(address, bytes));
            }
        }
    }

    fn run(&self, seed: u64, operations: u64) {
        let mut random = Random::new(seed);
        let mut streams: Vec<_> = (0..4).map(|_| self.device.create_stream().unwrap()).collect();
        for _ in 0..operations {
            let which = random.below(streams.len());
            let stream = &streams[which];
            let taken = {
                let mut blocks = self.blocks.lock().unwrap();
                let (count, next) = (blocks.len(), random.below(blocks.len().max(1)));
                (count > 0).then(|| (count, blocks.swap_remove(next)))
            };
            match (random.below(100), taken) {
                (0..35, Some((count, mut used))) if count > 40 => {
                    if random.below(2) == 0 {
                        self.kernel(&mut random, &mut used, stream);
                    }
                    drop(used);
                }
                (35..60, Some((_, mut used))) => {
                    self.kernel(&mut random, &mut used, stream);
                    self.blocks.lock().unwrap().push(used);
                }
                (60..70, Some((_, mut used))) => {
                    self.copy(&mut random, &mut used, stream);
                    self.blocks.lock().unwrap().push(used);
                }
                (70..85, Some((_, used))) => drop(used),
                (85..87, taken) => {
                    streams[which] = self.device.create_stream().unwrap();
                    self.blocks.lock().unwrap().extend(taken.map(|(_, used)| used));
                }
                (87, taken) => {
                    drop(taken);
                    self.allocator.trim(0);
                }
                (_, taken) => {
                    self.blocks.lock().unwrap().extend(taken.map(|(_, used)| used));
                    let bytes = 1 + match random.below(4) {
                        0 => random.below(1 << 12),
                        1 => random.below(1 << 18),
                        2 => random.below(1 << 21),
                        _ => random.below(6 << 20),
                    };
                    let request = Request::new(bytes).stream(stream.id());
                    let request = if random.below(4) == 0 { request.zeroed() } else { request };
                    let Ok(block) = self.allocator.allocate(&request) else {
                        self.blocks.lock().unwrap().clear();
                        continue;
                    };
                    let mut used = Used { block, last: stream.clone() };
                    self.kernel(&mut random, &mut used, stream);
                    self.blocks.lock().unwrap().push(used);
                }
            }
        }
    }
}

/// Runs a program on several threads, and returns the number of races.
fn races(seed: u64, operations: u64, threads: u64, make: impl Fn(&CudaDevice) -> AllocatorRef) -> u64 {
    let machine = Machine::new(&SimulationConfig::new().memory(256 << 20).poison(false).seed(seed));
    let shared = Shared {
        driver: *machine,
        device: &machine.device,
        ops: CudaOps::new(&machine.device),
        allocator: make(&machine.device),
        pinned: PinnedAllocator::new(&machine.device).into_ref().erase(),
        blocks: Mutex::default(),
    };
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let shared = &shared;
            scope.spawn(move || shared.run(seed * 100 + thread, operations / threads));
        }
    });
    shared.blocks.lock().unwrap().clear();
    shared.allocator.verify().unwrap();
    shared.pinned.verify().unwrap();
    let name = shared.allocator.name().to_owned();
    let Shared { driver, allocator, pinned, ops, .. } = shared;
    let found = driver.counts().races;
    if found > 0 {
        driver
            .races()
            .iter()
            .take(3)
            .for_each(|race| println!("{name}, seed {seed}, {threads} threads: {race}"));
    }
    drop((allocator, pinned, ops));
    // Memory that was freed in the order of streams.
    driver.advance(std::time::Duration::from_secs(1));
    // The driver's pool keeps memory, but no block of it is left.
    assert_eq!(driver.live_allocations(), [], "{name}, seed {seed}");
    found
}

fn torch(conf: &str) -> Policy {
    Policy::torch(&conf.parse::<TorchConf>().expect("valid settings"))
}

#[test]
fn random_programs_have_no_race() {
    let (seeds, operations) = (setting("ORLOP_CUDA_SEEDS", 3), setting("ORLOP_CUDA_OPERATIONS", 1500));
    let with =
        |device: &CudaDevice, policy| caching_allocator_with(device, policy).unwrap().into_ref().erase();
    type Make<'a> = &'a dyn Fn(&CudaDevice) -> AllocatorRef;
    let makes: [Make<'_>; 6] = [
        &|device| caching_allocator(device).unwrap().into_ref().erase(),
        &|device| with(device, Policy::orlop_without_pages()),
        &|device| with(device, torch("")),
        &|device| with(device, torch("expandable_segments:True")),
        &|device| DriverAllocator::stream_ordered(device).unwrap().into_ref().erase(),
        &|device| DriverAllocator::direct(device).into_ref().erase(),
    ];
    let all = (0..seeds).flat_map(|seed| [1, 4].map(|threads| (seed, threads)));
    let all = all.flat_map(|(seed, threads)| makes.map(|make| (seed, threads, make)));
    let found: u64 = all.map(|(seed, threads, make)| races(seed, operations, threads, make)).sum();
    assert_eq!(found, 0);
}

/// A device whose events are always complete, and whose streams never wait: nothing is deferred.
#[derive(Debug)]
struct NeverDeferred(CudaMemory);

// SAFETY: it breaks the second promise, for a test that shows that the check finds it.
unsafe impl DeviceBacking for NeverDeferred {
    fn allocate(&self, bytes: usize) -> Result<usize, BackingError> {
        self.0.allocate(bytes)
    }

    unsafe fn release(&self, address: usize, bytes: usize) -> Result<(), BackingError> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.release(address, bytes) }
    }

    unsafe fn zero(&self, address: usize, bytes: usize, stream: StreamId) -> Result<(), BackingError> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.zero(address, bytes, stream) }
    }

    fn record(&self, _: StreamId) -> Result<EventId, BackingError> {
        Ok(EventId(u64::MAX))
    }

    fn query(&self, _: EventId) -> Result<bool, BackingError> {
        Ok(true)
    }

    fn synchronize(&self, _: EventId) -> Result<(), BackingError> {
        Ok(())
    }

    fn wait(&self, _: StreamId, _: EventId) -> Result<(), BackingError> {
        Ok(())
    }

    fn memory(&self) -> u64 {
        self.0.memory()
    }

    fn device(&self) -> Device {
        self.0.device()
    }

    fn access(&self) -> Access {
        self.0.access()
    }

    fn name(&self) -> &str {
        "never-deferred"
    }
}

#[test]
fn without_deferral_the_same_programs_race() {
    let found: u64 = (0..3)
        .map(|seed| {
            races(seed, 1500, 1, |device| {
                let memory = NeverDeferred(CudaMemory::in_regions(device));
                DeviceAllocator::new(memory, Policy::orlop_without_pages()).into_ref().erase()
            })
        })
        .sum();
    assert!(found > 10, "{found} races");
}
