//! Memory that is returned and allocated again: shrinking, the reclaim ladder, sleep.

use super::{builder, full, oracle, state, tokens, window};
use crate::oracle::{Faults, Oracle};
use orlop_alloc::Request;
use orlop_context::{Budget, Context};
use orlop_core::{Device, MemoryKind};
use orlop_kv::{AdmissionRequest, AdmissionVerdict, KvError, KvPool, KvPoolBuilder, LayerGroup};
use std::sync::{Arc, Mutex};

fn segmented(pages: u32, segment: u32) -> KvPoolBuilder {
    builder(vec![full(16)], pages).segment(segment)
}

/// pytorch#196258, kvcached#437: memory under a running step stays.
#[test]
fn shrinking_spares_what_is_in_use() {
    let context = Context::new();
    let live = || context.stats(Device::CPU).kind(MemoryKind::KvCache).live_bytes;
    let mut pool = segmented(12, 3).build(&context, Device::CPU).unwrap();
    let (page, whole) = (pool.geometry().large_page_bytes(), live());
    let prompt = tokens(1, 64);
    let running = pool.admit(&AdmissionRequest::new(Oracle::fields(), &prompt, 1)).unwrap();
    pool.append(&running.sequence, 64).unwrap();
    let step = pool.close_step();
    // Four pages are in use, in two segments; the other two go.
    assert_eq!(pool.shrink(u64::MAX), 6 * page);
    assert_eq!((pool.stats().total_bytes, pool.verify()), (6 * page, Ok(())));
    assert_eq!(whole - live(), 6 * page);
    drop(running);
    assert_eq!(pool.shrink(1), 0, "the step may still access the pages");
    pool.settle(step).unwrap();
    assert_eq!(pool.shrink(1), 3 * page, "what is left is cached or free");
    assert_eq!(pool.shrink(u64::MAX), 3 * page);
    assert_eq!((live(), pool.stats().total_bytes, pool.reclaimable_now()), (0, 0, 0));
    // Requests wait for memory, which comes back.
    let request = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
    assert!(matches!(pool.can_admit(&request), AdmissionVerdict::Later { missing: 4, .. }));
    assert_eq!(pool.grow(4 * page).unwrap(), 6 * page);
    assert_eq!(pool.can_admit(&request), AdmissionVerdict::Now { hit: 0 });
    assert_eq!((pool.grow(u64::MAX).unwrap(), live(), pool.verify()), (6 * page, whole, Ok(())));
}

/// Each segment has a block of a running sequence: evictions could return none.
#[test]
fn shrinking_evicts_nothing_in_vain() {
    let mut oracle = Oracle::new(segmented(4, 2));
    for family in [1, 3] {
        oracle.serve(&tokens(family, 16));
        let at = oracle.admit(&tokens(family + 1, 16), 1).unwrap();
        oracle.prefill(at).unwrap();
    }
    let before = oracle.books();
    assert_eq!((oracle.pool.shrink(u64::MAX), oracle.books()), (0, before));
    assert!(before.cached_bytes > 0);
}

#[test]
fn shrinking_keeps_pledges() {
    let mut pool = segmented(12, 3).build_detached().unwrap();
    let page = pool.geometry().large_page_bytes();
    let prompt = tokens(1, 16 * 7);
    // Seven pages are pledged and none is taken: one segment can go.
    let admission = pool.admit(&AdmissionRequest::new(Oracle::fields(), &prompt, 1)).unwrap();
    assert_eq!((pool.shrink(u64::MAX), pool.verify()), (3 * page, Ok(())));
    pool.append(&admission.sequence, 16 * 7).unwrap();
    assert_eq!(pool.verify(), Ok(()));
}

#[test]
fn eviction_is_a_step_of_the_reclaim_ladder() {
    let context = Context::new();
    context.set_budget(Device::CPU, MemoryKind::KvCache, Budget::hard(8 << 20).strict()).unwrap();
    // Pages of 1 MiB.
    let groups = vec![LayerGroup::full("full", 1, 64 << 10)];
    let mut pool = builder(groups, 8).segment(2).build(&context, Device::CPU).unwrap();
    let page = pool.geometry().large_page_bytes();
    let prompt = tokens(1, 64);
    let admission = pool.admit(&AdmissionRequest::new(Oracle::fields(), &prompt, 1)).unwrap();
    pool.append(&admission.sequence, 64).unwrap();
    let step = pool.close_step();
    pool.settle(step).unwrap();
    pool.finish(admission.sequence).unwrap();
    let request = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
    assert_eq!(pool.probe(&request), 48);
    let more = Request::new(usize::try_from(6 * page).unwrap()).kind(MemoryKind::KvCache);
    assert!(context.allocate(Device::CPU, &more).is_err());
    let pool = Arc::new(Mutex::new(pool));
    let guard = KvPool::reclaim_on(&pool, &context);
    let locked = pool.lock().unwrap();
    assert!(context.allocate(Device::CPU, &more).is_err(), "the pool is in use");
    drop(locked);
    let block = context.allocate(Device::CPU, &more).unwrap();
    let mut pool = pool.lock().unwrap();
    assert!(pool.stats().total_bytes <= 2 * page && pool.probe(&request) < 48);
    assert_eq!(pool.verify(), Ok(()));
    drop((guard, block));
    pool.grow(u64::MAX).unwrap();
    assert_eq!(pool.stats().total_bytes, 8 * page);
}

/// vllm-omni#6442, vllm#41564.
#[test]
fn a_pool_that_slept_has_the_same_bytes_and_hits() {
    for groups in [vec![full(16)], vec![full(16), window(32, 16)], vec![full(16), state()]] {
        let mut oracle = Oracle::new(builder(groups, 40).segment(7));
        let context = Context::new();
        oracle.serve(&tokens(1, 65));
        let at = oracle.admit(&tokens(2, 70), 20).unwrap();
        oracle.append(at, 70).unwrap();
        let mut transfer = oracle.transfer(Faults::default());
        let refused = oracle.pool.sleep_keep(&context, &mut *transfer);
        assert!(matches!(refused, Err(KvError::NotQuiet { .. })), "a step is open");
        oracle.close();
        let refused = oracle.pool.sleep_keep(&context, &mut *transfer);
        assert!(matches!(refused, Err(KvError::NotQuiet { .. })), "a step is in flight");
        oracle.settle_all();
        let before = oracle.books();
        let kept = oracle.pool.sleep_keep(&context, &mut *transfer).unwrap();
        assert_eq!((kept, oracle.pool.is_asleep()), (before.held_bytes, true));
        let prompt = tokens(3, 20);
        let request = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
        assert!(matches!(oracle.pool.admit(&request), Err(KvError::Asleep)));
        assert_eq!(oracle.pool.can_admit(&request), AdmissionVerdict::Asleep);
        assert!(matches!(oracle.append(at, 1), Err(KvError::Asleep)));
        assert!(matches!(oracle.pool.sleep_discard(), Err(KvError::Asleep)));
        assert_eq!((oracle.pool.shrink(u64::MAX), oracle.pool.grow(1).unwrap()), (0, 0));
        oracle.forget_memory();
        // A failed copy leaves it asleep, with what it keeps.
        let faults = Faults::default();
        faults.one_in.store(1, std::sync::atomic::Ordering::Relaxed);
        assert!(oracle.pool.wake(&mut *oracle.transfer(faults)).is_err());
        assert!(oracle.pool.is_asleep());
        let faults = Faults::default();
        faults.panics.store(1, std::sync::atomic::Ordering::Relaxed);
        assert!(oracle.pool.wake(&mut *oracle.transfer(faults)).is_err(), "the panic is an error");
        assert!(oracle.pool.is_asleep());
        oracle.pool.wake(&mut *transfer).unwrap();
        assert_eq!(oracle.books(), before);
        // The oracle reads what the sequence wrote before.
        oracle.append(at, 20).unwrap();
        oracle.close();
        oracle.settle_all();
        assert_eq!(oracle.serve(&tokens(1, 65)), 64);
        assert!(oracle.pool.wake(&mut *transfer).is_err(), "it is awake");
    }
}

#[test]
fn a_pool_that_sleeps_without_content_forgets_its_cache() {
    let context = Context::new();
    let mut pool = builder(vec![full(16)], 8).build(&context, Device::CPU).unwrap();
    let prompt = tokens(1, 33);
    let request = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
    let admission = pool.admit(&request).unwrap();
    assert!(matches!(pool.sleep_discard(), Err(KvError::NotQuiet { .. })));
    pool.append(&admission.sequence, 33).unwrap();
    let step = pool.close_step();
    pool.settle(step).unwrap();
    pool.finish(admission.sequence).unwrap();
    assert_eq!(pool.probe(&request), 32);
    pool.sleep_discard().unwrap();
    assert!(pool.memory().is_none());
    assert_eq!(context.stats(Device::CPU).kind(MemoryKind::KvCache).live_bytes, 0);
    let oracle = oracle(vec![full(16)], 8);
    let mut transfer = oracle.transfer(Faults::default());
    pool.wake(&mut *transfer).unwrap();
    assert!(pool.memory().is_some());
    assert_eq!((pool.probe(&request), pool.verify()), (0, Ok(())));
}
