//! Fixed bugs, each in its smallest form.

use orlop_alloc::adaptor::Limit;
use orlop_alloc::backing::{Null, System};
use orlop_alloc::bfc::{Bfc, BfcPolicy};
use orlop_alloc::engine::{Direct, Pow2};
use orlop_alloc::engine_support::ContextHandle as _;
use orlop_alloc::{AllocationId, Allocator, Request};
use orlop_context::{AllocatorConfig, Budget, Context};
use orlop_core::{Device, MemoryKind};
use orlop_sync::{OwnerState, ShardedCounters};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

const KIND: MemoryKind = MemoryKind::KvCache;

fn count_out(counters: &ShardedCounters, bytes: usize) {
    // SAFETY: the counters exist, and are not destroyed because of the result.
    let state = unsafe { ShardedCounters::count_out(NonNull::from(counters), KIND, bytes, bytes) };
    assert_eq!(state, OwnerState::InUse);
}

/// A slot that only frees was never settled: the peak grew with every block that changed threads.
#[test]
fn the_peak_is_right_when_others_free() {
    let counters = ShardedCounters::<()>::new(true);
    let block = 1 << 20;
    let on_another_thread =
        |f: &(dyn Fn() + Sync)| std::thread::scope(|scope| scope.spawn(f).join().unwrap());
    for _ in 0..100 {
        counters.count_in(KIND, block, block);
        on_another_thread(&|| count_out(&counters, block));
    }
    let slack = 2 * (64 << 10);
    assert!(counters.totals().all.peak_bytes <= block as u64 + slack);
    counters.reset_peaks();
    assert_eq!(counters.totals().all.peak_bytes, 0);
    // Both ways at once: one slot's decrease is another's increase.
    for _ in 0..9 {
        counters.count_in(KIND, block, block);
        on_another_thread(&|| counters.count_in(KIND, block, block));
    }
    for _ in 0..18 {
        count_out(&counters, block);
    }
    let peak = counters.totals().all.peak_bytes;
    assert!(peak.abs_diff(18 * block as u64) <= slack, "{peak}");
}

/// After an absurd request the size of the next region stayed absurd.
#[test]
fn an_absurd_request_leaves_no_trace() {
    let allocator = Bfc::new(System::new()).into_ref();
    assert!(allocator.allocate(&Request::new(1 << 60)).is_err());
    assert!(allocator.allocate(&Request::new(1000)).is_ok());
}

/// A policy without waste split off chunks of zero bytes.
#[test]
fn nothing_is_wasted_and_nothing_split_off_for_that() {
    let policy = BfcPolicy::tensorflow().max_waste_share(1e-12, 1 << 20);
    let allocator = Bfc::builder(System::new()).policy(policy).limit(1 << 20).build().into_ref();
    let blocks: Vec<_> = std::iter::from_fn(|| allocator.allocate(&Request::new(4096)).ok()).collect();
    assert_eq!(blocks.len(), 256);
    allocator.verify().unwrap();
}

/// A callback that allocated for its kind called itself endlessly.
#[test]
fn a_callback_may_allocate() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    let request = Request::new(1000).kind(KIND);
    context.set_budget(Device::CPU, KIND, Budget { soft: Some(1500), ..Budget::hard(1 << 20) }).unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    // In a place that is emptied at the end: a context with a callback that holds the context would never be
    // dropped.
    let place = Arc::new(Mutex::new(Some(context.clone())));
    let (inner, seen) = (Arc::clone(&place), Arc::clone(&calls));
    let kept = Mutex::new(Vec::new());
    context.on_pressure(
        KIND,
        Arc::new(move |_| {
            seen.fetch_add(1, Ordering::Relaxed);
            let inner = inner.lock().unwrap();
            let block =
                inner.as_ref().map(|context| context.allocate(Device::CPU, &Request::new(10).kind(KIND)));
            kept.lock().unwrap().extend(block.map(Result::unwrap));
            0
        }),
    );
    let _blocks =
        [context.allocate(Device::CPU, &request).unwrap(), context.allocate(Device::CPU, &request).unwrap()];
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    place.lock().unwrap().take();
}

/// A panic in a callback leaked the block and its charge.
#[test]
fn a_callback_may_panic() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    context.set_budget(Device::CPU, KIND, Budget { hard: None, soft: Some(1), borrows: false }).unwrap();
    context.on_pressure(KIND, Arc::new(|_| panic!("callback")));
    drop(context.allocate(Device::CPU, &Request::new(1000).kind(KIND)).unwrap());
    assert_eq!(context.budget_status(Device::CPU, KIND).live, 0);
}

/// A charge overflowed, and the accounts were zero with a live block.
#[test]
fn charges_do_not_wrap() {
    let context = Context::with(Device::CPU, AllocatorConfig::new());
    context.set_budget(Device::CPU, KIND, Budget::hard(u64::MAX)).unwrap();
    let _block = context.allocate(Device::CPU, &Request::new(64)).unwrap();
    assert!(context.allocate(Device::CPU, &Request::new(usize::MAX)).is_err());
    assert_eq!(context.budget_status(Device::CPU, MemoryKind::Default).live, 64);
}

/// A loan did not cover the engine's rounding.
#[test]
fn borrowing_covers_rounding() {
    let context = Context::with(Device::CPU, AllocatorConfig::new().named("bfc"));
    context.set_budget(Device::CPU, MemoryKind::Workspace, Budget::hard(0)).unwrap();
    context.set_budget(Device::CPU, KIND, Budget::hard(1 << 20)).unwrap();
    let request = Request::new(1000).kind(MemoryKind::Workspace);
    let block = context.allocate(Device::CPU, &request).unwrap();
    assert_eq!(context.budget_status(Device::CPU, KIND).lent, block.capacity() as u64);
    drop(block);
    assert_eq!(context.budget_status(Device::CPU, KIND).lent, 0);
}

/// The stamp of a chunk split off a stamped one was never cleared.
#[test]
fn remainders_lose_their_stamp_too() {
    let clock = Arc::new(AtomicU64::new(9));
    let allocator =
        Bfc::builder(Null::new(Device::CPU)).limit(64 << 10).clock(Arc::clone(&clock)).build().into_ref();
    drop(allocator.allocate(&Request::new(64 << 10)).unwrap());
    let small = allocator.allocate(&Request::new(8 << 10)).unwrap();
    // Stamped 10: not for a request that accepts memory freed by 5, until everything before 1000 is safe.
    let early = Request::new(32 << 10).freed_before(5);
    assert!(allocator.allocate(&early).is_err());
    allocator.set_safe_frontier(1000);
    let large = allocator.allocate(&early).unwrap();
    drop((small, large));
}

/// Regions were released while a device could still use chunks in them.
#[test]
fn regions_with_unsafe_stamps_stay() {
    let clock = Arc::new(AtomicU64::new(0));
    let allocator = Bfc::builder(System::new()).clock(clock).build().into_ref();
    drop(allocator.allocate(&Request::new(1000)).unwrap());
    assert_eq!(allocator.trim(0), 0);
    allocator.set_safe_frontier(1000);
    assert!(allocator.trim(0) > 0);
}

/// The queue of stamped chunks grew with every free while the frontier did not move.
#[test]
fn the_queue_of_stamps_is_bounded() {
    let allocator = Bfc::builder(System::new()).clock(Arc::default()).build().into_ref();
    let pairs = if cfg!(miri) { 20 } else { 20_000 };
    for _ in 0..pairs {
        drop(allocator.allocate(&Request::new(1000)).unwrap());
    }
    assert!(allocator.stats().usage.regions <= 1);
    allocator.verify().unwrap();
}

/// Blocks outlive handles and adaptors, and their memory is released with the last of them.
#[test]
fn blocks_outlive_handles_and_adaptors() {
    let inner = Pow2::new(System::new()).into_ref().erase();
    let outer = Limit::new(inner.clone(), 1 << 20).into_ref();
    let mut block = outer.allocate(&Request::new(1000)).unwrap();
    drop((inner, outer));
    block.bytes_mut().unwrap().fill(7);
    drop(block);
    let direct = Direct::new(System::new()).into_ref();
    assert!(
        direct.is_unique()
            && !{
                let _other = direct.clone();
                direct.is_unique()
            }
    );
}

/// The chunk behind a grown block got the stamp at which the block's own memory was freed earlier.
#[test]
fn what_is_left_behind_a_grown_block_was_freed_when_it_was() {
    let clock = Arc::new(AtomicU64::new(4));
    let builder = Bfc::builder(System::new()).policy(BfcPolicy::tensorflow_fixed()).limit(1 << 16);
    let allocator = builder.clock(clock).build().into_ref();
    drop(allocator.allocate(&Request::new(1024)).unwrap());
    let mut block = allocator.allocate(&Request::new(1024).freed_before(5)).unwrap();
    assert!(block.grow_in_place(2048));
    // The rest was never handed out.
    assert!(allocator.allocate(&Request::new(1024).freed_before(1)).is_ok());
    drop(block);
    allocator.verify().unwrap();
}

/// The first block of a kind on a thread has an id, also if another thread has used the kind.
#[test]
fn every_block_has_an_id_of_its_own() {
    let allocator = Pow2::new(System::new()).into_ref();
    let ((ask, asked), (answer, answered)) = (channel(), channel());
    std::thread::scope(|scope| {
        let there = allocator.clone();
        scope.spawn(move || {
            // Blocks cached here serve every kind.
            drop(there.allocate(&Request::new(100)).unwrap());
            answer.send(None).unwrap();
            asked.recv().unwrap();
            answer.send(Some(there.allocate(&Request::new(100).kind(KIND)).unwrap())).unwrap();
        });
        assert!(answered.recv().unwrap().is_none());
        let here =
            [1 << 20, 2 << 20].map(|bytes| allocator.allocate(&Request::new(bytes).kind(KIND)).unwrap());
        ask.send(()).unwrap();
        let block = answered.recv().unwrap().unwrap();
        assert_ne!(block.id(), AllocationId::NONE);
        assert!(here.iter().all(|other| other.id() != block.id()));
    });
}

/// A gate whose own gate leads back to it passed a request on for ever.
#[test]
fn a_circle_of_gates_serves_a_request() {
    let [own, first, second] = [(); 3].map(|()| Direct::new(System::new()).into_ref().erase());
    own.set_gate(&own);
    first.set_gate(&second);
    second.set_gate(&first);
    for (allocator, serves) in [(&own, &own), (&first, &second), (&second, &first)] {
        let block = allocator.allocate(&Request::new(100)).unwrap().share();
        assert!(block.is_from(serves));
    }
}
