//! The engines on the traces of real models, beside what a user would pick instead.
//!
//! Steady state, first byte of every block touched, one thread; statistics on; orlop through `dyn Allocator`,
//! once through the context as well. A sample is a number of whole passes; what lives at the end of a pass is
//! returned inside the measured time, on both sides.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use orlop_alloc::backing::Mmap;
use orlop_alloc::central::{Central, Policy};
use orlop_alloc::context::{Context, CpuConfig};
use orlop_alloc::engine::{Pool, Pow2};
use orlop_alloc::{AllocatorRef, Block, Request};
use orlop_benches::peers::{self, MutexMap, Peer, ReadyTlsf};
use orlop_benches::{Results, traces};
use orlop_core::{Device, MemoryKind};
use orlop_trace::{Step, Trace};
use std::time::{Duration, Instant};

fn pass(slots: &mut [Option<Block>], trace: &Trace, mut allocate: impl FnMut(&Request) -> Block) {
    for step in trace.steps() {
        match step {
            Step::Allocate { slot, bytes, .. } => {
                let mut block = allocate(&Request::new(bytes));
                if let Some(first) = block.bytes_mut().ok().and_then(<[u8]>::first_mut) {
                    *first = 1;
                }
                slots[slot] = Some(block);
            }
            Step::Free { slot } => slots[slot] = None,
        }
    }
    slots.fill_with(|| None);
}

struct Bench<'a> {
    group: BenchmarkGroup<'a, WallTime>,
    results: &'a Results,
}

impl Bench<'_> {
    fn run(&mut self, contender: &str, name: &str, trace: &Trace, mut pass: impl FnMut()) {
        pass();
        self.group.throughput(Throughput::Elements(trace.len() as u64));
        let results = self.results;
        self.group.bench_function(BenchmarkId::new(contender, name), |bencher| {
            bencher.iter_custom(|passes| {
                let start = Instant::now();
                for _ in 0..passes {
                    pass();
                }
                let elapsed = start.elapsed();
                #[expect(clippy::cast_precision_loss, reason = "nanoseconds per operation")]
                let operations = (passes * trace.len() as u64) as f64;
                results.note(contender, name, elapsed.as_secs_f64() * 1e9 / operations);
                elapsed
            });
        });
    }

    fn orlop(&mut self, contender: &str, name: &str, trace: &Trace, allocator: &AllocatorRef) {
        let mut slots: Vec<Option<Block>> = (0..trace.slots()).map(|_| None).collect();
        self.run(contender, name, trace, || {
            pass(&mut slots, trace, |request| allocator.allocate(request).expect("memory for the traces"));
        });
    }

    fn context(&mut self, contender: &str, name: &str, trace: &Trace, allocator: AllocatorRef) {
        let context = Context::with(Device::CPU, CpuConfig::new());
        context.register(Device::CPU, MemoryKind::Default, allocator).expect("a CPU allocator");
        let mut slots: Vec<Option<Block>> = (0..trace.slots()).map(|_| None).collect();
        self.run(contender, name, trace, || {
            pass(&mut slots, trace, |request| {
                context.allocate(Device::CPU, request).expect("memory for the traces")
            });
        });
    }

    fn peer(&mut self, contender: &str, name: &str, trace: &Trace, peer: &dyn Peer) {
        let mut slots = vec![None; trace.slots()];
        self.run(contender, name, trace, || peers::pass(peer, trace, &mut slots));
    }
}

fn main() {
    let results = Results::default();
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args();
    let mut bench = Bench { group: criterion.benchmark_group("alloc"), results: &results };
    for (name, trace) in &traces() {
        let peak = usize::try_from(trace.peak().bytes).expect("the traces fit in memory");
        let bfc = |policy| Central::builder(Mmap::new()).policy(policy);
        bench.orlop("orlop pow2", name, trace, &Pow2::new(Mmap::new()).erase());
        bench.context("orlop pow2, context", name, trace, Pow2::new(Mmap::new()).erase());
        bench.orlop("orlop pool", name, trace, &Pool::builder(Mmap::new()).build().erase());
        bench.orlop("orlop bfc", name, trace, &bfc(Policy::tensorflow()).build().erase());
        let fixed = bfc(Policy::tensorflow_fixed()).limit(2 * peak).build().erase();
        bench.orlop("orlop bfc, ready pool", name, trace, &fixed);
        bench.peer("map pow2, mutex", name, trace, &MutexMap::pow2());
        bench.peer("map exact, mutex", name, trace, &MutexMap::exact());
        bench.peer("rlsf, mutex", name, trace, &ReadyTlsf::new(2 * peak));
        bench.peer("system", name, trace, &peers::system());
        #[cfg(feature = "peers")]
        {
            bench.peer("mimalloc", name, trace, &peers::Global(mimalloc::MiMalloc));
            bench.peer("jemalloc", name, trace, &peers::Global(tikv_jemallocator::Jemalloc));
            bench.peer("snmalloc", name, trace, &peers::Global(snmalloc_rs::SnMalloc));
        }
    }
    bench.group.finish();
    results.print();
}
