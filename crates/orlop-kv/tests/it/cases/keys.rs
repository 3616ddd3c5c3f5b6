//! Keys of blocks on the device and in stores, and what lookups and resets announce.

use super::tiers::attach;
use super::{builder, full, oracle, tokens, window};
use crate::mirror::Mirror;
use crate::oracle::{MemoryStore, Oracle};
use orlop_kv::{Adapter, AdmissionRequest, ChainFields, KvEvent, KvTier, MediaSpan, MissCause, Tenant};

fn image(position: u32, content: u8) -> MediaSpan {
    MediaSpan { position, tokens: 16, digest: [content; 32].into() }
}

/// ATOM#1358, LMCache#690, #4086, sglang#2151, vllm#54342, #56643: images have one placeholder token, and
/// neither they nor adapters, salts and tenants share blocks: on the device, in host memory or in a store.
#[test]
fn every_field_is_in_the_keys_of_every_tier() {
    let prompt = [vec![7; 40], tokens(1, 25)].concat();
    let (first, second) = ([image(8, 1)], [image(8, 2)]);
    let (moved, both) = ([image(9, 1)], [image(8, 1), image(24, 2)]);
    let base = Oracle::fields();
    let adapter = Adapter { name: "a", generation: 1 };
    let fields = [
        base,
        ChainFields { media: &first, ..base },
        ChainFields { media: &second, ..base },
        ChainFields { media: &moved, ..base },
        ChainFields { media: &both, ..base },
        ChainFields { media: &first, adapter: Some(adapter), ..base },
        ChainFields { adapter: Some(adapter), ..base },
        ChainFields { salt: b"a", ..base },
        ChainFields { tenant: Tenant::Named("a"), ..base },
    ];
    let blocks = MemoryStore::default();
    for (at, &stored) in fields.iter().enumerate() {
        for host_bytes in [1 << 20, 0] {
            let mut oracle = oracle(vec![full(16)], 8);
            blocks.with(std::collections::HashMap::clear);
            attach(&mut oracle, host_bytes, Some(Box::new(blocks.clone())));
            let serve = |oracle: &mut Oracle, fields| {
                let index = oracle.admit_by(&AdmissionRequest::new(fields, &prompt, 1)).unwrap();
                let hit = oracle.running[index].hit;
                // A hit may have tokens before the image only: the stamps do not know of media.
                oracle.prefill(index).unwrap();
                oracle.pool.store(&oracle.running[index].handle, 65).unwrap();
                oracle.finish(index);
                oracle.pool.discard_cache();
                hit
            };
            assert_eq!(serve(&mut oracle, stored), 0);
            assert_eq!(serve(&mut oracle, stored), 64);
            for (other, &asked) in fields.iter().enumerate().filter(|&(other, _)| other != at) {
                let request = AdmissionRequest::new(asked, &prompt, 1);
                let admission = oracle.pool.admit(&request).unwrap();
                // Two images that begin alike share the blocks before the second one.
                let shared = if [at, other] == [1, 4] || [at, other] == [4, 1] { 16 } else { 0 };
                assert_eq!(admission.hit, shared, "{stored:?} for {asked:?}");
                drop(admission);
                oracle.pool.discard_cache();
            }
        }
    }
}

/// tokenspeed#166: only changes are announced.
#[test]
fn lookups_and_hits_announce_nothing() {
    let mut oracle = Oracle::new(builder(vec![full(16), window(32, 16)], 40).events(true));
    let prompt = tokens(1, 65);
    oracle.serve(&prompt);
    assert!(!oracle.pool.take_events().is_empty());
    let request = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
    assert_eq!((oracle.pool.probe(&request), oracle.pool.prefix_keys(&request).len()), (64, 4));
    oracle.pool.can_admit(&request);
    assert_eq!(oracle.serve(&prompt), 64);
    assert_eq!(oracle.pool.take_events(), []);
}

/// vllm#57296, aibrix#2287: a reset of the device says so at once, without a step, and does not touch what
/// host memory has.
#[test]
fn a_reset_of_the_device_leaves_host_memory() {
    let mut oracle = Oracle::new(builder(vec![full(16)], 8).events(true));
    attach(&mut oracle, 1 << 20, None);
    let mut mirror = Mirror::new(oracle.pool.geometry());
    let prompt = tokens(1, 65);
    let at = oracle.admit(&prompt, 1).unwrap();
    oracle.prefill(at).unwrap();
    oracle.pool.store(&oracle.running[at].handle, 65).unwrap();
    oracle.finish(at);
    mirror.apply(oracle.pool.take_events());
    let host = mirror.bytes(KvTier::Host, 0);
    oracle.pool.discard_cache();
    let events = oracle.pool.take_events();
    let of_device = |event: &KvEvent| match event {
        KvEvent::BlockRemoved { tier, .. } => *tier == KvTier::Device,
        event => matches!(event, KvEvent::UnitsRemoved { .. } | KvEvent::BoundaryRemoved { .. }),
    };
    assert!(!events.is_empty() && events.iter().all(of_device), "{events:?}");
    mirror.apply(events);
    assert_eq!((mirror.bytes(KvTier::Device, 0), mirror.bytes(KvTier::Host, 0)), (0, host));
    assert!(host > 0);
    assert_eq!(oracle.serve(&prompt), 64);
}

/// vllm#55092: two sequences compute the same prompt; what is announced is there until the last copy goes.
#[test]
fn a_block_that_was_computed_twice_is_announced_once() {
    let mut oracle = Oracle::new(builder(vec![full(16)], 16).events(true));
    let mut mirror = Mirror::new(oracle.pool.geometry());
    let prompt = tokens(1, 49);
    for _ in 0..2 {
        let at = oracle.admit(&prompt, 1).unwrap();
        oracle.append(at, 49).unwrap();
    }
    oracle.close();
    oracle.settle_all();
    let longer = [prompt.clone(), tokens(2, 40)].concat();
    oracle.serve(&longer);
    oracle.finish(1);
    oracle.drop_sequence(0);
    loop {
        mirror.apply(oracle.pool.take_events());
        let request = AdmissionRequest::new(Oracle::fields(), &longer, 1);
        let hit = oracle.pool.probe(&request) as usize;
        assert_eq!(hit, 16 * mirror.hit(&oracle.pool.prefix_keys(&request)));
        if !oracle.pool.evict() {
            break;
        }
    }
}

/// tair-kvcache#239, sendnn-inference#1030: every token of a request is counted once, as hit or by the cause
/// of its miss, whatever windows have returned.
#[test]
fn hits_and_misses_add_up() {
    for groups in [vec![full(16)], vec![full(16), window(32, 16)], vec![window(32, 16)]] {
        let mut oracle = oracle(groups, 100);
        let prompt = tokens(1, 100);
        // Eight at once: none can hit; then eight that all can.
        for round in 0..2_u64 {
            for _ in 0..8 {
                oracle.admit(&prompt[..if round == 0 { 49 } else { 33 }], 1).unwrap();
            }
            oracle.running.clear();
        }
        let before = oracle.books();
        assert_eq!(before.hit_tokens, 0);
        oracle.serve(&prompt);
        for _ in 0..7 {
            oracle.serve(&prompt);
        }
        let stats = oracle.books();
        let missed: u64 = MissCause::ALL.iter().map(|&cause| stats.missed_tokens(cause)).sum();
        // Behind a hit of all whole units, four tokens could not have been reused.
        assert_eq!(stats.query_tokens, stats.hit_tokens + missed + 7 * 4);
        assert_eq!((stats.requests, stats.hit_tokens), (16 + 8, 7 * 96));
    }
}
