//! Tests of the profiles: one at a time, several, and with events missing.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in test functions, but not in what they call")]

use orlop_alloc::adaptor::Tracking;
use orlop_alloc::backing::{Null, System};
use orlop_alloc::engine::Direct;
use orlop_alloc::engine_support::RawBlock;
use orlop_alloc::{Allocator, Block, Error, Event, Observer, Request, Result, Tag, Usage};
use orlop_context::profile::{LeakCheck, MemorySteps, StepOrder, StepTable, with_shape};
use orlop_context::{AllocatorConfig, Context};
use orlop_core::{DType, Device, MemoryKind, Shape};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const KIB: usize = 1 << 10;

/// Over an engine that grants exactly the requested bytes.
fn context() -> Context {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    context.register(Device::CPU, MemoryKind::Default, Direct::new(System::new()).into_ref()).unwrap();
    context
}

fn block(context: &Context, bytes: usize, kind: MemoryKind, tag: &str) -> Block {
    context.allocate(Device::CPU, &Request::new(bytes).kind(kind).tag(Tag::new(tag))).unwrap()
}

fn plain(context: &Context, bytes: usize) -> Block {
    block(context, bytes, MemoryKind::Default, "")
}

#[test]
fn a_leak_check_names_tags() {
    let context = context();
    let before = plain(&context, KIB);
    let check = LeakCheck::on(&context);
    assert_eq!(check.so_far().to_string(), "all blocks that were allocated since the check began were freed");
    let cache = block(&context, 8 * KIB, MemoryKind::KvCache, "layer 3");
    let weights: Vec<_> =
        (0..6).map(|_| block(&context, 4 * KIB, MemoryKind::Persistent, "weights")).collect();
    let odd = plain(&context, 100);
    drop((before, plain(&context, KIB)));
    let leaks = check.finish();

    assert!(!leaks.is_empty() && leaks.refused_frees() == 0);
    let ids: Vec<_> = leaks.blocks().iter().map(|block| block.id).collect();
    let expected = [&cache].into_iter().chain(&weights).chain([&odd]);
    assert_eq!(ids, expected.map(Block::id).collect::<Vec<_>>());
    let groups = leaks.groups();
    let groups: Vec<_> = groups.iter().map(|it| (it.tag.name(), it.kind, it.ids.len())).collect();
    let expected = [
        ("weights", MemoryKind::Persistent, 6),
        ("layer 3", MemoryKind::KvCache, 1),
        ("", MemoryKind::Default, 1),
    ];
    assert_eq!(groups, expected);
    assert_eq!(leaks.requested(), (8 + 24) * 1024 + 100);
    let expected = format!(
        "tag      kind        device  blocks      live  requested  allocations\n\
         weights  persistent  cpu          6  24.0 KiB   24.0 KiB  {}, {}, {}, {}, …\n\
         layer 3  kv_cache    cpu          1  8.00 KiB   8.00 KiB  {}\n\
         (none)   default     cpu          1     100 B      100 B  {}\n\
         all                               8  32.1 KiB   32.1 KiB",
        weights[0].id(),
        weights[1].id(),
        weights[2].id(),
        weights[3].id(),
        cache.id(),
        odd.id()
    );
    assert_eq!(leaks.to_string(), expected);
}

#[test]
fn several_at_a_time_beside_another_observer() {
    #[derive(Default)]
    struct Count(AtomicU64);
    impl Observer for Count {
        fn observe(&self, event: &Event<'_>) {
            let counts = matches!(event, Event::Allocated { .. } | Event::Freed { .. });
            self.0.fetch_add(counts.into(), Ordering::Relaxed);
        }
    }
    let (context, count) = (context(), Arc::new(Count::default()));
    context.add_observer(Arc::clone(&count) as Arc<dyn Observer>);
    let first = LeakCheck::on(&context);
    let early = plain(&context, KIB);
    let (second, steps) = (LeakCheck::on(&context), MemorySteps::on(&context));
    let late = plain(&context, KIB);
    assert_eq!((first.finish().blocks().len(), second.finish().blocks().len()), (2, 1));
    let step = steps.step("free");
    drop((early, late));
    assert_eq!(step.finish().all.frees, 2);
    assert_eq!(count.0.load(Ordering::Relaxed), 4);
    // The other observers do not depend on the profiles.
    drop(steps);
    drop(plain(&context, KIB));
    assert_eq!((count.0.load(Ordering::Relaxed), context.observers().len()), (6, 1));
}

#[test]
fn bare_addresses_and_refused_frees() {
    let allocator = Tracking::new(Direct::new(System::new())).into_ref().erase();
    let check = LeakCheck::on_allocator(&allocator);
    let kept = allocator.allocate(&Request::new(KIB)).unwrap();
    let ptr = allocator.allocate(&Request::new(KIB)).unwrap().into_raw_ptr().unwrap();
    assert_eq!(check.so_far().blocks().len(), 2);
    // SAFETY: the block was given up, and its bytes are unused.
    unsafe { allocator.free(ptr, None) }.unwrap();
    assert_eq!(check.so_far().blocks()[0].id, kept.id());
    // SAFETY: the tracker refuses it.
    unsafe { allocator.free(ptr, None) }.unwrap_err();
    let leaks = check.finish();
    assert_eq!((leaks.blocks().len(), leaks.refused_frees()), (1, 1));
    assert!(leaks.to_string().ends_with("\n1 free was refused: its memory stays unavailable"));
}

#[test]
fn steps_within_steps() {
    let context = context();
    let weights = block(&context, 16 * KIB, MemoryKind::Persistent, "weights");
    let steps = MemorySteps::on(&context);
    let outer_line;
    let mut cache = Vec::new();
    {
        outer_line = line!() + 1;
        let _forward = steps.step("forward");
        let scratch = block(&context, 8 * KIB, MemoryKind::Workspace, "");
        for _ in 0..2 {
            let _layer = steps.step("layer");
            cache.push(block(&context, 4 * KIB, MemoryKind::KvCache, ""));
            drop(block(&context, 64 * KIB, MemoryKind::Workspace, ""));
        }
        drop(scratch);
    }
    let [forward, first, second] = &*steps.finished() else { panic!() };
    assert_eq!((forward.depth, first.depth, second.depth), (0, 1, 1));
    assert_eq!((forward.all.allocations, forward.all.frees), (5, 3));
    assert_eq!((forward.all.live_before, forward.all.live_after), (16 * 1024, 24 * 1024));
    assert_eq!(forward.all.peak_bytes, (16 + 8 + 4 + 4 + 64) * 1024);
    assert_eq!(forward.kind(MemoryKind::Workspace).peak_bytes, 72 * 1024);
    assert_eq!((forward.all.growth(), first.all.growth()), (8 * 1024, 4 * 1024));
    assert_eq!(first.all.peak_bytes, (16 + 8 + 4 + 64) * 1024);
    assert_eq!(forward.kind(MemoryKind::Persistent).allocations, 0);

    let (file, inner_line) = (file!(), first.at.line());
    assert_eq!((forward.at.file(), inner_line), (file, second.at.line()));
    // The times differ from run to run.
    let table = steps.table().grouped();
    let times: Vec<String> = table.rows().iter().map(|step| format!("{:.2?}", step.host_time)).collect();
    let text = times.iter().fold(table.to_string(), |text, time| text.replacen(time, "", 1));
    let words: Vec<String> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        words,
        [
            "step at times host time allocs frees allocated freed before after peak".to_owned(),
            format!("forward {file}:{outer_line} 1 5 3 144 KiB 136 KiB 16.0 KiB 24.0 KiB 96.0 KiB"),
            format!("layer {file}:{inner_line} 2 4 2 136 KiB 128 KiB 24.0 KiB 32.0 KiB 96.0 KiB"),
        ]
    );
    assert!(forward.host_time >= first.host_time + second.host_time);
    assert!(forward.begun <= first.begun && first.begun + first.host_time <= second.begun);
    assert!(forward.thread == first.thread && forward.thread > 0);
    assert_eq!(table.sort_by(StepOrder::HostTime).rows()[0].name, "forward");
    let by_kind = steps.table().by_kind().top(1).to_string();
    assert!(by_kind.contains("\n  · kv_cache") && by_kind.contains("\n  · persistent"), "{by_kind}");
    assert!(!by_kind.contains("· default") && by_kind.ends_with("\nand 2 more"), "{by_kind}");

    let step = steps.step("release".to_owned());
    drop((cache, weights));
    let release = step.finish();
    assert_eq!((release.all.growth(), release.all.live_after), (-24 * 1024, 0));
    assert_eq!(release.all.peak_bytes, 24 * 1024);
    let orders = [
        (StepOrder::Begun, "forward"),
        (StepOrder::Peak, "forward"),
        (StepOrder::Growth, "forward"),
        (StepOrder::Allocated, "forward"),
        (StepOrder::Allocations, "forward"),
    ];
    for (order, first) in orders {
        assert_eq!(steps.table().sort_by(order).top(1).rows()[0].name, first, "{order:?}");
    }
    assert_eq!(steps.table().sort_by(StepOrder::Growth).rows()[3].name, "release");
    steps.clear();
    assert!(steps.finished().is_empty());
}

fn shaped(context: &Context, sizes: &[usize], dtype: DType) -> Block {
    let shape = Shape::new(sizes).unwrap();
    let bytes = shape.checked_bytes(dtype.size()).unwrap();
    with_shape(&shape, dtype, || plain(context, bytes))
}

#[test]
fn shapes_of_what_was_allocated() {
    let context = context();
    let (check, steps) = (LeakCheck::on(&context), MemorySteps::on(&context).record_shapes());
    let kept: Vec<_> = {
        let _step = steps.step("forward");
        drop(plain(&context, KIB));
        let wide = (0..2).map(|_| shaped(&context, &[1024, 8], DType::F32));
        wide.chain([shaped(&context, &[64], DType::F16), shaped(&context, &[], DType::F64)]).collect()
    };
    {
        let _step = steps.step("backward");
        for _ in 0..3 {
            drop(shaped(&context, &[64], DType::F16));
        }
    }
    let [forward, backward] = &*steps.finished() else { panic!() };
    let counts: Vec<_> =
        forward.shapes.iter().map(|it| (it.shape.to_string(), it.allocations, it.allocated_bytes)).collect();
    let name = str::to_owned;
    assert_eq!(
        counts,
        [(name("float32 [1024, 8]"), 2, 65536), (name("float16 [64]"), 1, 128), (name("float64 []"), 1, 8)]
    );
    assert_eq!(backward.shapes[0].allocations, 3);

    // The first cell of a row, and its allocations and bytes.
    let rows = |table: StepTable| -> Vec<String> {
        let text = table.to_string();
        let shapes = text.lines().filter_map(|line| line.trim_start().strip_prefix("· "));
        shapes.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(
        rows(steps.table().by_shape(1)),
        ["float32 [1024, 8] 2 64.0 KiB", "2 more shapes 2 136 B", "float16 [64] 3 384 B"]
    );
    assert!(rows(steps.table()).is_empty());
    let by_count = steps.table().sort_by(StepOrder::Allocations).by_shape(2);
    assert_eq!(rows(by_count)[..2], ["float32 [1024, 8] 2 64.0 KiB", "float16 [64] 1 128 B"]);

    let leaks = check.finish();
    let of: Vec<_> = leaks.blocks().iter().map(|block| block.shape.as_ref().unwrap().sizes.ndim()).collect();
    assert_eq!(of, [1, 0, 2, 2]);
    let [group] = &*leaks.groups() else { panic!("{leaks}") };
    assert_eq!(group.shapes, forward.shapes);
    let text = leaks.to_string();
    assert!(text.contains(": float32 [1024, 8] ×2, float16 [64], float64 []\n"), "{text}");
    drop(kept);
}

#[test]
fn like_steps_have_their_shapes_together() {
    let context = context();
    let steps = MemorySteps::on(&context).record_shapes();
    for size in [10, 20, 10] {
        let _step = steps.step("layer");
        drop(shaped(&context, &[size], DType::F32));
    }
    let table = steps.table().grouped();
    let counts: Vec<_> =
        table.rows()[0].shapes.iter().map(|it| (it.shape.sizes[0], it.allocations)).collect();
    // Equal bytes: sorted by count.
    assert_eq!(counts, [(10, 2), (20, 1)]);
}

#[test]
fn memory_of_others_has_no_shape() {
    let context = context();
    // No profile records shapes: none is recorded, and none shows up later.
    let early = shaped(&context, &[10], DType::F32);
    let check = LeakCheck::on(&context);
    let shape = Shape::new(&[100]).unwrap();
    let blocks = with_shape(&shape, DType::F32, || {
        let own = with_shape(&Shape::new(&[9]).unwrap(), DType::F32, || plain(&context, 36));
        // Smaller than the shape; another thread's; larger, as with gaps.
        let small = plain(&context, 399);
        let other = std::thread::scope(|scope| scope.spawn(|| plain(&context, KIB)).join().unwrap());
        (own, small, other, plain(&context, 500))
    });
    let late = plain(&context, KIB);
    let leaks = check.finish();
    let shapes: Vec<_> =
        leaks.blocks().iter().map(|block| block.shape.as_ref().map(|shape| shape.sizes[0])).collect();
    assert_eq!(shapes, [Some(9), None, None, Some(100), None]);
    drop((early, blocks, late));
}

#[test]
fn on_many_threads_figures_add_up() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let (check, steps) = (LeakCheck::on(&context), MemorySteps::on(&context));
    let (threads, rounds) = if cfg!(miri) { (2, 10) } else { (4, 500) };
    let whole = steps.step("whole");
    let kept: Vec<Block> = std::thread::scope(|scope| {
        let work = |thread: usize| {
            let (context, steps) = (&context, &steps);
            move || {
                let mut kept = Vec::new();
                for round in 0..rounds {
                    let _step = steps.step("round");
                    kept.push(plain(context, 64 + 64 * (round % 7)));
                    if round % 3 != thread % 3 {
                        kept.pop();
                    }
                }
                kept
            }
        };
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(work(thread))).collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let whole = whole.finish();
    let (allocations, alive) = ((threads * rounds) as u64, kept.len() as u64);
    assert_eq!((whole.all.allocations, whole.all.frees), (allocations, allocations - alive));
    let bytes: u64 = kept.iter().map(|block| block.capacity() as u64).sum();
    assert_eq!((whole.all.live_after, whole.all.growth()), (bytes, bytes.cast_signed()));
    assert!(whole.all.peak_bytes >= bytes);
    assert_eq!(steps.finished().len(), threads * rounds + 1);
    let leaks = check.finish();
    assert_eq!((leaks.blocks().len() as u64, leaks.granted()), (alive, bytes));
    drop(kept);
}

/// Refuses to free blocks.
#[derive(Debug)]
struct Keeps(Direct<System>);

// SAFETY: the inner engine's blocks, unchanged.
unsafe impl Allocator for Keeps {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        self.0.allocate(request)
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        Err(Error::DoubleFree { address: block.address() })
    }

    fn device(&self) -> Device {
        Device::CPU
    }

    fn name(&self) -> &str {
        "keeps"
    }

    fn usage(&self) -> Usage {
        self.0.usage()
    }
}

#[test]
fn a_block_whose_free_is_refused_is_live_in_a_step() {
    if cfg!(miri) || std::env::var_os("ASAN_OPTIONS").is_some() {
        eprintln!("skipped: the block is never freed, and leaks are errors here");
        return;
    }
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    context.register(Device::CPU, MemoryKind::Default, Keeps(Direct::new(System::new())).into_ref()).unwrap();
    let steps = MemorySteps::on(&context);
    let step = steps.step("refused");
    drop(plain(&context, KIB));
    let step = step.finish().all;
    assert_eq!((step.allocations, step.frees, step.freed_bytes), (1, 0, 0));
    let live = context.stats(Device::CPU).live();
    assert_eq!((step.live_after, steps.step("after").finish().all.live_before), (live, live));
}

/// Address space without memory reaches the end of the numbers: sums stop there.
#[test]
fn figures_beyond_all_memory_are_sums_that_saturate() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let (steps, check) = (MemorySteps::on(&context), LeakCheck::on(&context));
    let step = steps.step("five");
    let engines = [(); 5].map(|()| Direct::new(Null::new(Device::CPU)).into_ref().erase());
    let request = Request::new(1 << 62);
    let held = engines.each_ref().map(|engine| context.allocate_from(engine, &request).unwrap());
    let map = context.memory_map();
    assert_eq!((map.total(), map.reserved(), map.cached()), (u64::MAX, u64::MAX, 0));
    let leaks = check.so_far();
    assert_eq!(
        (leaks.granted(), leaks.requested(), leaks.groups()[0].granted),
        (u64::MAX, u64::MAX, u64::MAX)
    );
    let later = MemorySteps::on(&context);
    assert_eq!(later.step("later").finish().all.live_before, u64::MAX);
    drop(held);
    let step = step.finish().all;
    assert_eq!((step.allocations, step.allocated_bytes, step.peak_bytes), (5, u64::MAX, u64::MAX));
    assert_eq!((step.frees, step.freed_bytes), (5, u64::MAX));
    assert!(!steps.to_string().is_empty() && context.trim(Device::CPU) == 0);
}
