//! Events that are not taken, and mirrors that start late.

use super::tiers::{attach, store};
use super::{builder, full, oracle, tokens, window};
use crate::mirror::Mirror;
use crate::oracle::{MemoryStore, Oracle};
use orlop_kv::{AdmissionRequest, KvEvent, KvTier};
use std::sync::atomic::Ordering::Relaxed;

/// Compares the lookups of a mirror with those of its pool.
fn check(oracle: &Oracle, mirror: &Mirror) {
    let hits = (1..30).map(|family| {
        let prompt = tokens(family, 65);
        let request = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
        let chain = oracle.pool.prefix_keys(&request);
        let hit = oracle.pool.probe(&request);
        assert_eq!(hit as usize, 16 * mirror.hit(&chain), "prompt {family}");
        hit
    });
    assert!(hits.sum::<u32>() > 64, "nothing is cached");
}

/// A pool whose events are not taken keeps as many as its limit allows, and says what was lost.
#[test]
fn events_that_are_not_taken_are_bounded() {
    for groups in [vec![full(16)], vec![full(16), window(32, 16)]] {
        let mut oracle = Oracle::new(builder(groups, 40).events(true).event_limit(50));
        let mut mirror = Mirror::new(oracle.pool.geometry());
        (1..30).for_each(|family| assert_eq!(oracle.serve(&tokens(family, 65)), 0));
        let events = oracle.pool.take_events();
        assert!(matches!(events[0], KvEvent::Reset { lost } if lost > 100), "{:?}", events[0]);
        let is_stored = |event: &KvEvent| {
            use KvEvent::{BlockStored, BoundaryStored, UnitsStored};
            matches!(event, UnitsStored { .. } | BlockStored { .. } | BoundaryStored { .. })
        };
        assert!(events[1..].iter().all(is_stored), "changes beside the whole content: {events:?}");
        mirror.apply(events);
        check(&oracle, &mirror);
        // From there on, changes again.
        assert_eq!(oracle.pool.take_events(), []);
        oracle.serve(&tokens(1, 65));
        mirror.apply(oracle.pool.take_events());
        assert_eq!(mirror.resets, 1);
        check(&oracle, &mirror);
    }
}

/// A mirror that starts late asks for all content; blocks of host memory that come and go with their tiers
/// are part of it.
#[test]
fn a_late_mirror_gets_all_content() {
    let mut oracle = Oracle::new(builder(vec![full(16)], 40).events(true));
    attach(&mut oracle, 1 << 20, Some(Box::new(MemoryStore::default())));
    store(&mut oracle, &tokens(1, 65));
    (2..8).for_each(|family| assert_eq!(oracle.serve(&tokens(family, 65)), 0));
    assert!(!oracle.pool.take_events().is_empty());
    oracle.pool.reset_events();
    let mut mirror = Mirror::new(oracle.pool.geometry());
    mirror.apply(oracle.pool.take_events());
    assert_eq!(mirror.resets, 1);
    let host = |oracle: &Oracle| oracle.pool.tier_stats().map_or(0, |tiers| tiers.host_bytes);
    assert!(mirror.bytes(KvTier::Host, 0) == host(&oracle) && host(&oracle) > 0);
    for _ in 0..2 {
        let tiers = oracle.pool.detach_tiers().unwrap();
        mirror.apply(oracle.pool.take_events());
        assert_eq!(mirror.bytes(KvTier::Host, 0), 0);
        oracle.pool.attach_tiers(tiers);
        mirror.apply(oracle.pool.take_events());
        assert_eq!(mirror.bytes(KvTier::Host, 0), host(&oracle));
    }
}

/// Asserts that a mirror has no block of a store that the store lacks. Returns the number that it has.
fn check_store(mirror: &Mirror, store: &MemoryStore) -> usize {
    store.with(|blocks| assert!(mirror.blocks(KvTier::Store).all(|key| blocks.contains_key(&key))));
    mirror.blocks(KvTier::Store).count()
}

/// When the events of a store were lost, its blocks cannot be announced again: a mirror misses some, and has
/// none that was removed.
#[test]
fn a_mirror_has_no_stale_block_of_a_store_after_a_loss() {
    let content = MemoryStore::default();
    let mut oracle = Oracle::new(builder(vec![full(16)], 40).events(true).event_limit(4));
    attach(&mut oracle, 0, Some(Box::new(content.clone())));
    let mut mirror = Mirror::new(oracle.pool.geometry());
    let truncate_all = || content.with(|blocks| blocks.values_mut().for_each(|bytes| bytes.truncate(70)));
    store(&mut oracle, &tokens(1, 17));
    mirror.apply(oracle.pool.take_events());
    assert_eq!((mirror.resets, check_store(&mirror, &content)), (0, 1));
    // The removal of this block is lost, as are eight new ones.
    truncate_all();
    assert_eq!(oracle.serve(&tokens(1, 17)), 0);
    store(&mut oracle, &tokens(2, 129));
    mirror.apply(oracle.pool.take_events());
    assert_eq!((mirror.resets, check_store(&mirror, &content)), (1, 0));
    // A new one is announced, and the removal of one that the mirror does not know.
    store(&mut oracle, &tokens(3, 17));
    mirror.apply(oracle.pool.take_events());
    assert_eq!(check_store(&mirror, &content), 1);
    truncate_all();
    assert_eq!(oracle.serve(&tokens(2, 17)), 0);
    mirror.apply(oracle.pool.take_events());
    assert_eq!((mirror.resets, check_store(&mirror, &content)), (1, 1));
}

/// The blocks of a store go with their tiers.
#[test]
fn a_mirror_forgets_a_store_that_is_detached() {
    let mut oracle = Oracle::new(builder(vec![full(16)], 40).events(true));
    attach(&mut oracle, 0, Some(Box::new(MemoryStore::default())));
    let mut mirror = Mirror::new(oracle.pool.geometry());
    store(&mut oracle, &tokens(1, 65));
    mirror.apply(oracle.pool.take_events());
    assert!(mirror.bytes(KvTier::Store, 0) > 0);
    oracle.pool.detach_tiers().unwrap();
    mirror.apply(oracle.pool.take_events());
    assert_eq!(mirror.bytes(KvTier::Store, 0), 0);
}

/// Blocks that a pool of another geometry stored in host memory are dropped when their tiers are attached:
/// the pool never announced them.
#[test]
fn blocks_of_another_layout_are_not_announced() {
    let mut first = oracle(vec![full(16)], 8);
    attach(&mut first, 1 << 20, None);
    store(&mut first, &tokens(1, 65));
    let tiers = first.pool.detach_tiers().unwrap();
    assert!(tiers.stats().host_blocks > 0);
    let mut second = Oracle::new(builder(vec![full(16), window(32, 16)], 40).events(true));
    second.pool.attach_tiers(tiers);
    assert_eq!(second.pool.tier_stats().unwrap().host_blocks, 0);
    assert_eq!(second.pool.take_events(), []);
}

/// A store that could not say that it has a block gets it again, and has it once.
#[test]
fn a_block_that_a_store_gets_again_counts_once() {
    let content = MemoryStore::default();
    let mut oracle = Oracle::new(builder(vec![full(16)], 40).events(true));
    attach(&mut oracle, 0, Some(Box::new(content.clone())));
    let mut mirror = Mirror::new(oracle.pool.geometry());
    content.fails_lookups.store(1, Relaxed);
    (0..2).for_each(|_| store(&mut oracle, &tokens(1, 17)));
    content.fails_lookups.store(0, Relaxed);
    mirror.apply(oracle.pool.take_events());
    assert_eq!(mirror.bytes(KvTier::Store, 0), oracle.pool.geometry().page_bytes(0));
    content.with(|blocks| blocks.values_mut().for_each(|bytes| bytes.truncate(70)));
    assert_eq!(oracle.serve(&tokens(1, 17)), 0);
    mirror.apply(oracle.pool.take_events());
    assert_eq!(check_store(&mirror, &content), 0);
}
