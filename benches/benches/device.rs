//! The device engine over addresses without memory, statistics on: what a pair of an allocation and its
//! return costs.
//!
//! *hot* returns a block and asks for the same size again, on one thread and on two. *free of another
//! thread's block* times the return alone, of a thousand blocks in a row. *live n* keeps n blocks of random
//! sizes and replaces one at random each time. Once the bare engine, once through `dyn Allocator`
//! with its handle. *Past the peak* does so until more is held than was ever in use, which is when an engine
//! makes room before it grows, and prints how long single requests take from there on, the longest included.
//! Beside them a chain of dependent reads at random places of a table as large as the engine's own records
//! for a million blocks: what memory itself costs.

use criterion::{BatchSize, Criterion, Throughput};
use orlop_alloc::{Allocator, AllocatorRef, Block, Request};
use orlop_benches::Random;
use orlop_core::{Device, StreamId};
use orlop_device::{DeviceAllocator, DeviceBlock, DeviceRequest, Engine, NullDevice, Policy, TorchConf};
use std::hint::black_box;
use std::time::{Duration, Instant};

const MEMORY: u64 = 1 << 44;

fn device() -> NullDevice {
    NullDevice::new(Device::cuda(0), MEMORY)
}

fn policies() -> [(&'static str, Policy); 3] {
    let torch = Policy::torch(&TorchConf::default());
    [("orlop", Policy::orlop()), ("orlop-segments", Policy::orlop_without_pages()), ("torch", torch)]
}

fn ask(bytes: usize) -> DeviceRequest {
    DeviceRequest::new(bytes, StreamId::default_of(Device::cuda(0)))
}

fn hot(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hot pair");
    group.throughput(Throughput::Elements(1));
    for (name, policy) in policies() {
        for bytes in [4 << 10, 4 << 20] {
            let mut engine = Engine::new(device(), policy.clone());
            group.bench_function(format!("{name}, engine, {bytes}"), |bencher| {
                bencher.iter(|| {
                    let block = engine.allocate(ask(black_box(bytes))).expect("memory");
                    engine.free(block).expect("it is live");
                });
            });
            let allocator: AllocatorRef = DeviceAllocator::new(device(), policy.clone()).into_ref().erase();
            group.bench_function(format!("{name}, dyn Allocator, {bytes}"), |bencher| {
                bencher.iter(|| allocator.allocate(&Request::new(black_box(bytes))).expect("memory"));
            });
        }
    }
    group.finish();
}

/// Pairs of two threads, each on a stream of its own.
fn two_threads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hot pair of two threads");
    group.throughput(Throughput::Elements(1));
    for (name, policy) in policies() {
        let allocator: AllocatorRef = DeviceAllocator::new(device(), policy).into_ref().erase();
        let pairs = |count: u64, stream: u64| {
            let request = Request::new(black_box(4 << 10)).stream(StreamId::from_raw(stream));
            let start = Instant::now();
            (0..count).for_each(|_| drop(allocator.allocate(&request).expect("memory")));
            start.elapsed()
        };
        group.bench_function(format!("{name}, dyn Allocator"), |bencher| {
            bencher.iter_custom(|count| {
                std::thread::scope(|scope| {
                    let other = scope.spawn(|| pairs(count, 1));
                    pairs(count, 2).max(other.join().unwrap_or_default())
                })
            });
        });
    }
    group.finish();
}

/// The return of blocks to the thread that allocated them.
fn foreign_free(criterion: &mut Criterion) {
    /// Blocks that are handed over at once.
    const BATCH: u64 = 1000;
    let mut group = criterion.benchmark_group("free of another thread's block");
    group.throughput(Throughput::Elements(1));
    for (name, policy) in policies() {
        let allocator: AllocatorRef = DeviceAllocator::new(device(), policy).into_ref().erase();
        let request = Request::new(4 << 10).stream(StreamId::from_raw(1));
        let freed = |count: u64| {
            let blocks: Vec<Block> =
                (0..count).map(|_| allocator.allocate(&request).expect("memory")).collect();
            let free = move || {
                let start = Instant::now();
                drop(blocks);
                start.elapsed()
            };
            std::thread::scope(|scope| scope.spawn(free).join()).expect("no panic")
        };
        group.bench_function(format!("{name}, dyn Allocator"), |bencher| {
            bencher.iter_custom(|count| {
                let batches = (0..count / BATCH).map(|_| BATCH).chain([count % BATCH]);
                batches.map(freed).sum()
            });
        });
    }
    group.finish();
}

fn live(criterion: &mut Criterion, count: usize) {
    let mut group = criterion.benchmark_group(format!("live {count}"));
    group.throughput(Throughput::Elements(1));
    for (name, policy) in policies() {
        let mut random = Random::new(0x9E37_79B9_7F4A_7C15);
        let mut engine = Engine::new(device(), policy.clone());
        let mut blocks: Vec<DeviceBlock> =
            (0..count).map(|_| engine.allocate(ask(random.bytes())).expect("memory")).collect();
        let mut replace = || {
            let place = random.below(count);
            engine.free(blocks[place]).expect("it is live");
            blocks[place] = engine.allocate(ask(random.bytes())).expect("memory");
        };
        (0..count).for_each(|_| replace());
        group.bench_function(format!("{name}, engine"), |bencher| bencher.iter(&mut replace));
        let mut random = Random::new(0x9E37_79B9_7F4A_7C15);
        let allocator: AllocatorRef = DeviceAllocator::new(device(), policy).into_ref().erase();
        let mut ask = || Request::new(random.bytes());
        let mut blocks: Vec<Option<Block>> =
            (0..count).map(|_| Some(allocator.allocate(&ask()).expect("memory"))).collect();
        let mut places = Random::new(88_172_645_463_325_252);
        let mut replace = || {
            let place = places.below(count);
            blocks[place] = None;
            blocks[place] = Some(allocator.allocate(&ask()).expect("memory"));
        };
        (0..count).for_each(|_| replace());
        group.bench_function(format!("{name}, dyn Allocator"), |bencher| bencher.iter(&mut replace));
    }
    group.finish();
}

/// Replaces blocks until more is held than was ever in use, and prints the times of the requests that follow.
fn past_the_peak(count: usize) {
    const REQUESTS: usize = 500_000;
    println!(
        "\npast the peak, {count} live: ns a request (median, 99.9 %, the longest), times memory was gained"
    );
    let expandable: TorchConf = "expandable_segments:True".parse().expect("settings");
    let expandable = ("torch, expandable", Policy::torch(&expandable));
    for (name, policy) in policies().into_iter().chain([expandable]) {
        let mut random = Random::new(0x9E37_79B9_7F4A_7C15);
        let mut engine = Engine::new(device(), policy);
        let mut blocks: Vec<DeviceBlock> =
            (0..count).map(|_| engine.allocate(ask(random.bytes())).expect("memory")).collect();
        let mut pairs = 0;
        while pairs < 4 * count {
            let stats = engine.stats();
            let peak = stats.active_bytes.all.peak;
            if stats.reserved_bytes.all.current > peak + peak / 64 {
                break;
            }
            replace(&mut engine, &mut blocks, &mut random, count / 10);
            pairs += count / 10;
        }
        let before = engine.stats().num_device_alloc;
        let mut times: Vec<u128> =
            (0..REQUESTS).map(|_| replace(&mut engine, &mut blocks, &mut random, 1)).collect();
        let gained = engine.stats().num_device_alloc - before;
        times.sort_unstable();
        let at = |share: usize| times[(REQUESTS - 1) / 1000 * share];
        let (median, rare) = (at(500), at(999));
        println!("{name:<18} {median:>8} {rare:>8} {:>10} {gained:>8}", times[REQUESTS - 1]);
    }
}

/// Replaces blocks at random; how long the last request took, in nanoseconds.
fn replace(
    engine: &mut Engine<NullDevice>,
    blocks: &mut [DeviceBlock],
    random: &mut Random,
    times: usize,
) -> u128 {
    let mut last = 0;
    for _ in 0..times {
        let place = random.below(blocks.len());
        engine.free(blocks[place]).expect("it is live");
        let start = Instant::now();
        blocks[place] = engine.allocate(ask(random.bytes())).expect("memory");
        last = start.elapsed().as_nanos();
    }
    last
}

/// One cycle through all places of a table of 128 bytes for each of a million blocks.
fn memory(criterion: &mut Criterion) {
    const PLACES: usize = 1 << 20;
    const WORDS: usize = 16;
    let mut order: Vec<u32> = (0..u32::try_from(PLACES).unwrap_or(u32::MAX)).collect();
    let mut random = Random::new(7);
    for place in (1..PLACES).rev() {
        order.swap(place, random.below(place));
    }
    let mut table = vec![[0_u64; WORDS]; PLACES];
    for pair in 0..PLACES {
        table[order[pair] as usize][0] = u64::from(order[(pair + 1) % PLACES]);
    }
    let mut place = 0;
    criterion.bench_function("a dependent read at random", |bencher| {
        bencher.iter_batched(
            || (),
            |()| {
                place = usize::try_from(table[black_box(place)][0]).unwrap_or(0);
                place
            },
            BatchSize::NumIterations(1_000_000),
        );
    });
}

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .configure_from_args();
    hot(&mut criterion);
    two_threads(&mut criterion);
    foreign_free(&mut criterion);
    live(&mut criterion, 10_000);
    live(&mut criterion, 1_000_000);
    memory(&mut criterion);
    let mut args = std::env::args().skip(1);
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    if is_bench && args.find(|arg| !arg.starts_with('-')).is_none_or(|name| "past the peak".contains(&name)) {
        past_the_peak(1_000_000);
    }
    criterion.final_summary();
}
