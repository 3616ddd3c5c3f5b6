//! What recording costs: a pair of allocation and return, without an observer, with a recorder, and with an
//! observer that does nothing, which is what the way to any observer costs. And what an event costs in a
//! binary file.

use criterion::{Criterion, Throughput};
use orlop_alloc::backing::Mmap;
use orlop_alloc::caching::Caching;
use orlop_alloc::{Allocator, AllocatorRef, Event, Observer, Request, Tag};
use orlop_trace::formats::binary::{BinaryReader, BinaryWriter, EventOrder};
use orlop_trace::recorder::Recorder;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Watches and does nothing.
struct Nothing;

impl Observer for Nothing {
    fn observe(&self, event: &Event<'_>) {
        black_box(event);
    }
}

/// Nanoseconds for each allocation or return of pairs: of the best of many short windows, and of the one in
/// the middle.
fn pairs(allocator: &AllocatorRef) -> [f64; 2] {
    const WINDOWS: usize = 4000;
    const PAIRS: u32 = 500;
    let request = Request::new(4096).tag(Tag::new("bench"));
    let mut windows: Vec<f64> = (0..WINDOWS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..PAIRS {
                drop(black_box(allocator.allocate(black_box(&request)).expect("memory for a bench")));
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(2 * PAIRS)
        })
        .collect();
    windows.sort_by(f64::total_cmp);
    [windows[0], windows[WINDOWS / 2]]
}

/// Windows of half a millisecond, as criterion's means are of little use where a machine is shared.
fn recording() {
    let allocator = Caching::new(Mmap::new()).into_ref().erase();
    println!("ns per event: best and median of windows of a thousand");
    let observers: [(&str, Option<Arc<dyn Observer>>); 5] = [
        ("no observer", None),
        ("an observer that does nothing", Some(Arc::new(Nothing))),
        ("a recorder", Some(Recorder::new().observer())),
        ("a recorder of 4096 events", Some(Recorder::builder().capacity(4096).build().observer())),
        ("the observer was removed", None),
    ];
    for (name, observer) in observers {
        observer.iter().for_each(|observer| drop(allocator.add_observer(Arc::clone(observer))));
        let [best, median] = pairs(&allocator);
        println!("{name:<30} {best:>6.2} {median:>6.2}");
        observer.iter().for_each(|observer| drop(allocator.remove_observer(observer)));
    }
}

fn files(criterion: &mut Criterion) {
    let recorder = Recorder::new();
    let allocator = Caching::new(Mmap::new()).into_ref().erase();
    allocator.add_observer(recorder.observer());
    let tags: Vec<Tag> = (0..50).map(|layer| Tag::new(&format!("layer {layer}"))).collect();
    let mut blocks = Vec::new();
    for step in 0..30_000_usize {
        let request = Request::new((step * 7919) % 60_000 + 1).tag(tags[step % tags.len()]);
        blocks.push(allocator.allocate(&request).expect("memory for a bench"));
        if blocks.len() > 40 {
            drop(blocks.swap_remove(step % 40));
        }
    }
    let history = recorder.history();
    let events = &history.devices[0].events;
    let write = || {
        let mut writer = BinaryWriter::new(Vec::new(), EventOrder::Exact).expect("memory takes all");
        for event in events {
            writer.event(0, event, &history.sites).expect("memory takes all");
        }
        writer.finish().expect("memory takes all")
    };
    let bytes = write();
    println!("{:.2} bytes an event", bytes.len() as f64 / events.len() as f64);
    let mut group = criterion.benchmark_group("binary");
    group.throughput(Throughput::Elements(events.len() as u64));
    group.bench_function("write", |bencher| bencher.iter(write));
    group.bench_function("read", |bencher| {
        bencher.iter(|| BinaryReader::new(&bytes[..]).expect("just written").map(Result::unwrap).count());
    });
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args();
    recording();
    files(&mut criterion);
    criterion.final_summary();
}
