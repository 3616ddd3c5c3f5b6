//! The engines on the traces of real models, beside what a user would pick instead.
//!
//! Steady state, first byte of every block touched, one thread; statistics on; orlop through `dyn Allocator`,
//! once through the context as well. A sample is a number of whole passes; blocks that are live at the end of
//! a pass are returned inside the measured time, on both sides.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use orlop_alloc::backing::{HugePages, Mmap};
use orlop_alloc::bfc::{Bfc, BfcPolicy};
use orlop_alloc::caching::Caching;
use orlop_alloc::engine::{Pool, Pow2};
use orlop_alloc::{Allocator, AllocatorRef, Request};
use orlop_benches::peers::{self, MutexMap, Peer, ReadyTlsf};
use orlop_benches::scenes::{self, Contender, Known, Touch};
use orlop_benches::{Named, Results, operations, traces};
use orlop_context::{AllocatorConfig, Context};
use orlop_core::{Device, MemoryKind};
use orlop_trace::formats::text::Trace;
use std::time::{Duration, Instant};

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
        let (operations, mut slots) = (operations(trace), scenes::slots(trace));
        self.run(contender, name, trace, || {
            scenes::pass(allocator, &operations, Touch::First, &mut slots);
        });
    }

    fn context(&mut self, contender: &str, name: &str, trace: &Trace, allocator: AllocatorRef) {
        let context = Context::with(Device::CPU, AllocatorConfig::new());
        context.register(Device::CPU, MemoryKind::Default, allocator).expect("a CPU allocator");
        let (operations, mut slots) = (operations(trace), scenes::slots(trace));
        let allocate =
            |request: &Request| context.allocate(Device::CPU, request).expect("memory for the traces");
        self.run(contender, name, trace, || {
            scenes::pass_with(allocate, &operations, Touch::First, &mut slots);
        });
    }

    fn peer(&mut self, contender: &str, name: &str, trace: &Trace, peer: &dyn Peer) {
        let (operations, mut slots) = (operations(trace), vec![None; trace.slots()]);
        self.run(contender, name, trace, || peers::pass(peer, &operations, &mut slots));
    }

    fn known(&mut self, name: &str, trace: &Trace) {
        let (operations, mut slots) = (operations(trace), vec![None; trace.slots()]);
        let allocator = Caching::new(Mmap::new()).into_ref().erase();
        let mut known = Known::new(&allocator, &operations, &mut scenes::slots(trace));
        self.run("addresses known", name, trace, || known.pass(&operations, &mut slots));
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
        let bfc = |policy| Bfc::builder(Mmap::new()).policy(policy);
        bench.known(name, trace);
        bench.orlop("orlop caching", name, trace, &Caching::new(Mmap::new()).into_ref().erase());
        bench.context("orlop caching, context", name, trace, Caching::new(Mmap::new()).into_ref().erase());
        bench.orlop("orlop pow2", name, trace, &Pow2::new(Mmap::new()).into_ref().erase());
        bench.context("orlop pow2, context", name, trace, Pow2::new(Mmap::new()).into_ref().erase());
        bench.orlop("orlop pool", name, trace, &Pool::new(Mmap::new()).into_ref().erase());
        bench.orlop("orlop bfc", name, trace, &bfc(BfcPolicy::tensorflow()).build().into_ref().erase());
        let fixed = bfc(BfcPolicy::tensorflow_fixed()).limit(2 * peak).build().into_ref().erase();
        bench.orlop("orlop bfc, ready pool", name, trace, &fixed);
        bench.peer("map pow2, mutex", name, trace, &MutexMap::pow2());
        bench.peer("map exact, mutex", name, trace, &MutexMap::exact());
        bench.peer("rlsf, mutex", name, trace, &ReadyTlsf::new(2 * peak));
        bench.peer("system", name, trace, &peers::system());
        #[cfg(feature = "allocators")]
        {
            bench.peer("mimalloc", name, trace, &peers::Global(mimalloc::MiMalloc));
            bench.peer("jemalloc", name, trace, &peers::Global(tikv_jemallocator::Jemalloc));
            bench.peer("snmalloc", name, trace, &peers::Global(snmalloc_rs::SnMalloc));
        }
    }
    bench.group.finish();
    results.print();
    // A filter asks for single rows.
    if !std::env::args().skip(1).any(|argument| !argument.starts_with('-')) {
        scenes(&traces());
    }
}

/// The rest of the story of the caching engine, beside the others where that says something.
fn scenes(traces: &[Named]) {
    const WINDOW: Duration = Duration::from_millis(300);
    let caching = |huge| Caching::new(Mmap::new().huge_pages(huge)).into_ref().erase();
    let print = |what: &str, figures: &[f64]| {
        let each: Vec<String> = figures.iter().map(|figure| format!("{figure:.2}")).collect();
        let worst = figures.iter().copied().fold(0.0, f64::max);
        println!(
            "{what:<44} mean {:>7.2}  worst {worst:>7.2}   ({})",
            scenes::mean(figures),
            each.join(", ")
        );
    };
    println!("\npeak reserved over peak live, 200 passes, 4 KiB pages");
    let ratio = |named: &[&Named]| scenes::reserved_over_live(&caching(HugePages::Never), named, 200);
    print("orlop caching", &traces.iter().map(|named| ratio(&[named])).collect::<Vec<_>>());
    let pairs = || (0..traces.len()).map(|first| [&traces[first], &traces[(first + 1) % traces.len()]]);
    print("orlop caching, two threads", &pairs().map(|pair| ratio(&pair)).collect::<Vec<_>>());

    println!("\ntwo threads, each with its own trace, ns per operation");
    let both = |what: &str, make: &dyn Fn() -> Contender<'static>| {
        let run = |pair: [&Named; 2]| scenes::threads(&make(), &pair.map(|(_, trace)| trace), WINDOW);
        print(what, &pairs().flat_map(run).collect::<Vec<_>>());
    };
    both("orlop caching", &|| Contender::Orlop(caching(HugePages::System)));
    both("orlop pow2", &|| Contender::Orlop(Pow2::new(Mmap::new()).into_ref().erase()));
    both("orlop bfc", &|| Contender::Orlop(Bfc::new(Mmap::new()).into_ref().erase()));
    let map: &'static MutexMap = Box::leak(Box::new(MutexMap::pow2()));
    both("map pow2, mutex", &|| Contender::Peer(map));
    both("system", &|| Contender::Peer(Box::leak(Box::new(peers::system()))));

    println!("\na block that another thread returns: ns to allocate it, and to return it");
    for bytes in [100, 10_000, 1 << 20] {
        let [allocating, returning] = scenes::handed_over(&caching(HugePages::System), bytes, WINDOW);
        println!("orlop caching, {bytes:>7} bytes                 {allocating:>7.2} {returning:>7.2}");
    }

    println!("\none byte in each page, steady, over the same at addresses known in advance");
    let known = |(_, trace): &Named| scenes::pages_over_known(&caching(HugePages::System), trace, WINDOW);
    print("orlop caching", &traces.iter().map(known).collect::<Vec<_>>());

    println!("\na cold first pass with huge pages, over the same with 4 KiB pages");
    let cold = |(_, trace): &Named| {
        let time = |huge| scenes::cold(|| caching(huge), trace).as_secs_f64();
        time(HugePages::Always) / time(HugePages::Never)
    };
    print("orlop caching", &traces.iter().map(cold).collect::<Vec<_>>());
}
