//! Events that are not taken, and mirrors that start late.

use super::tiers::{attach, store};
use super::{builder, full, tokens, window};
use crate::mirror::Mirror;
use crate::oracle::{MemoryStore, Oracle};
use orlop_kv::{AdmissionRequest, KvEvent, KvTier};

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
