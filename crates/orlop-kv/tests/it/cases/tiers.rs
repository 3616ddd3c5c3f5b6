//! Host memory and stores below the device.

use super::{builder, full, oracle, state, tokens, window};
use crate::mirror::Mirror;
use crate::oracle::{ENTRY, Faults, MemoryStore, Oracle};
use orlop_context::Context;
use orlop_kv::{
    AdmissionRequest, BlockStore, CheckpointPolicy, FileStore, KvError, KvEvent, KvTier, KvTiers, LayerGroup,
    MissCause, RemovalReason, TierFault, TierStats,
};
use std::sync::atomic::Ordering::Relaxed;

/// Gives an oracle's pool tiers of `bytes` bytes of host memory.
pub(super) fn attach(oracle: &mut Oracle, bytes: u64, store: Option<Box<dyn BlockStore>>) {
    let tiers = KvTiers::new(&Context::new(), bytes, oracle.transfer(Faults::default()));
    let tiers = match store {
        Some(store) => tiers.with_store(store),
        None => tiers,
    };
    assert!(oracle.pool.attach_tiers(tiers).is_none());
}

pub(super) fn stats(oracle: &Oracle) -> TierStats {
    oracle.pool.tier_stats().unwrap()
}

/// Computes a prompt, stores what it can at every checkpoint, and leaves nothing on the device.
pub(super) fn store(oracle: &mut Oracle, prompt: &[u32]) {
    let at = oracle.admit(prompt, 1).unwrap();
    let mut stored = 0;
    while oracle.running[at].scheduled < oracle.length(at) {
        let rest = oracle.length(at) - oracle.running[at].scheduled;
        let next = oracle.pool.tokens_to_checkpoint(&oracle.running[at].handle).unwrap();
        oracle.append(at, next.unwrap_or(rest).min(rest)).unwrap();
        oracle.close();
        oracle.settle_all();
        let (len, _) = oracle.pool.len(&oracle.running[at].handle).unwrap();
        stored += oracle.pool.store(&oracle.running[at].handle, len).unwrap_or(0);
    }
    assert!(stored > 0);
    oracle.finish(at);
    oracle.pool.discard_cache();
    oracle.check();
}

fn geometries() -> Vec<(&'static str, Vec<LayerGroup>)> {
    let small = |layers, span| LayerGroup::full("full", layers, ENTRY).with_block_tokens(span);
    vec![
        ("full", vec![small(2, 4)]),
        ("blocks longer than a unit", vec![small(2, 12)]),
        ("window", vec![small(1, 4), window(7, 4)]),
        ("sinks", vec![small(1, 4), window(7, 4).with_sinks(3)]),
        ("windows alone", vec![window(7, 4), window(7, 2)]),
        ("chunked", vec![small(1, 4), LayerGroup::chunked("chunked", 2, ENTRY, 8).with_block_tokens(4)]),
        ("state", vec![small(2, 4), LayerGroup::state("state", 2, 3 * ENTRY)]),
        ("states alone", vec![LayerGroup::state("state", 2, 3 * ENTRY)]),
        ("all", vec![small(1, 8), window(7, 4), LayerGroup::state("state", 2, 3 * ENTRY)]),
        ("two arenas", vec![small(2, 4).with_arena("indexer", 2 * ENTRY), window(7, 4)]),
        (
            "compressed",
            vec![
                LayerGroup::compressed("compressed", 2, ENTRY, 4).with_block_tokens(16),
                window(7, 4),
                LayerGroup::state("tail", 1, ENTRY).with_optional(),
            ],
        ),
    ]
}

/// What was stored comes back with the right stamps, from host memory and from the store behind it.
#[test]
fn every_kind_of_group_comes_back() {
    for (name, groups) in geometries() {
        for (bytes, pool) in [(1 << 20, 60), (0, 60), (1 << 20, 16), (0, 16)] {
            let policy = CheckpointPolicy { every: Some(8), ..CheckpointPolicy::default() };
            let mut oracle = Oracle::new(builder(groups.clone(), pool).match_unit(4).checkpoints(policy));
            attach(&mut oracle, bytes, Some(Box::new(MemoryStore::default())));
            let prompt = tokens(1, 43);
            if oracle.admit(&prompt, 1).is_err() {
                assert_eq!(pool, 16);
                continue;
            }
            oracle.drop_sequence(0);
            store(&mut oracle, &prompt);
            let hit = oracle.serve(&prompt);
            assert_eq!(hit, 40, "{name}, {bytes} B of host memory");
            // It is on the device again.
            let loaded = stats(&oracle).loaded_bytes;
            assert_eq!((oracle.serve(&prompt), stats(&oracle).loaded_bytes), (40, loaded), "{name}");
            // A prompt that leaves it inside.
            oracle.pool.discard_cache();
            let branch = [tokens(1, 25), tokens(2, 20)].concat();
            let expected = if groups.iter().all(|group| group.kind == orlop_kv::GroupKind::Full) {
                24
            } else {
                oracle.serve(&branch)
            };
            oracle.pool.discard_cache();
            let again = oracle.serve(&branch);
            assert!(again >= expected && again <= 24, "{name}: {again}");
            assert_eq!(stats(&oracle).host_bytes > 0, bytes > 0);
        }
    }
}

/// vllm#46453, LMCache#4071: each group is served from the tier that has it.
#[test]
fn groups_are_served_from_different_tiers() {
    let mut oracle = oracle(vec![full(16), window(32, 16), state()], 40);
    attach(&mut oracle, 1 << 20, None);
    let prompt = tokens(1, 161);
    let at = oracle.admit(&prompt, 1).unwrap();
    oracle.append(at, 128).unwrap();
    oracle.close();
    oracle.settle_all();
    // The state at 128 and the window's tail go to host memory; the run does, too.
    oracle.pool.store(&oracle.running[at].handle, 128).unwrap();
    oracle.prefill(at).unwrap();
    oracle.finish(at);
    // On the device, the boundary at 160 keeps the run. A branch at 130 finds no boundary before it there.
    let branch = [tokens(1, 130), tokens(2, 40)].concat();
    let before = stats(&oracle).loaded_bytes;
    assert_eq!(oracle.serve(&branch), 128);
    let loaded = stats(&oracle).loaded_bytes - before;
    let page = oracle.pool.geometry().page_bytes(0);
    assert_eq!(loaded, 3 * page, "two blocks of the window and the state, not the run");
}

/// One store at the end keeps what the prompt needs, also if it ends inside of a block that has filled since.
#[test]
fn a_prompt_is_a_hit_after_one_store_at_the_end() {
    for (span, unit) in [(48, 16), (48, 24), (64, 16), (64, 24)] {
        let mut oracle = Oracle::new(builder(vec![full(span), state()], 40).match_unit(unit));
        attach(&mut oracle, 1 << 20, None);
        let prompt = tokens(1, 100);
        let at = oracle.admit(&prompt, 44).unwrap();
        oracle.prefill(at).unwrap();
        oracle.append(at, 44).unwrap();
        oracle.close();
        oracle.settle_all();
        oracle.push_tokens(at);
        assert!(oracle.pool.store(&oracle.running[at].handle, 144).unwrap() > 0);
        assert_eq!(oracle.pool.store(&oracle.running[at].handle, 144).unwrap(), 0);
        oracle.finish(at);
        let on_device = oracle.pool.probe(&AdmissionRequest::new(Oracle::fields(), &prompt, 1));
        assert_eq!(on_device, 96);
        oracle.pool.discard_cache();
        assert_eq!(oracle.serve(&prompt), on_device, "blocks of {span}, units of {unit}");
    }
}

/// An optional group is not stored: its block across the end of the hit is allocated by the next append.
#[test]
fn an_optional_group_gets_pages_behind_a_restored_hit() {
    let draft = LayerGroup::full("draft", 1, ENTRY).with_block_tokens(32).with_optional();
    let mut oracle = oracle(vec![full(16), draft], 20);
    attach(&mut oracle, 1 << 20, None);
    let at = oracle.admit(&tokens(1, 64), 1).unwrap();
    oracle.prefill(at).unwrap();
    oracle.pool.store(&oracle.running[at].handle, 48).unwrap();
    oracle.finish(at);
    oracle.pool.discard_cache();
    let at = oracle.admit(&tokens(1, 50), 1).unwrap();
    assert_eq!(oracle.running[at].hit, 48);
    oracle.append(at, 2).unwrap();
    let mut row = [u32::MAX; 2];
    let sequence = &oracle.running[at].handle;
    assert_eq!(oracle.pool.write_block_table(sequence, 1, 0, u32::MAX, &mut row).unwrap(), 2);
    assert_eq!((row[0], row[1] == u32::MAX), (u32::MAX, false), "tokens 48 and 49 have a page");
}

/// dynamo#15079: the third of four blocks is torn.
#[test]
fn a_torn_block_ends_the_hit() {
    let store_ = MemoryStore::default();
    let mut oracle = oracle(vec![full(16)], 8);
    attach(&mut oracle, 0, Some(Box::new(store_.clone())));
    let prompt = tokens(1, 65);
    store(&mut oracle, &prompt);
    let third = store_.with(|blocks| {
        let third = *blocks.keys().find(|key| key.index == 2).unwrap();
        *blocks.get_mut(&third).unwrap().last_mut().unwrap() ^= 1;
        third
    });
    let at = oracle.admit(&prompt, 1).unwrap();
    assert_eq!(oracle.running[at].hit, 32);
    assert_eq!((stats(&oracle).faults(TierFault::Torn), stats(&oracle).hit_tokens), (1, 32));
    assert!(!store_.with(|blocks| blocks.contains_key(&third)));
    assert_eq!(oracle.pool.stats().missed_tokens(MissCause::FailedLoad), 33);
    oracle.prefill(at).unwrap();
    oracle.finish(at);
}

/// local-inference-lab/rtx6kpro#47, LMCache#4991: nothing wrong is served, and each cause is counted.
#[test]
fn what_is_early_stale_foreign_or_lost_is_a_miss() {
    let store_ = MemoryStore::default();
    let mut oracle = oracle(vec![full(16)], 8);
    attach(&mut oracle, 0, Some(Box::new(store_.clone())));
    let prompt = tokens(1, 33);
    let mut again = |break_it: &dyn Fn(&MemoryStore), cause| {
        store(&mut oracle, &prompt);
        let before = stats(&oracle).faults(cause);
        break_it(&store_);
        assert_eq!(oracle.serve(&prompt), 0, "{cause:?}");
        assert_eq!(stats(&oracle).faults(cause), before + 1, "{cause:?}");
        store_.is_early.store(0, Relaxed);
        store_.faults.one_in.store(0, Relaxed);
        oracle.pool.discard_cache();
        store_.with(|blocks| blocks.clear());
    };
    let first = |store: &MemoryStore, change: &dyn Fn(&mut Vec<u8>)| {
        store.with(|blocks| {
            blocks.iter_mut().filter(|(key, _)| key.index == 0).for_each(|(_, bytes)| change(bytes));
        });
    };
    again(&|store| store.is_early.store(1, Relaxed), TierFault::Torn);
    again(&|store| first(store, &|bytes| bytes.truncate(40)), TierFault::Torn);
    again(&|store| first(store, &|bytes| bytes[7] = 0), TierFault::Stale);
    again(&|store| first(store, &|bytes| bytes[0] = 0), TierFault::Foreign);
    again(&|store| store.faults.one_in.store(1, Relaxed), TierFault::Failed);
    again(
        &|store| {
            // The second block under the name of the first.
            store.with(|blocks| {
                let second = blocks.iter().find(|(key, _)| key.index == 1).map(|(_, bytes)| bytes.clone());
                let first = blocks.iter_mut().find(|(key, _)| key.index == 0);
                *first.unwrap().1 = second.unwrap();
            });
        },
        TierFault::Stale,
    );
}

/// LMCache#4991: a store that fails in the middle makes nothing visible.
#[test]
fn a_store_that_fails_is_not_visible() {
    let store_ = MemoryStore::default();
    store_.faults.one_in.store(1, Relaxed);
    let mut oracle = oracle(vec![full(16)], 8);
    attach(&mut oracle, 0, Some(Box::new(store_.clone())));
    let prompt = tokens(1, 33);
    store(&mut oracle, &prompt);
    assert_eq!((stats(&oracle).failed_writes, stats(&oracle).store_writes), (2, 0));
    assert_eq!((oracle.serve(&prompt), stats(&oracle).host_bytes), (0, 0));
    // A copy that fails stores nothing, and the sequence goes on.
    let faults = Faults::default();
    faults.one_in.store(1, Relaxed);
    let tiers = KvTiers::new(&Context::new(), 1 << 20, oracle.transfer(faults.clone()));
    oracle.pool.attach_tiers(tiers).unwrap();
    oracle.pool.discard_cache();
    let at = oracle.admit(&prompt, 1).unwrap();
    oracle.prefill(at).unwrap();
    let refused = oracle.pool.store(&oracle.running[at].handle, 32);
    assert!(matches!(refused, Err(KvError::Allocation(_))), "{refused:?}");
    assert_eq!(stats(&oracle).host_blocks, 0);
    // A copy to the device that fails leaves the prompt to be computed.
    faults.one_in.store(0, Relaxed);
    oracle.pool.store(&oracle.running[at].handle, 32).unwrap();
    oracle.finish(at);
    oracle.pool.discard_cache();
    faults.one_in.store(1, Relaxed);
    assert_eq!(oracle.serve(&prompt), 0);
    oracle.check();
}

/// pegainfer's design of sealing: a live state is stored between steps or not at all.
#[test]
fn a_state_in_a_step_is_not_stored() {
    let mut oracle = oracle(vec![full(16), state()], 16);
    attach(&mut oracle, 1 << 20, None);
    let at = oracle.admit(&tokens(1, 64), 8).unwrap();
    oracle.append(at, 16).unwrap();
    let refused = oracle.pool.store(&oracle.running[at].handle, 16);
    assert!(matches!(refused, Err(KvError::BeyondEnd { .. })), "nothing has settled: {refused:?}");
    oracle.close();
    oracle.settle_all();
    oracle.append(at, 1).unwrap();
    let refused = oracle.pool.store(&oracle.running[at].handle, 16);
    assert!(matches!(refused, Err(KvError::NoCheckpoint { position: 16 })), "{refused:?}");
    oracle.close();
    oracle.settle_all();
    assert!(oracle.pool.store(&oracle.running[at].handle, 0).is_ok_and(|bytes| bytes == 0));
}

/// vllm#30522: the tiers are asked for what the device does not have.
#[test]
fn the_share_of_a_tier_is_counted_in_tokens() {
    let mut oracle = oracle(vec![full(100)], 40);
    attach(&mut oracle, 1 << 20, None);
    let prompt = tokens(1, 1000);
    store(&mut oracle, &prompt);
    let stored = oracle.pool.detach_tiers().unwrap();
    // 592 tokens on the device: the longest multiple of the unit below.
    oracle.serve(&tokens(1, 601));
    assert!(oracle.pool.attach_tiers(stored).is_none());
    let before = oracle.pool.stats().query_tokens;
    oracle.serve(&prompt);
    assert_eq!(oracle.pool.stats().query_tokens - before, 1000);
    assert_eq!((stats(&oracle).query_tokens, stats(&oracle).hit_tokens), (1000 + 408, 992 - 592));
}

/// Files outlive the pool, and a folder of another layout is of no use.
#[test]
fn files_outlive_the_process() {
    let folder = std::env::temp_dir().join(format!("orlop-kv-files-{}", std::process::id()));
    let open = || Box::new(FileStore::open(&folder).unwrap());
    let prompt = tokens(1, 65);
    let mut first = oracle(vec![full(16), window(32, 16)], 20);
    attach(&mut first, 1 << 20, Some(open()));
    store(&mut first, &prompt);
    assert_eq!(first.pool.flush_tiers(), 0);
    let mut second = oracle(vec![full(16), window(32, 16)], 20);
    attach(&mut second, 1 << 20, Some(open()));
    assert_eq!((second.serve(&prompt), stats(&second).store_reads > 0), (64, true));
    let mut other = oracle(vec![full(16), window(32, 16), LayerGroup::full("more", 1, ENTRY)], 60);
    attach(&mut other, 1 << 20, Some(open()));
    assert_eq!((other.serve(&prompt), stats(&other).store_reads), (0, 0));
    // Half a file.
    let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    for file in files {
        assert_eq!(file.extension().unwrap(), "kv", "nothing is left aside");
        let bytes = std::fs::read(&file).unwrap();
        std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    }
    let mut third = oracle(vec![full(16), window(32, 16)], 20);
    attach(&mut third, 1 << 20, Some(open()));
    assert_eq!((third.serve(&prompt), stats(&third).faults(TierFault::Torn)), (0, 1));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// sglang#39620: a removal says whether a tier below still has the block; a mirror knows what each tier has.
#[test]
fn a_mirror_knows_the_tiers() {
    let groups = vec![full(16), window(32, 16)];
    let store_ = MemoryStore::default();
    let mut oracle = Oracle::new(builder(groups, 20).events(true));
    let mut mirror = Mirror::new(oracle.pool.geometry());
    let block = oracle.pool.geometry().page_bytes(0);
    attach(&mut oracle, 3 * block, Some(Box::new(store_.clone())));
    let at = oracle.admit(&tokens(1, 65), 1).unwrap();
    oracle.prefill(at).unwrap();
    oracle.pool.store(&oracle.running[at].handle, 64).unwrap();
    oracle.finish(at);
    while oracle.pool.evict() {}
    let events = oracle.pool.take_events();
    let reasons: Vec<(KvTier, RemovalReason)> = events
        .iter()
        .filter_map(|event| match event {
            KvEvent::BlockRemoved { tier, reason, .. } => Some((*tier, *reason)),
            _ => None,
        })
        .collect();
    assert!(!reasons.is_empty());
    assert!(reasons.iter().all(|&(_, reason)| reason == RemovalReason::Demoted), "{reasons:?}");
    mirror.apply(events);
    assert_eq!(mirror.bytes(KvTier::Device, 0) + mirror.bytes(KvTier::Device, 1), 0);
    let host = mirror.bytes(KvTier::Host, 0) + mirror.bytes(KvTier::Host, 1);
    assert_eq!((host, host <= 3 * block), (stats(&oracle).host_bytes, true));
    store_.with(|blocks| {
        assert!(!blocks.is_empty() && blocks.keys().all(|&key| mirror.has(KvTier::Store, key)));
    });
    // Without a tier, it is an eviction.
    oracle.pool.detach_tiers();
    mirror.apply(oracle.pool.take_events());
    assert_eq!(mirror.bytes(KvTier::Host, 0) + mirror.bytes(KvTier::Host, 1), 0, "of tiers that are gone");
    oracle.serve(&tokens(1, 65));
    while oracle.pool.evict() {}
    let removed =
        oracle.pool.take_events().into_iter().rfind(|event| matches!(event, KvEvent::BlockRemoved { .. }));
    assert!(matches!(removed, Some(KvEvent::BlockRemoved { reason: RemovalReason::Evicted, .. })));
}

#[test]
fn a_pool_without_tiers_refuses_to_store() {
    let mut oracle = oracle(vec![full(16)], 8);
    let at = oracle.admit(&tokens(1, 33), 1).unwrap();
    oracle.prefill(at).unwrap();
    assert!(matches!(oracle.pool.store(&oracle.running[at].handle, 32), Err(KvError::NoTiers)));
    assert!(matches!(oracle.pool.store(&oracle.running[at].handle, 34), Err(KvError::BeyondEnd { .. })));
}
