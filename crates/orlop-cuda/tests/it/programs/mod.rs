//! Random programs of several streams and threads, checked for races.
//!
//! `cargo xtask cuda races` runs long ones, by these variables:
//!
//! | variable | what | default |
//! |---|---|---|
//! | `ORLOP_CUDA_SEEDS` | programs of each allocator | 2 |
//! | `ORLOP_CUDA_OPERATIONS` | operations of each | 1,500 |
//! | `ORLOP_CUDA_THREADS` | the numbers of threads | `1,4` |
//! | `ORLOP_CUDA_ALLOCATORS` | names of [`MAKES`] | all |

mod captures;
mod never_deferred;
mod peer;
mod program;

use self::captures::Captures;
use self::never_deferred::NeverDeferred;
use self::peer::Peer;
use self::program::{Program, ProgramCounts};
use crate::machine::{Machine, is_chosen, setting};
use orlop_alloc::{Allocator, AllocatorRef};
use orlop_cuda::{
    CudaDevice, CudaMemory, CudaOps, Driver, DriverAllocator, MemoryPool, PinnedAllocator, caching_allocator,
    caching_allocator_with,
};
use orlop_cudasim_control::SimulationConfig;
use orlop_device::{DeviceAllocator, DeviceBacking, Policy, TorchConf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// An allocator under test.
struct Tested {
    allocator: AllocatorRef,
    caching: Option<Box<dyn Captures>>,
    /// The driver's pool that it allocates from.
    pool: Option<Arc<MemoryPool>>,
}

impl Tested {
    fn caching<B: DeviceBacking>(allocator: DeviceAllocator<B>) -> Self {
        let allocator = allocator.into_ref();
        Self { caching: Some(Box::new(allocator.clone())), allocator: allocator.erase(), pool: None }
    }

    fn plain(allocator: impl Allocator) -> Self {
        Self { allocator: allocator.into_ref().erase(), caching: None, pool: None }
    }

    fn in_pool(device: &CudaDevice) -> Self {
        let pool = Arc::new(MemoryPool::new(device).unwrap());
        Self { pool: Some(Arc::clone(&pool)), ..Self::plain(DriverAllocator::in_pool(pool)) }
    }
}

type Make = fn(&CudaDevice) -> Tested;

const MAKES: [(&str, Make); 8] = [
    ("pages", |device| Tested::caching(caching_allocator(device).unwrap())),
    ("regions", |device| with(device, Policy::orlop_without_pages())),
    ("torch", |device| with(device, torch(""))),
    ("torch-pages", |device| with(device, torch("expandable_segments:True"))),
    ("stream-ordered", Tested::in_pool),
    ("direct", |device| Tested::plain(DriverAllocator::direct(device))),
    ("managed", |device| {
        let memory = CudaMemory::managed(device).unwrap();
        Tested::caching(DeviceAllocator::new(memory, Policy::orlop_without_pages()))
    }),
    ("pinned", |device| Tested::plain(PinnedAllocator::new(device))),
];

fn with(device: &CudaDevice, policy: Policy) -> Tested {
    Tested::caching(caching_allocator_with(device, policy).unwrap())
}

fn torch(conf: &str) -> Policy {
    Policy::torch(&conf.parse::<TorchConf>().expect("valid settings"))
}

/// Runs a program on several threads, and returns the number of races.
fn races(seed: u64, operations: u64, threads: u64, make: impl Fn(&CudaDevice) -> Tested) -> u64 {
    let config = SimulationConfig::new().devices([512 << 20, 128 << 20]).peer_access(true);
    races_on(&config.seed(seed), (seed, operations, threads), make)
}

fn races_on(
    config: &SimulationConfig,
    (seed, operations, threads): (u64, u64, u64),
    make: impl Fn(&CudaDevice) -> Tested,
) -> u64 {
    let machine = Machine::new(&config.clone().poison(false));
    let tested = make(&machine.device);
    let has_peer = Driver::load().unwrap().device_count() > 1;
    let peer = has_peer.then(|| Peer::new(&machine.device, &tested, &make));
    machine.device.context().bind_to_thread().unwrap();
    let Tested { allocator, caching, .. } = tested;
    let program = Program {
        driver: *machine,
        device: &machine.device,
        ops: CudaOps::new(&machine.device),
        allocator,
        caching,
        pinned: PinnedAllocator::new(&machine.device).into_ref().erase(),
        peer,
        blocks: Mutex::default(),
        next_pool: AtomicU64::new(0),
        counts: ProgramCounts::default(),
    };
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let program = &program;
            scope.spawn(move || program.run(seed * 100 + thread, operations / threads));
        }
    });
    program.blocks.lock().unwrap().clear();
    program.allocator.verify().unwrap();
    program.pinned.verify().unwrap();
    program.peer.iter().for_each(|peer| peer.allocator.verify().unwrap());
    let name = program.allocator.name().to_owned();
    if operations >= 1000 {
        program.check_counts(&name);
    }
    let Program { driver, allocator, caching, pinned, ops, peer, .. } = program;
    let found = driver.counts().races;
    for race in driver.races().iter().take(3) {
        println!("{name}, seed {seed}, {threads} threads: {race}");
    }
    drop((allocator, caching, pinned, ops, peer));
    // Memory that was freed in the order of streams.
    driver.advance(Duration::from_secs(1));
    // The driver's pool keeps memory, but no block of it is left.
    assert_eq!(driver.live_allocations(), [], "{name}, seed {seed}");
    found
}

#[test]
fn random_programs_have_no_race() {
    let (seeds, operations) = (setting("ORLOP_CUDA_SEEDS", 2), setting("ORLOP_CUDA_OPERATIONS", 1500));
    let threads = std::env::var("ORLOP_CUDA_THREADS").unwrap_or_else(|_| "1,4".to_owned());
    let threads: Vec<u64> = threads.split(',').map(|text| text.parse().expect("a number")).collect();
    let (mut found, mut programs) = (0, 0);
    for (name, make) in MAKES.into_iter().filter(|&(name, _)| is_chosen(name)) {
        for &threads in &threads {
            let start = Instant::now();
            found += (0..seeds).map(|seed| races(seed, operations, threads, make)).sum::<u64>();
            programs += seeds;
            let seconds = start.elapsed().as_secs_f64();
            println!("{name}, threads: {threads}: {found} races, {seeds} x {operations}, {seconds:.0} s");
        }
    }
    assert!(programs > 0, "ORLOP_CUDA_ALLOCATORS names none");
    assert_eq!(found, 0);
}

#[test]
fn without_deferral_the_same_programs_race() {
    let make = |device: &CudaDevice| {
        let memory = NeverDeferred(CudaMemory::in_regions(device));
        Tested::caching(DeviceAllocator::new(memory, Policy::orlop_without_pages()))
    };
    // Where frees wait, for the only device: otherwise the first one of memory that is in use loses it.
    let config = |seed| SimulationConfig::new().memory(512 << 20).seed(seed).waiting_frees(true);
    let found: u64 = (0..3).map(|seed| races_on(&config(seed), (seed, 1500, 1), make)).sum();
    assert!(found > 10, "{found} races");
}
