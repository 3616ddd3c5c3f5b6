//! Random operations under the oracle, for every kind of group.

use crate::mirror::Mirror;
use crate::oracle::{ENTRY, Faults, MemoryStore, Oracle};
use crate::stamps::Random;
use orlop_context::Context;
use orlop_kv::{
    AdmissionRequest, CheckpointPolicy, KvError, KvGeometry, KvPool, KvTier, KvTiers, LayerGroup, Visibility,
};
use std::sync::atomic::Ordering::Relaxed;

fn geometries() -> Vec<(&'static str, Vec<LayerGroup>)> {
    let full = |layers| LayerGroup::full("full", layers, ENTRY).with_block_tokens(4);
    let window = LayerGroup::window("window", 3, ENTRY, 7).with_block_tokens(4);
    let state = LayerGroup::state("state", 2, 3 * ENTRY);
    vec![
        ("full", vec![full(2)]),
        ("full, long blocks", vec![full(2).with_block_tokens(12)]),
        ("full and window", vec![full(2), window.clone()]),
        ("window with sinks", vec![full(1), window.clone().with_sinks(3)]),
        ("windows alone", vec![window.clone(), window.clone().with_block_tokens(2)]),
        ("chunked", vec![full(1), LayerGroup::chunked("chunked", 2, ENTRY, 8).with_block_tokens(4)]),
        ("full and state", vec![full(2), state.clone()]),
        // No append needs a block before token 64: the state alone decides what is copied.
        ("state in long blocks", vec![full(1).with_block_tokens(64), state.clone()]),
        ("states alone", vec![state.clone()]),
        ("all", vec![full(1).with_block_tokens(8), window.clone(), state.clone()]),
        ("two arenas", vec![full(2).with_arena("indexer", 2 * ENTRY), window.clone()]),
        (
            "compressed",
            vec![
                LayerGroup::compressed("compressed", 2, ENTRY, 4).with_block_tokens(16),
                window,
                LayerGroup::state("tail", 1, ENTRY).with_optional(),
            ],
        ),
        ("an empty group", vec![full(1), LayerGroup::state("none", 0, ENTRY)]),
    ]
}

fn prompt(random: &mut Random) -> Vec<u32> {
    // Few families with long shared prefixes, which branch at a few places.
    let family = random.below(3);
    let len = 2 + random.below(40);
    let branch = 8 * random.below(5);
    let tail = random.below(2);
    (0..len)
        .map(|at| if at < branch { family * 1000 + at } else { family * 1000 + at + 500 * tail })
        .collect()
}

/// Tokens that were hit and loaded, and evictions.
#[derive(Debug, Default)]
struct Played {
    hits: u64,
    evictions: u64,
    loaded: u64,
    /// Tokens that were read under tickets.
    stored: u64,
    /// How often the mirror lost events.
    resets: u32,
}

fn play(
    name: &str,
    groups: Vec<LayerGroup>,
    large_pages: u32,
    seed: u64,
    policy: CheckpointPolicy,
    operations: u32,
) -> Played {
    let geometry = KvGeometry::new(groups).unwrap();
    let mut mirror = Mirror::new(&geometry);
    let builder = KvPool::builder(geometry).large_pages(large_pages).match_unit(4).checkpoints(policy);
    let visibility = if seed.is_multiple_of(2) { Visibility::AfterSettle } else { Visibility::SameStream };
    let builder = builder
        .visibility(visibility)
        .events(true)
        .event_limit(if seed.is_multiple_of(4) { 30 } else { 1 << 18 })
        .steps_in_flight(2)
        .scan_resistant(seed.is_multiple_of(3));
    // The simulated GPU takes its time.
    let mut oracle = if seed.is_multiple_of(7) { Oracle::new(builder) } else { Oracle::on_host(builder) };
    if seed % 5 < 2 {
        let faults = Faults::default();
        faults.one_in.store(if seed.is_multiple_of(5) { 9 } else { 0 }, Relaxed);
        let store = MemoryStore::failing(faults.clone());
        let tiers = KvTiers::new(&Context::new(), 2_000, oracle.transfer(faults)).with_store(Box::new(store));
        oracle.pool.attach_tiers(tiers);
    }
    let mut random = Random(seed);
    println!("{name}, seed {seed}, {large_pages} large pages, {policy:?}");
    let mut stored = 0;
    for _ in 0..operations {
        let count = u32::try_from(oracle.running.len()).unwrap();
        let pick = if count == 0 { 0 } else { random.below(count) as usize };
        match random.below(22) {
            0..=2 => {
                let prompt = prompt(&mut random);
                let mut request = AdmissionRequest::new(Oracle::fields(), &prompt, 1 + random.below(12));
                request.drafts = random.below(4);
                request.reuse = random.below(8) > 0;
                match oracle.admit_by(&request) {
                    Ok(_) | Err(KvError::OutOfPages { .. } | KvError::NeverFits { .. }) => {}
                    Err(error) => panic!("{name}: {error}"),
                }
            }
            3..=8 if count > 0 => {
                let left = oracle.length(pick) - oracle.running[pick].scheduled;
                let mut tokens = if left > 0 { 1 + random.below(left) } else { 1 };
                let handle = &oracle.running[pick].handle;
                if let Some(next) = oracle.pool.tokens_to_checkpoint(handle).unwrap() {
                    tokens = match random.below(4) {
                        0 => tokens,
                        // To the filler after the next one.
                        1 if next + 8 <= left => next + 8,
                        _ => tokens.min(next),
                    };
                }
                let _ = oracle.append(pick, tokens);
            }
            9 if count > 0 => {
                let drafts = 1 + random.below(4);
                let from = oracle.running[pick].scheduled;
                if oracle.append_drafts(pick, drafts).is_ok() {
                    oracle.close();
                    let accepted = 1 + random.below(drafts + 1);
                    let _ = oracle.truncate(pick, from + accepted);
                }
            }
            10 if count > 0 => {
                let len = oracle.running[pick].scheduled;
                if len > 1 {
                    let _ = oracle.truncate(pick, 1 + random.below(len - 1));
                }
            }
            11 if count > 0 => {
                let len = oracle.running[pick].scheduled;
                if len > 0 && oracle.running.len() < 8 {
                    let _ = oracle.fork(pick, len + random.below(10));
                }
            }
            12 if count > 0 => {
                let handle = &oracle.running[pick].handle;
                let (_, settled) = oracle.pool.len(handle).unwrap();
                let _ = oracle.pool.store(handle, settled);
                oracle.finish(pick);
            }
            13 if count > 0 => oracle.drop_sequence(pick),
            14 if count > 0 => {
                oracle.end_load(pick, random.below(3) > 0);
                let left = oracle.length(pick) - oracle.running[pick].scheduled;
                if left > 0 {
                    let (tokens, lease) = (1 + random.below(left), u64::from(random.below(50)));
                    if random.below(2) == 0 {
                        let _ = oracle.begin_load(pick, tokens, lease);
                    } else if oracle.begin_load_by_layer(pick, tokens, lease).is_ok() {
                        let _ = oracle.append(pick, 1 + random.below(4));
                    }
                }
            }
            16..=17 if count > 0 => oracle.push_tokens(pick),
            18 if count > 0 && oracle.pool.tier_stats().is_some() => {
                let handle = &oracle.running[pick].handle;
                let (_, settled) = oracle.pool.len(handle).unwrap();
                let _ = oracle.pool.store(handle, settled - random.below(settled + 1).min(4));
                oracle.check();
            }
            19 if random.below(8) == 0 => {
                oracle.pool.discard_cache();
                oracle.check();
            }
            20 if count > 0 && oracle.stores.len() < 4 => {
                let (len, settled) = oracle.pool.len(&oracle.running[pick].handle).unwrap();
                let is_by_layer = random.below(3) == 0;
                let tokens = random.below(1 + if is_by_layer { len } else { settled });
                if oracle.begin_store(pick, tokens, 1 + u64::from(random.below(60)), is_by_layer).is_ok() {
                    stored += u64::from(tokens);
                }
            }
            20..=21 if !oracle.stores.is_empty() => {
                let index = random.below(u32::try_from(oracle.stores.len()).unwrap());
                oracle.end_store(index as usize, random.below(3) > 0);
            }
            15 if count > 0 => oracle.pass_time(u64::from(random.below(20))),
            _ => {
                oracle.close();
            }
        }
        if random.below(3) > 0 {
            check_mirror(name, &mut oracle, &mut mirror, &prompt(&mut random));
        }
        while oracle.steps_in_flight() > random.below(3) as usize {
            oracle.settle();
        }
    }
    oracle.close();
    while !oracle.running.is_empty() {
        oracle.drop_sequence(0);
    }
    oracle.settle_all();
    oracle.pass_time(1_000);
    let stats = oracle.books();
    assert_eq!((stats.used_bytes, stats.in_flight_bytes), (0, 0), "{name}: leaked");
    oracle.pool.discard_cache();
    let end = oracle.books();
    assert_eq!(end.free_bytes, end.total_bytes, "{name}: leaked");
    let loaded = oracle.pool.tier_stats().map_or(0, |tiers| tiers.hit_tokens);
    Played { hits: stats.hit_tokens, evictions: stats.evictions, loaded, stored, resets: mirror.resets }
}

/// Checks that a mirror built from events knows the bytes of each group, and answers as the pool does.
fn check_mirror(name: &str, oracle: &mut Oracle, mirror: &mut Mirror, probe: &[u32]) {
    mirror.apply(oracle.pool.take_events());
    for group in 0..u32::try_from(oracle.pool.geometry().groups().len()).unwrap() {
        assert_eq!(mirror.bytes(KvTier::Device, group), oracle.pool.cached_bytes(group as usize));
    }
    let host: u64 = (0..8).map(|group| mirror.bytes(KvTier::Host, group)).sum();
    assert_eq!(host, oracle.pool.tier_stats().map_or(0, |tiers| tiers.host_bytes), "{name}");
    let request = AdmissionRequest::new(Oracle::fields(), probe, 1);
    let limit = (probe.len() - 1) / oracle.pool.match_unit() as usize;
    let chain = oracle.pool.prefix_keys(&request);
    let hit = mirror.hit(&chain[..limit.min(chain.len())]);
    assert_eq!(oracle.pool.probe(&request) as usize, hit * oracle.pool.match_unit() as usize, "{name}");
}

#[test]
fn every_slot_has_what_its_sequence_wrote() {
    let policies = [
        CheckpointPolicy::default(),
        CheckpointPolicy { every: Some(8), ..CheckpointPolicy::default() },
        CheckpointPolicy::OFF,
    ];
    for (name, groups) in geometries() {
        let mut sum = Played::default();
        for seed in 0..6 {
            for (at, policy) in policies.into_iter().enumerate() {
                let large_pages = [12, 30, 80][(seed % 3) as usize];
                let played = play(name, groups.clone(), large_pages, seed * 3 + at as u64, policy, 400);
                sum.hits += played.hits;
                sum.evictions += played.evictions;
                sum.loaded += played.loaded;
                sum.stored += played.stored;
                sum.resets += played.resets;
            }
        }
        let has_played =
            sum.hits > 0 && sum.evictions > 0 && sum.loaded > 0 && sum.stored > 0 && sum.resets > 0;
        assert!(has_played, "{name}: {sum:?}: nothing was tried");
    }
}

/// The long version: 10 million operations, in about six hours of a debug build and one of a release build.
#[test]
#[ignore = "10 million operations: cargo test --release -p orlop-kv --test it -- --ignored ten_million"]
fn ten_million_operations_leak_nothing() {
    let geometries = geometries();
    let policies =
        [CheckpointPolicy { every: Some(8), ..CheckpointPolicy::default() }, CheckpointPolicy::OFF];
    let rounds = u32::try_from(10_000_000 / 2_000 / geometries.len() / policies.len()).unwrap();
    for round in 0..=rounds {
        for (name, groups) in &geometries {
            for policy in policies {
                let large_pages = [12, 30, 80][(round % 3) as usize];
                play(name, groups.clone(), large_pages, 1_000 + u64::from(round), policy, 2_000);
            }
        }
    }
}
