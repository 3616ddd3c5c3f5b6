//! Stores behind host memory: budgets, shards, failures that pass.

use super::tiers::{attach, stats, store};
use super::{builder, full, oracle, tokens, window};
use crate::oracle::{Faults, MemoryStore, Oracle};
use orlop_context::Context;
use orlop_kv::{KvEvent, KvTier, KvTiers, TierFault};
use std::sync::atomic::Ordering::Relaxed;

/// A store that fails to read a block for the moment keeps it.
#[test]
fn a_block_that_could_not_be_read_stays_in_the_store() {
    let store_ = MemoryStore::default();
    let mut oracle = oracle(vec![full(16)], 8);
    attach(&mut oracle, 0, Some(Box::new(store_.clone())));
    let prompt = tokens(1, 33);
    store(&mut oracle, &prompt);
    store_.fails_reads.store(1, Relaxed);
    assert_eq!((oracle.serve(&prompt), stats(&oracle).faults(TierFault::Failed)), (0, 1));
    store_.fails_reads.store(0, Relaxed);
    oracle.pool.discard_cache();
    assert_eq!(oracle.serve(&prompt), 32);
}

/// A question to a store may take long: an admission has one for each block, also if a plan fails.
#[test]
fn an_admission_looks_a_block_up_once() {
    let store_ = MemoryStore::default();
    let mut oracle = oracle(vec![full(16), window(32, 16)], 40);
    attach(&mut oracle, 0, Some(Box::new(store_.clone())));
    let prompt = tokens(1, 97);
    store(&mut oracle, &prompt);
    store_.with(|blocks| {
        let torn = blocks.iter_mut().filter(|(key, _)| key.group == 1);
        torn.for_each(|(_, bytes)| bytes.truncate(70));
    });
    store_.take_lookups();
    let at = oracle.admit(&prompt, 1).unwrap();
    let looked_up = store_.take_lookups();
    let mut keys = looked_up.clone();
    keys.sort_unstable();
    keys.dedup();
    assert!(stats(&oracle).faults(TierFault::Torn) > 0 && keys.len() > 6);
    assert_eq!(looked_up.len(), keys.len());
    oracle.prefill(at).unwrap();
    oracle.finish(at);
    oracle.check();
}

/// A store that cannot say what it has is a miss, and is counted.
#[test]
fn lookups_that_fail_are_counted() {
    let store_ = MemoryStore::default();
    let mut oracle = oracle(vec![full(16)], 8);
    attach(&mut oracle, 0, Some(Box::new(store_.clone())));
    let prompt = tokens(1, 33);
    store(&mut oracle, &prompt);
    assert_eq!(stats(&oracle).failed_lookups, 0);
    store_.fails_lookups.store(1, Relaxed);
    assert_eq!((oracle.serve(&prompt), stats(&oracle).failed_lookups), (0, 1));
    store_.fails_lookups.store(0, Relaxed);
    oracle.pool.discard_cache();
    assert_eq!(oracle.serve(&prompt), 32);
}

/// Host memory stays within its budget at any time of a store or a restore.
#[test]
fn the_host_budget_holds_during_a_transfer() {
    let mut oracle = Oracle::new(builder(vec![full(16)], 12).events(true));
    let block = oracle.pool.geometry().page_bytes(0);
    attach(&mut oracle, 2 * block, Some(Box::new(MemoryStore::default())));
    let prompt = tokens(1, 129);
    store(&mut oracle, &prompt);
    assert_eq!(oracle.serve(&prompt), 128);
    let (mut host, mut peak) = (0, 0);
    for event in oracle.pool.take_events() {
        match event {
            KvEvent::BlockStored { tier: KvTier::Host, bytes, .. } => host += bytes,
            KvEvent::BlockRemoved { tier: KvTier::Host, bytes, .. } => host -= bytes,
            _ => {}
        }
        peak = peak.max(host);
    }
    assert_eq!(peak, 2 * block);
}

/// The ranks of a tensor-parallel model compute the same prompts, and each has heads of its own.
#[test]
fn shards_do_not_share_blocks() {
    let store_ = MemoryStore::default();
    let rank = |shard| {
        let mut oracle = Oracle::new(builder(vec![full(16)], 8).shard(shard));
        attach(&mut oracle, 0, Some(Box::new(store_.clone())));
        oracle
    };
    let prompt = tokens(1, 33);
    store(&mut rank(0), &prompt);
    assert_eq!((rank(1).serve(&prompt), rank(0).serve(&prompt)), (0, 32));
    store(&mut rank(1), &prompt);
    assert_eq!(store_.with(|blocks| blocks.len()), 4);
}

/// A panic of a store or a transfer is a failure, and the pool keeps its tiers.
#[test]
fn panics_of_stores_and_transfers_are_contained() {
    let (store_, faults) = (MemoryStore::default(), Faults::default());
    let mut oracle = oracle(vec![full(16)], 8);
    let tiers = KvTiers::new(&Context::new(), 0, oracle.transfer(faults.clone()));
    oracle.pool.attach_tiers(tiers.with_store(Box::new(store_.clone())));
    let prompt = tokens(1, 33);
    store(&mut oracle, &prompt);
    for panicking in [&store_.faults, &faults] {
        panicking.panics.store(1, Relaxed);
        assert_eq!(oracle.serve(&prompt), 0);
        oracle.pool.discard_cache();
        panicking.panics.store(0, Relaxed);
    }
    assert_eq!(oracle.serve(&prompt), 32);
}

/// TensorRT-LLM#8830: a tier has a block, and its parent is nowhere. It is found when the parent is computed
/// again, and behind no other one.
#[test]
fn a_block_of_a_store_is_found_behind_its_own_parent_only() {
    let store_ = MemoryStore::default();
    let mut oracle = oracle(vec![full(16)], 8);
    attach(&mut oracle, 0, Some(Box::new(store_.clone())));
    let (prompt, other) = (tokens(1, 33), [tokens(2, 16), tokens(1, 33)[16..].to_vec()].concat());
    store(&mut oracle, &prompt);
    store_.with(|blocks| blocks.retain(|key, _| key.index == 1));
    for prompt in [&other, &prompt] {
        assert_eq!((oracle.serve(prompt), stats(&oracle).store_reads), (0, 0));
        oracle.pool.discard_cache();
    }
    oracle.serve(&tokens(1, 17));
    assert_eq!((oracle.serve(&prompt), stats(&oracle).store_reads), (32, 1));
}

/// Tiers of a pool without events keep none. One that records them announces what host memory has.
#[test]
fn tiers_record_events_as_their_pool_does() {
    let mut oracle = oracle(vec![full(16)], 8);
    attach(&mut oracle, 1 << 20, None);
    store(&mut oracle, &tokens(1, 65));
    let tiers = oracle.pool.detach_tiers().unwrap();
    let mut recording = Oracle::new(builder(vec![full(16)], 8).events(true));
    recording.pool.attach_tiers(tiers);
    let events = recording.pool.take_events();
    assert!(matches!(events[0], KvEvent::Reset { lost: 0 }), "{events:?}");
    let is_host = |event: &KvEvent| matches!(event, KvEvent::BlockStored { tier: KvTier::Host, .. });
    assert!(events.len() == 5 && events[1..].iter().all(is_host), "{events:?}");
    assert_eq!(recording.pool.take_events(), []);
}
