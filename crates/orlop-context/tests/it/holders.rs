//! Out-of-memory reports name the memory's tags and kinds, and have measured figures.

use orlop_alloc::LadderStep;
use orlop_alloc::backing::{Mmap, System};
use orlop_alloc::bfc::{Bfc, BfcPolicy};
use orlop_alloc::caching::Caching;
use orlop_alloc::engine::Arena;
use orlop_alloc::{Allocator, AllocatorRef, Block, Error, OutOfMemory, Refusal, Request, Tag};
use orlop_context::Context;
use orlop_context::{AllocatorConfig, Budget, Pressure};
use orlop_core::{ByteSize, Device, MemoryKind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const KV: MemoryKind = MemoryKind::KvCache;

fn refused<T>(result: Result<T, Error>) -> (String, OutOfMemory) {
    match result {
        Err(error) => {
            let text = format!("{error:#}");
            let Error::OutOfMemory(report) = error else { panic!("{error}") };
            (text, *report)
        }
        Ok(_) => panic!("there was memory"),
    }
}

/// Allocates under two tags, so that blocks are reused under another tag and freed by other threads.
fn holders(allocator: &AllocatorRef) -> Vec<Block> {
    let (weights, cache) = (Tag::new("holders: weights"), Tag::new("holders: cache"));
    let weight = Request::new(40_000).tag(weights).kind(MemoryKind::Persistent);
    let page = Request::new(4096).tag(cache).kind(KV);
    for _ in 0..3 {
        drop(allocator.allocate(&page.tag(weights)).expect("memory"));
        drop(allocator.allocate(&page).expect("memory"));
    }
    let mut blocks: Vec<Block> = (0..10).map(|_| allocator.allocate(&weight).expect("memory")).collect();
    let elsewhere = std::thread::scope(|scope| {
        let work = || (0..20).map(|_| allocator.allocate(&page).expect("memory")).collect::<Vec<_>>();
        scope.spawn(work).join().expect("memory")
    });
    blocks.extend(elsewhere.into_iter().step_by(2));
    blocks.push(allocator.allocate(&Request::new(8192)).expect("memory"));
    blocks
}

fn check_tags(allocator: &AllocatorRef) {
    let blocks = holders(allocator);
    let granted = |tag: Tag| -> u64 {
        blocks.iter().filter(|block| block.tag() == tag).map(|block| block.capacity() as u64).sum()
    };
    let (text, report) = refused(allocator.allocate(&Request::new(1 << 30)));
    let expected: Vec<(Tag, u64)> = ["holders: weights", "holders: cache", ""]
        .map(|name| (Tag::new(name), granted(Tag::new(name))))
        .to_vec();
    assert_eq!(report.by_tag, expected);
    assert_eq!(report.by_kind.iter().map(|&(_, bytes)| bytes).sum::<u64>(), allocator.stats().live());
    for holder in [
        "under tag holders: weights",
        "under tag holders: cache",
        "under tag (untagged)",
        "in kind persistent",
        "in kind kv_cache",
    ] {
        assert!(text.contains(&format!("live {holder}: ")), "{text}");
    }
    drop(blocks);
    let (_, report) = refused(allocator.allocate(&Request::new(1 << 30)));
    assert_eq!((report.by_tag, report.by_kind), (vec![], vec![]));
}

#[test]
fn the_caching_engine_names_tags() {
    check_tags(&Caching::builder(Mmap::new()).limit(4 << 20).build().into_ref().erase());
}

#[test]
fn the_bfc_engine_names_tags() {
    check_tags(
        &Bfc::builder(System::new())
            .policy(BfcPolicy::tensorflow())
            .limit(4 << 20)
            .build()
            .into_ref()
            .erase(),
    );
}

#[test]
fn tracking_names_tags_over_any_engine() {
    let inner = Arena::with_limit(System::new(), 4 << 20, 4 << 20).into_ref();
    check_tags(&orlop_alloc::adaptor::Tracking::new(inner).into_ref().erase());
}

#[test]
fn an_error_in_one_line_and_in_full() {
    let allocator =
        Bfc::builder(System::new()).policy(BfcPolicy::tensorflow()).limit(1 << 16).build().into_ref();
    let _held = allocator.allocate(&Request::new(1 << 15).kind(KV)).unwrap();
    let error = allocator.allocate(&Request::new(1 << 16)).unwrap_err();
    assert_eq!(error.to_string().lines().count(), 1);
    let full = format!("{error:#}");
    assert!(
        full.starts_with(&error.to_string()) && full.contains("hint: ") && full.contains("kind kv_cache")
    );
}

#[test]
fn a_budget_speaks_of_the_context_only() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    context.set_budget(Device::CPU, KV, Budget::hard(100_000)).unwrap();
    let (pages, other) = (Tag::new("budget: pages"), Tag::new("budget: other"));
    let _pages = context.allocate(Device::CPU, &Request::new(60_000).kind(KV).tag(pages)).unwrap();
    let _other = context.allocate(Device::CPU, &Request::new(500_000).tag(other)).unwrap();
    // The engine has more live bytes than the context has charged.
    let allocator = context.allocator(Device::CPU, KV).unwrap();
    drop(allocator.allocate(&Request::new(30_000).kind(KV)).unwrap());
    let (text, report) = refused(context.allocate(Device::CPU, &Request::new(60_000).kind(KV)));
    let live = context.budget_status(Device::CPU, KV).live;
    assert_eq!((report.refusal, report.live, report.reserved, report.free), (Refusal::Budget, live, 0, 0));
    assert_eq!(report.by_kind.iter().find(|&&(kind, _)| kind == KV), Some(&(KV, live)));
    assert_eq!(report.by_tag, [(pages, live)], "of this kind only: {text}");
    assert!(!text.contains("reserved") && !text.contains("budget: other"), "{text}");
    assert!(text.contains("live under tag budget: pages in kv_cache: "), "{text}");
}

/// Discarded pieces still count against the limit: the report says so, and the limit that its hint proposes
/// fits.
#[test]
fn a_limit_is_named_where_free_pieces_are_too_small() {
    let filled = |limit| {
        let allocator = Caching::builder(Mmap::new()).limit(limit).build().into_ref().erase();
        let sizes = [24, 4, 4, 4, 4, 4, 4].map(|mebibytes: usize| mebibytes << 20);
        let mut blocks: Vec<_> =
            sizes.iter().map(|&bytes| allocator.allocate(&Request::new(bytes)).ok()).collect();
        (blocks[2], blocks[4]) = (None, None);
        (allocator, blocks)
    };
    let request = Request::new(20 << 20);
    let (allocator, _blocks) = filled(64 << 20);
    let (text, report) = refused(allocator.allocate(&request));
    assert_eq!(report.refusal, Refusal::Limit, "{text}");
    let enough = report.reserved + report.rounded as u64;
    assert!(
        text.contains(&format!("a limit of {} instead of 64.0 MiB", ByteSize(enough).rounded_up())),
        "{text}"
    );
    let (allocator, _blocks) = filled(usize::try_from(enough).unwrap());
    assert!(allocator.allocate(&request).is_ok());
}

fn limited(bytes: usize) -> Context {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let engine = Bfc::builder(System::new()).policy(BfcPolicy::tensorflow()).limit(bytes).build().into_ref();
    context.register(Device::CPU, MemoryKind::Default, engine).expect("the same device");
    context
}

#[test]
fn what_callbacks_freed_is_measured() {
    let context = limited(1 << 20);
    let request = Request::new(700 << 10).kind(KV).tag(Tag::new("measured"));
    let held = Arc::new(Mutex::new(Some(context.allocate(Device::CPU, &request).unwrap())));
    let calls = Arc::new(AtomicUsize::new(0));
    let (seen, asked) = (Arc::clone(&calls), Arc::new(Mutex::new(None::<Pressure>)));
    let noted = Arc::clone(&asked);
    let liar = context.on_pressure(
        KV,
        Arc::new(move |pressure| {
            seen.fetch_add(1, Ordering::Relaxed);
            *noted.lock().unwrap() = Some(*pressure);
            u64::MAX
        }),
    );
    let (text, report) = refused(context.allocate(Device::CPU, &request));
    assert_eq!(
        report.tried.iter().find(|(step, _)| *step == LadderStep::Callbacks),
        Some(&(LadderStep::Callbacks, 0))
    );
    assert!(text.contains("tried callbacks: 0 B freed"), "{text}");
    let pressure = asked.lock().unwrap().take().unwrap();
    assert_eq!((pressure.kind, pressure.tag, pressure.device), (KV, Tag::new("measured"), Device::CPU));
    assert!(pressure.bytes >= 700 << 10);
    // A callback that reports nothing is measured all the same; one that reported too much is still called.
    let giver = Arc::clone(&held);
    let modest = context.on_pressure(
        KV,
        Arc::new(move |_| {
            giver.lock().unwrap().take();
            0
        }),
    );
    let block = context.allocate(Device::CPU, &request).unwrap();
    let step = context.ladder().into_iter().find(|count| count.step == LadderStep::Callbacks).unwrap();
    assert_eq!(step.bytes, block.capacity() as u64);
    // Removed callbacks are not called.
    let before = calls.load(Ordering::Relaxed);
    assert!(context.remove_on_pressure(liar) && context.remove_on_pressure(modest));
    assert!(!context.remove_on_pressure(liar));
    assert!(context.allocate(Device::CPU, &request).is_err());
    assert_eq!(calls.load(Ordering::Relaxed), before);
}

#[test]
fn a_removed_callback_may_use_the_context_when_it_goes() {
    struct Removes(Context);
    impl Drop for Removes {
        fn drop(&mut self) {
            let id = self.0.on_pressure(KV, Arc::new(|_| 0));
            self.0.remove_on_pressure(id);
        }
    }
    let context = limited(1 << 20);
    let removes = Removes(context.clone());
    let id = context.on_pressure(
        KV,
        Arc::new(move |_| {
            let _ = &removes;
            0
        }),
    );
    assert!(context.remove_on_pressure(id));
}
