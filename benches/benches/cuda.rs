//! The caching allocator of CUDA's memory over the simulated driver, through `dyn Allocator` with statistics
//! on, beside the bare engine over addresses without memory.
//!
//! *hot* and *live n* are those of the bench `device`. A request that cached memory serves calls no driver:
//! what is measured is the way from the handle to the engine and back, with CUDA's backing behind it.

use criterion::{Criterion, Throughput};
use orlop_alloc::{Allocator, AllocatorRef, Block, Request};
use orlop_benches::Random;
use orlop_core::{Device, StreamId};
use orlop_cuda::{CudaDevice, caching_allocator_with};
use orlop_cudasim_control::{SimulatedDriver, SimulationConfig};
use orlop_device::{DeviceRequest, Engine, NullDevice, Policy};
use std::hint::black_box;
use std::time::Duration;

const LIVE: usize = 10_000;

fn hot(criterion: &mut Criterion, name: &str, policy: &Policy, allocator: &AllocatorRef, stream: StreamId) {
    let mut group = criterion.benchmark_group("hot pair");
    group.throughput(Throughput::Elements(1));
    for bytes in [4 << 10, 4 << 20] {
        let mut engine = Engine::new(NullDevice::new(Device::cuda(0), 1 << 40), policy.clone());
        group.bench_function(format!("{name}, engine, {bytes}"), |bencher| {
            bencher.iter(|| {
                let request = DeviceRequest::new(black_box(bytes), stream);
                let block = engine.allocate(request).expect("memory");
                engine.free(block).expect("it is live");
            });
        });
        group.bench_function(format!("{name}, CUDA, {bytes}"), |bencher| {
            let request = || Request::new(black_box(bytes)).stream(stream);
            bencher.iter(|| allocator.allocate(&request()).expect("memory"));
        });
    }
    group.finish();
}

fn live(criterion: &mut Criterion, name: &str, allocator: &AllocatorRef, stream: StreamId) {
    let mut random = Random::new(0x9E37_79B9_7F4A_7C15);
    let mut allocate = || {
        let request = Request::new(random.bytes()).stream(stream);
        Some(allocator.allocate(&request).expect("memory"))
    };
    let mut blocks: Vec<Option<Block>> = (0..LIVE).map(|_| allocate()).collect();
    let mut places = Random::new(88_172_645_463_325_252);
    let mut replace = || {
        let place = places.below(LIVE);
        blocks[place] = None;
        blocks[place] = allocate();
    };
    (0..LIVE).for_each(|_| replace());
    let mut group = criterion.benchmark_group(format!("live {LIVE}"));
    group.throughput(Throughput::Elements(1));
    group.bench_function(format!("{name}, CUDA"), |bencher| bencher.iter(&mut replace));
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .configure_from_args();
    let simulated = SimulationConfig::new().memory(16 << 30).poison(false);
    let _driver = SimulatedDriver::exclusive(&simulated).expect("the simulated driver is built");
    let device = CudaDevice::new(0).expect("a simulated device");
    for (name, policy) in [("orlop", Policy::orlop()), ("orlop-segments", Policy::orlop_without_pages())] {
        let stream = device.create_stream().expect("a stream");
        let allocator = caching_allocator_with(&device, policy.clone()).expect("memory of the device");
        let allocator = allocator.into_ref().erase();
        hot(&mut criterion, name, &policy, &allocator, stream.id());
        live(&mut criterion, name, &allocator, stream.id());
    }
    criterion.final_summary();
}
