//! Handles, views and copies of tensors, beside candle and ndarray.
//!
//! Small things in a loop, warm, one thread: what is made is taken out of its `Result`, as users do, and
//! dropped within the measured time. (A `Result` moved as a whole waits for the two stores that wrote it: up
//! to 11 ns, for whomever.) Copies are of 64 MiB and more, between buffers that were touched before; the
//! floor is `memcpy` (or `memset`) of the same bytes.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion};
use orlop_alloc::backing::System;
use orlop_alloc::caching::Caching;
use orlop_alloc::engine::{Arena, ThreadArenas};
use orlop_alloc::{Allocator, AllocatorRef, Request};
use orlop_context::Context;
use orlop_core::{DType, Device, MemoryKind};
use orlop_tensor::{Tensor, TensorOptions};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Nanoseconds by scene and contender: every sample.
#[derive(Default)]
struct Table(Mutex<BTreeMap<(&'static str, &'static str), Vec<f64>>>);

impl Table {
    fn note(&self, scene: &'static str, contender: &'static str, nanoseconds: f64) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        samples.entry((scene, contender)).or_default().push(nanoseconds);
    }

    fn print(&self) {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rows: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (&(scene, contender), samples) in samples.iter_mut() {
            samples.sort_by(f64::total_cmp);
            let median = samples[samples.len() / 2];
            rows.entry(scene).or_default().push(format!("{contender} {}", in_words(median)));
        }
        println!("\nmedian of the samples");
        for (scene, cells) in rows {
            println!("{scene:<28} {}", cells.join("   "));
        }
    }
}

fn in_words(nanoseconds: f64) -> String {
    match nanoseconds {
        ns if ns < 1e3 => format!("{ns:.1} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns => format!("{:.2} ms", ns / 1e6),
    }
}

struct Bench<'a> {
    group: BenchmarkGroup<'a, WallTime>,
    table: &'a Table,
}

impl Bench<'_> {
    fn run<T>(&mut self, scene: &'static str, contender: &'static str, mut scenario: impl FnMut() -> T) {
        let table = self.table;
        drop(black_box(scenario()));
        self.group.bench_function(BenchmarkId::new(scene, contender), |bencher| {
            bencher.iter_custom(|times| {
                let start = Instant::now();
                for _ in 0..times {
                    drop(black_box(scenario()));
                }
                let elapsed = start.elapsed();
                #[expect(clippy::cast_precision_loss, reason = "nanoseconds per time")]
                table.note(scene, contender, elapsed.as_secs_f64() * 1e9 / times as f64);
                elapsed
            });
        });
    }
}

fn main() {
    let table = Table::default();
    let mut criterion = Criterion::default()
        .sample_size(15)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(700))
        .configure_from_args();
    let mut bench = Bench { group: criterion.benchmark_group("tensor"), table: &table };
    small(&mut bench);
    guards(&mut bench);
    workspace(&mut bench);
    zeros(&mut bench);
    copies(&mut bench);
    bench.group.finish();
    table.print();
    views_allocate_nothing();
}

const MIB: usize = 1 << 20;

/// Rows and columns of the matrix that is transposed.
const SIDE: usize = 8192;

fn small(bench: &mut Bench<'_>) {
    let orlop = "orlop";
    bench.run("empty, 4 floats", orlop, || Tensor::empty(black_box([4]), DType::F32).expect("memory"));
    bench.run("empty, 4 MiB", orlop, || Tensor::empty(black_box([MIB]), DType::F32).expect("memory"));
    let matrix = Tensor::zeros([64, 64], DType::F32).expect("memory");
    bench.run("clone", orlop, || black_box(&matrix).clone());
    bench.run("slice", orlop, || black_box(&matrix).slice(0, Some(8), Some(24), 1).expect("a view"));
    bench.run("narrow", orlop, || black_box(&matrix).narrow(1, 8, 16).expect("a view"));
    bench.run("transpose", orlop, || black_box(&matrix).transpose(0, 1).expect("a view"));

    let array = ndarray::ArcArray2::<f32>::zeros((64, 64));
    bench.run("empty, 4 floats", "ndarray", || ndarray::Array1::<f32>::uninit(black_box(4)));
    bench.run("empty, 4 MiB", "ndarray", || ndarray::Array1::<f32>::uninit(black_box(MIB)));
    bench.run("clone", "ndarray", || black_box(&array).clone());
    bench.run("slice", "ndarray", || black_box(&array).clone().slice_move(ndarray::s![8..24, ..]));
    bench.run("narrow", "ndarray", || black_box(&array).clone().slice_move(ndarray::s![.., 8..24]));
    bench.run("transpose", "ndarray", || black_box(&array).clone().reversed_axes());

    #[cfg(feature = "peers")]
    {
        use candle_core::{DType as D, Device as Dev, Tensor as T};
        let dev = &Dev::Cpu;
        bench.run("empty, 4 floats", "candle", || orlop_benches::peers::candle_empty(black_box(4)));
        bench.run("empty, 4 MiB", "candle", || orlop_benches::peers::candle_empty(black_box(MIB)));
        let matrix = T::zeros((64, 64), D::F32, dev).expect("memory");
        bench.run("clone", "candle", || black_box(&matrix).clone());
        bench.run("slice", "candle", || black_box(&matrix).narrow(0, 8, 16).expect("a view"));
        bench.run("narrow", "candle", || black_box(&matrix).narrow(1, 8, 16).expect("a view"));
        bench.run("transpose", "candle", || black_box(&matrix).t().expect("a view"));
    }
}

/// Bytes of an arena's first segment: more than a step of the scenes below needs.
const ARENA: usize = 8 << 20;

/// Steps between two rewinds.
const STEP: usize = 100;

/// Tensors and blocks of 4 KiB in arenas, beside the caching engine on the same path. All arenas are rewound
/// every [`STEP`] times, within the measured time.
fn workspace(bench: &mut Bench<'_>) {
    let caching = Caching::new(System::new()).into_ref().erase();
    let arena = Arena::new(System::new(), ARENA).into_ref();
    let arenas = ThreadArenas::new(System::new(), ARENA).into_ref();
    let (arena_ref, arenas_ref) = (arena.clone().erase(), arenas.clone().erase());
    let rewind_arena = || arena.reset().expect("no live block");
    let rewind_arenas = || arenas.reset().expect("no live block");

    let context = Context::new();
    context.register(Device::CPU, MemoryKind::Workspace, arenas_ref.clone()).expect("a context");
    let options = TensorOptions::from(DType::F32);
    let workspace = options.kind(MemoryKind::Workspace).context(&context);
    let empty = |options| Tensor::empty(black_box([1024]), options).expect("memory");
    let scene = "4 KiB, by context";
    bench.run(scene, "caching", || empty(options.context(&context)));
    bench.run(scene, "thread arenas", every(STEP, rewind_arenas, || empty(workspace)));
    let scene = "4 KiB, by allocator";
    bench.run(scene, "caching", || empty(options.allocator(&caching)));
    bench.run(scene, "arena", every(STEP, rewind_arena, || empty(options.allocator(&arena_ref))));
    bench.run(scene, "thread arenas", every(STEP, rewind_arenas, || empty(options.allocator(&arenas_ref))));

    let block = |from: &AllocatorRef| from.allocate(&Request::new(black_box(4096))).expect("memory");
    let scene = "4 KiB, block";
    bench.run(scene, "caching", || block(&caching));
    bench.run(scene, "arena", every(STEP, rewind_arena, || block(&arena_ref)));
    bench.run(scene, "thread arenas", every(STEP, rewind_arenas, || block(&arenas_ref)));
}

/// Returns `scenario` with `rewind` before every `times`-th call.
fn every<T>(times: usize, rewind: impl Fn(), mut scenario: impl FnMut() -> T) -> impl FnMut() -> T {
    let mut left = times;
    move || {
        left -= 1;
        if left == 0 {
            left = times;
            rewind();
        }
        scenario()
    }
}

/// Slices of a whole tensor, of a row, and of one that nothing writes, alone and beside another thread that
/// does the same. The other thread shares the machine, so its rows need two free cores.
fn guards(bench: &mut Bench<'_>) {
    let tensor = Tensor::zeros([4, 64], DType::F32).expect("memory");
    let [row, other] = [0, 1].map(|row| tensor.select(0, row).expect("a row"));
    let weights = Tensor::zeros([4, 64], DType::F32).expect("memory");
    weights.storage().expect("a storage").mark_immutable("weights");
    let read = |tensor: &Tensor| black_box(black_box(tensor).as_slice::<f32>().expect("no writer").len());
    let write = |tensor: &Tensor| black_box(black_box(tensor).as_mut_slice::<f32>().expect("alone").len());
    bench.run("slice guard, read", "whole", || read(&tensor));
    bench.run("slice guard, write", "whole", || write(&tensor));
    bench.run("slice guard, read", "row", || read(&row));
    bench.run("slice guard, write", "row", || write(&row));
    bench.run("slice guard, read", "immutable", || read(&weights));
    beside(|| read(&tensor), || bench.run("slice guard, read, 2 threads", "whole", || read(&tensor)));
    beside(|| read(&other), || bench.run("slice guard, read, 2 threads", "row", || read(&row)));
    beside(|| read(&weights), || bench.run("slice guard, read, 2 threads", "immutable", || read(&weights)));
}

/// Runs `act` while another thread repeats `work`.
fn beside(work: impl Fn() -> usize + Sync, act: impl FnOnce()) {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                black_box(work());
            }
        });
        act();
        is_done.store(true, Ordering::Relaxed);
    });
}

fn zeros(bench: &mut Bench<'_>) {
    let mut floor = vec![1u8; 4 * MIB];
    bench.run("zeros, 4 MiB", "memset", || black_box(&mut floor).fill(0));
    bench.run("zeros, 4 MiB", "orlop", || Tensor::zeros(black_box([MIB]), DType::F32));
    bench.run("zeros, 4 MiB", "ndarray", || ndarray::Array1::<f32>::from_elem(black_box(MIB), 0.0));
    #[cfg(feature = "peers")]
    bench.run("zeros, 4 MiB", "candle", || {
        candle_core::Tensor::zeros(black_box(MIB), candle_core::DType::F32, &candle_core::Device::Cpu)
    });
}

fn copies(bench: &mut Bench<'_>) {
    let (source, mut target) = (vec![1.0f32; 16 * MIB], vec![0.0f32; 16 * MIB]);
    bench.run("copy, 64 MiB", "memcpy", || black_box(&mut target).copy_from_slice(black_box(&source)));
    drop((source, target));
    let source = Tensor::ones([4096, 4096], DType::F32).expect("memory");
    let target = Tensor::ones([4096, 4096], DType::F32).expect("memory");
    bench.run("copy, 64 MiB", "orlop", || target.copy_(black_box(&source)).expect("a copy"));
    let wide = Tensor::ones([4096, 8192], DType::F32).expect("memory");
    let columns = wide.slice(1, None, None, 2).expect("every other column");
    bench.run("copy, every other of 128 MiB", "orlop", || target.copy_(black_box(&columns)).expect("a copy"));
    let array = ndarray::Array2::<f32>::ones((4096, 8192));
    let mut into = ndarray::Array2::<f32>::ones((4096, 4096));
    bench.run("copy, every other of 128 MiB", "ndarray", || {
        into.assign(&black_box(&array).slice(ndarray::s![.., ..;2]));
    });
    drop((wide, columns, array, into, source, target));

    let (source, mut target) = (vec![1.0f32; SIDE * SIDE], vec![0.0f32; SIDE * SIDE]);
    bench.run("transpose, 8192 × 8192", "memcpy", || {
        black_box(&mut target).copy_from_slice(black_box(&source));
    });
    drop((source, target));
    let source = Tensor::ones([SIDE, SIDE], DType::F32).expect("memory");
    let target = Tensor::ones([SIDE, SIDE], DType::F32).expect("memory");
    let transposed = source.t().expect("a matrix");
    bench.run("transpose, 8192 × 8192", "orlop", || target.copy_(black_box(&transposed)).expect("a copy"));
    drop((source, target, transposed));
    let array = ndarray::Array2::<f32>::ones((SIDE, SIDE));
    bench.run("transpose, 8192 × 8192", "ndarray", || {
        black_box(&array).t().as_standard_layout().into_owned()
    });
    let mut into = ndarray::Array2::<f32>::ones((SIDE, SIDE));
    bench.run("transpose, 8192 × 8192", "ndarray, assign", || into.assign(&black_box(&array).t()));

    let source = Tensor::ones([4 * MIB], DType::F32).expect("memory");
    let halves = Tensor::empty([4 * MIB], DType::F16).expect("memory");
    bench.run("cast f32 to f16, 16 MiB", "orlop", || halves.copy_(black_box(&source)).expect("a cast"));
    bench.run("cast f16 to f32, 16 MiB", "orlop", || source.copy_(black_box(&halves)).expect("a cast"));
}

/// Views share memory: the context counts no allocation.
fn views_allocate_nothing() {
    let context = Context::new();
    let tensor = Tensor::zeros([64, 64], TensorOptions::new().context(&context)).expect("memory");
    let before = context.stats(Device::CPU).totals.all.allocated_bytes;
    let views: Vec<_> =
        (0..1000).map(|index| tensor.select(0, index % 64).and_then(|row| row.narrow(0, 1, 2))).collect();
    let after = context.stats(Device::CPU).totals.all.allocated_bytes;
    println!("\nbytes that {} views allocated: {}", views.len(), after - before);
}
