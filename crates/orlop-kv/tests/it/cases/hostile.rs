//! What safe code can do with handles, tickets, pins and stores.

use super::tiers::{attach, stats};
use super::{builder, full, oracle, tokens, window};
use crate::oracle::{Faults, MemoryStore, Oracle};
use orlop_alloc::{Block, Request};
use orlop_context::Context;
use orlop_core::Device;
use orlop_kv::{
    AdmissionRequest, KvError, KvGeometry, KvPool, KvTiers, LayerGroup, PageTransfer, PoolMemory,
    PoolMemoryMut, StepId, TierFault,
};
use std::ops::Range;

/// Handles that are forgotten keep their blocks, and nothing else is harmed.
#[test]
fn forgotten_handles_keep_their_blocks() {
    let mut oracle = oracle(vec![full(16), window(32, 16)], 40);
    oracle.serve(&tokens(1, 65));
    let prompt = tokens(1, 65);
    let request = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
    std::mem::forget(oracle.pool.pin(&request).unwrap());
    std::mem::forget(oracle.pool.admit(&request).unwrap());
    let at = oracle.admit(&tokens(2, 40), 1).unwrap();
    oracle.prefill(at).unwrap();
    let _forgotten = oracle.pool.begin_store(&oracle.running[at].handle, 32, u64::MAX).unwrap();
    oracle.finish(at);
    while oracle.pool.evict() {}
    oracle.check();
    assert_eq!(oracle.pool.probe(&request), 64);
    oracle.pool.discard_cache();
    oracle.check();
    assert!(oracle.books().used_bytes > 0 && oracle.books().in_flight_bytes > 0);
}

/// Handles and keys of other pools, and of sequences that have ended, are refused everywhere.
#[test]
fn foreign_and_old_handles_are_refused() {
    let [mut ours, mut other] = [(), ()].map(|()| builder(vec![full(16)], 8).build_detached().unwrap());
    let prompt = tokens(1, 17);
    let request = AdmissionRequest::new(Oracle::fields(), &prompt, 4);
    let foreign = other.admit(&request).unwrap().sequence;
    let (ticket, _) = other.begin_load(&foreign, 16, 10).unwrap();
    let loading = ours.admit(&request).unwrap().sequence;
    let (own_ticket, _) = ours.begin_load(&loading, 16, 10).unwrap();
    let unknown =
        |result: Result<(), KvError>| assert!(matches!(result, Err(KvError::UnknownSequence)), "{result:?}");
    unknown(ours.append(&foreign, 1));
    unknown(ours.append_drafts(&foreign, 1));
    unknown(ours.push_tokens(&foreign, 0, &[1]));
    unknown(ours.truncate(&foreign, 0).map(drop));
    unknown(ours.fork(&foreign, 10).map(drop));
    unknown(ours.len(&foreign).map(drop));
    unknown(ours.store(&foreign, 0).map(drop));
    unknown(ours.begin_load(&foreign, 1, 1).map(drop));
    unknown(ours.begin_store(&foreign, 1, 1).map(drop));
    unknown(ours.take_changed_rows(&[&foreign]).map(drop));
    unknown(ours.write_block_table(&foreign, 0, 0, 0, &mut []).map(drop));
    unknown(ours.finish(foreign));
    assert!(matches!(ours.complete(ticket), Err(KvError::TicketClosed(_))));
    ours.complete(own_ticket).unwrap();
    assert!(matches!(ours.settle(StepId(u64::MAX)), Err(KvError::UnknownStep { .. })));
    assert!(matches!(ours.settle(StepId(0)), Err(KvError::UnknownStep { .. })));
    other.set_time(u64::MAX);
    assert!(matches!(other.complete(ticket), Err(KvError::TicketClosed(_))), "its lease has ended");
    assert_eq!((ours.verify(), other.verify()), (Ok(()), Ok(())));
}

/// Handles of many sequences are dropped on other threads while the pool works.
#[test]
fn handles_are_dropped_while_the_pool_works() {
    let mut pool = builder(vec![full(16), window(32, 16)], 60).build_detached().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || receiver.into_iter().for_each(drop));
        for round in 0..2_000_u32 {
            let prompt = tokens(round % 7, 20 + round % 40);
            let request = AdmissionRequest::new(Oracle::fields(), &prompt, 3);
            if let Ok(admission) = pool.admit(&request) {
                let rest = u32::try_from(prompt.len()).unwrap() - admission.hit;
                pool.append(&admission.sequence, rest).unwrap();
                sender.send(admission.sequence).unwrap();
            }
            let step = pool.close_step();
            pool.settle(step).unwrap();
        }
        drop(sender);
    });
    let step = pool.close_step();
    pool.settle(step).unwrap();
    assert_eq!((pool.stats().used_bytes, pool.verify()), (0, Ok(())));
}

/// Sizes at the ends of their ranges, for what tiers, segments and shares compute.
#[test]
fn extreme_sizes_of_tiers_and_segments_are_answers() {
    for segment in [0, 1, 3, u32::MAX] {
        let mut pool = builder(vec![full(16)], 8).segment(segment).build_detached().unwrap();
        let bytes = pool.stats().total_bytes;
        assert_eq!(pool.shrink(0), 0);
        assert_eq!((pool.shrink(u64::MAX), pool.verify()), (bytes, Ok(())));
        assert_eq!((pool.grow(u64::MAX).unwrap(), pool.verify()), (bytes, Ok(())));
        pool.set_weight("a", 0);
        pool.set_weight("b", u32::MAX);
        pool.set_quota("a", 0);
        pool.set_quota("b", u64::MAX);
        assert_eq!((pool.cached_bytes(usize::MAX), pool.page_ids(usize::MAX)), (0, 0));
    }
    // A page of 2^62 B: nothing is allocated for it before it is stored.
    let geometry = KvGeometry::new(vec![LayerGroup::full("huge", 1, 1 << 58)]).unwrap();
    let mut pool = KvPool::builder(geometry).bytes(u64::MAX).build_detached().unwrap();
    let transfer = Oracle::on_host(builder(vec![full(16)], 8)).transfer(Faults::default());
    pool.attach_tiers(KvTiers::new(&Context::new(), u64::MAX, transfer));
    let prompt = tokens(1, 33);
    let admission = pool.admit(&AdmissionRequest::new(Oracle::fields(), &prompt, 1)).unwrap();
    pool.append(&admission.sequence, 33).unwrap();
    let step = pool.close_step();
    pool.settle(step).unwrap();
    assert!(matches!(pool.store(&admission.sequence, 32), Err(KvError::Allocation(_))));
    assert_eq!((pool.tier_stats().unwrap().host_bytes, pool.verify()), (0, Ok(())));
}

/// A store that claims to have everything.
#[test]
fn a_store_that_lies_costs_no_more_than_a_miss() {
    #[derive(Debug)]
    struct Liar;
    impl orlop_kv::BlockStore for Liar {
        fn put(&mut self, _: orlop_kv::BlockKey, _: &[u8]) -> std::io::Result<()> {
            Ok(())
        }
        fn get(&mut self, _: orlop_kv::BlockKey, _: usize, bytes: &mut Vec<u8>) -> std::io::Result<bool> {
            bytes.resize(200, 7);
            Ok(true)
        }
        fn contains(&mut self, _: orlop_kv::BlockKey) -> std::io::Result<bool> {
            Ok(true)
        }
        fn remove(&mut self, _: orlop_kv::BlockKey) -> std::io::Result<()> {
            Err(std::io::Error::other("no"))
        }
    }
    let mut oracle = oracle(vec![full(16), window(32, 16)], 40);
    let tiers =
        KvTiers::new(&Context::new(), 0, oracle.transfer(Faults::default())).with_store(Box::new(Liar));
    oracle.pool.attach_tiers(tiers);
    assert_eq!(oracle.serve(&tokens(1, 100)), 0);
    assert!(oracle.pool.tier_stats().unwrap().faults(TierFault::Foreign) > 0);
    oracle.check();
}

/// A transfer that puts another block in the place of its destination, and one that panics: errors of the
/// copy, after which the pool goes on.
#[test]
fn transfers_that_exchange_blocks_or_panic_are_failed_copies() {
    #[derive(Debug)]
    struct Exchanging(bool);
    impl PageTransfer for Exchanging {
        fn read(
            &mut self,
            _: &PoolMemory,
            _: &[Range<u64>],
            host: &mut Block,
        ) -> Result<(), orlop_alloc::Error> {
            assert!(!self.0, "a panic of the transfer");
            *host = Context::new().allocate(Device::CPU, &Request::new(host.len()))?;
            Ok(())
        }
        fn write(
            &mut self,
            _: PoolMemoryMut<'_>,
            _: &[Range<u64>],
            _: &Block,
        ) -> Result<(), orlop_alloc::Error> {
            panic!("a panic of the transfer");
        }
    }
    for panics in [false, true] {
        let mut oracle = oracle(vec![full(16)], 8);
        let tiers = KvTiers::new(&Context::new(), u64::MAX, Box::new(Exchanging(panics)));
        oracle.pool.attach_tiers(tiers);
        let at = oracle.admit(&tokens(1, 33), 1).unwrap();
        oracle.prefill(at).unwrap();
        let stored = oracle.pool.store(&oracle.running[at].handle, 32);
        assert!(matches!(stored, Err(KvError::Allocation(_))), "{stored:?}");
        assert_eq!(oracle.pool.tier_stats().unwrap().host_bytes, 0);
        let kept = oracle.pool.sleep_keep(&Context::new(), &mut Exchanging(panics));
        assert!(matches!(kept, Err(KvError::Allocation(_))) && !oracle.pool.is_asleep(), "{kept:?}");
        oracle.check();
    }
}

/// A store whose blocks are torn one after the other: the prefix is not planned anew for each of them.
#[test]
fn a_store_with_many_torn_blocks_is_given_up() {
    let store_ = MemoryStore::default();
    let mut oracle = oracle(vec![full(4), window(8, 4)], 400);
    attach(&mut oracle, 0, Some(Box::new(store_.clone())));
    let prompt = tokens(1, 401);
    let at = oracle.admit(&prompt, 1).unwrap();
    // The window is stored at every unit.
    for end in (16..=400).step_by(16) {
        oracle.append(at, 16).unwrap();
        oracle.close();
        oracle.settle();
        oracle.pool.store(&oracle.running[at].handle, end).unwrap();
    }
    oracle.drop_sequence(at);
    oracle.pool.discard_cache();
    // The blocks of the full layers are intact.
    store_.with(|blocks| {
        let torn = blocks.iter_mut().filter(|(key, _)| key.group == 1);
        torn.for_each(|(_, bytes)| bytes.truncate(70));
    });
    assert_eq!(oracle.serve(&prompt), 0);
    let stats = stats(&oracle);
    assert!(stats.faults(TierFault::Torn) <= 16 && stats.faults(TierFault::Torn) > 8, "{stats:?}");
    oracle.check();
}
