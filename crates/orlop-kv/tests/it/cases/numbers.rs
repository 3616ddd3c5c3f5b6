//! Numbers, formats, stages.

use super::{builder, free, full, oracle, state, tokens, window};
use crate::oracle::{ENTRY, Oracle};
use orlop_alloc::{Allocator as _, AllocatorRef, engine::Direct};
use orlop_context::Context;
use orlop_core::{Device, MemoryKind};
use orlop_kv::{AdmissionRequest, AdmissionVerdict, KvGeometry, KvPool, LayerGroup};

/// vllm#43736, vllm-ascend#16639.
#[test]
fn a_hit_is_counted_once_per_request_in_tokens() {
    let mut oracle = oracle(vec![full(16), window(64, 16), state()], 256);
    oracle.serve(&tokens(1, 401));
    let before = oracle.books();
    let mut prompt = tokens(1, 400);
    prompt.extend(tokens(2, 600));
    let request = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
    for _ in 0..50 {
        assert_eq!(oracle.pool.probe(&request), 400);
        assert!(matches!(oracle.pool.can_admit(&request), AdmissionVerdict::Now { hit: 400 }));
    }
    let at = oracle.admit_by(&request).unwrap();
    oracle.prefill(at).unwrap();
    let after = oracle.books();
    assert_eq!(after.query_tokens - before.query_tokens, 1000);
    assert_eq!(after.hit_tokens - before.hit_tokens, 400);
}

/// A request that was preempted comes back: its own tokens in the cache are no reuse, and the rest no miss.
#[test]
fn a_resumed_request_is_counted_apart() {
    let mut oracle = oracle(vec![full(16)], 16);
    let prompt = tokens(1, 64);
    let at = oracle.admit(&prompt, 1).unwrap();
    oracle.prefill(at).unwrap();
    let before = oracle.books();
    oracle.drop_sequence(at);
    let request = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
    oracle.admit_by(&AdmissionRequest { resumed: true, ..request }).unwrap();
    let after = oracle.books();
    let counted = |stats: &orlop_kv::KvStats| {
        let missed: u64 = orlop_kv::MissCause::ALL.iter().map(|&cause| stats.missed_tokens(cause)).sum();
        (stats.requests, stats.query_tokens, stats.hit_tokens, missed)
    };
    assert_eq!((counted(&before), counted(&after)), ((1, 64, 0, 64), (1, 64, 0, 64)));
    assert_eq!((after.resumed_tokens, after.resumed_hit_tokens), (64, 48));
}

/// vllm#40692; two arenas under one id. No two arenas share a byte, and every id is in range.
#[test]
fn arenas_tile_the_pool() {
    let groups = vec![
        LayerGroup::full("mla", 6, 656).with_arena("indexer", 132).with_block_tokens(64),
        LayerGroup::window("window", 4, 656, 100),
        LayerGroup::state("state", 3, 10_496),
        LayerGroup::state("none", 0, 7),
    ];
    let geometry = KvGeometry::new(groups).unwrap();
    let mut pool = KvPool::builder(geometry.clone()).large_pages(3).build_detached().unwrap();
    let total = pool.stats().total_bytes;
    for (group, spec) in geometry.groups().iter().enumerate() {
        let mut ranges = Vec::new();
        for layer in 0..spec.layers {
            for arena in 0..spec.arenas.len() {
                let view = geometry.arena(group, layer, arena).unwrap();
                // A page belongs to one part at a time: the parts' ids are apart, their bases the same.
                if view.part == 0 {
                    let pages = 0..u64::from(pool.page_ids(group));
                    ranges.extend(pages.map(|page| (view.base + page * view.stride, view.bytes)));
                }
            }
        }
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0) || ranges.is_empty());
        assert_eq!(ranges.last().map_or(total, |&(start, bytes)| start + bytes), total, "group {group}");
    }
    assert_eq!(pool.page_ids(3), 0);
}

/// vllm#51752, vllm#23974.
#[test]
fn stages_have_the_same_ids() {
    let stage = |windows| {
        let groups = vec![
            LayerGroup::full("full", 1, ENTRY),
            LayerGroup::window("window", windows, ENTRY, 48),
            LayerGroup::state("none", 0, 99),
        ];
        let mut oracle = Oracle::new(builder(groups, 30));
        let at = oracle.admit(&tokens(1, 100), 9).unwrap();
        oracle.prefill(at).unwrap();
        let mut rows = Vec::new();
        for group in 0..2 {
            let mut row = [0; 8];
            oracle.pool.write_block_table(&oracle.running[at].handle, group, 0, u32::MAX, &mut row).unwrap();
            rows.push(row);
        }
        rows
    };
    assert_eq!(stage(1), stage(1));
    let geometry = KvGeometry::new(vec![LayerGroup::full("full", 1, 64), LayerGroup::state("none", 0, 99)]);
    assert_eq!(geometry.unwrap().parts(1), 0);
}

/// vllm#42895.
#[test]
fn transfers_name_tokens() {
    let mut oracle = oracle(vec![full(16)], 16);
    let at = oracle.admit(&tokens(1, 200), 1).unwrap();
    let (ticket, pages) = oracle.pool.begin_load(&oracle.running[at].handle, 200, 100).unwrap();
    let starts: Vec<u32> = pages.iter().map(|page| page.token).collect();
    assert_eq!(starts, (0..13).map(|index| index * 16).collect::<Vec<u32>>());
    oracle.pool.complete(ticket).unwrap();
    let (mut indptr, mut indices, mut last) = ([0; 2], [0; 13], [0; 1]);
    let batch = [&oracle.running[at].handle];
    oracle.pool.write_flashinfer(&batch, 0, 0, &mut indptr, &mut indices, &mut last).unwrap();
    assert_eq!((indptr[1], last[0]), (13, 8));
}

/// Kimi-K3's states.
#[test]
fn states_are_counted_in_the_same_bytes() {
    let geometry = KvGeometry::new(vec![
        LayerGroup::full("mla", 24, 1152),
        LayerGroup::state("linear", 69, (1_572_864 + 110_592) * 4),
    ])
    .unwrap();
    assert_eq!(geometry.page_bytes(1) * u64::from(geometry.parts(1)), 464_633_856);
    assert!(geometry.large_page_bytes() < 32 << 20, "{}", geometry.large_page_bytes());
}

/// Decode-context shards: a block covers their multiple of its tokens (dynamo#13653).
#[test]
fn shards_divide_tokens_and_bytes() {
    let whole = LayerGroup::full("full", 1, 2 * ENTRY);
    let sharded = whole.clone().with_shards(2, 2);
    let geometry = KvGeometry::new(vec![sharded]).unwrap();
    assert_eq!((geometry.groups()[0].span(), geometry.page_bytes(0)), (32, 16 * ENTRY));
    let mut pool = KvPool::builder(geometry).large_pages(4).build_detached().unwrap();
    let prompt = tokens(1, 100);
    let admission = pool.admit(&AdmissionRequest::new(Oracle::fields(), &prompt, 1)).unwrap();
    pool.append(&admission.sequence, 100).unwrap();
    let mut slots = [0; 4];
    pool.write_slot_mapping(&admission.sequence, 0, 0, 30..34, &mut slots).unwrap();
    let [first, second] = [slots[0] / 16, slots[2] / 16];
    assert_eq!(slots, [first * 16 + 15, first * 16 + 15, second * 16, second * 16]);
    assert!(KvGeometry::new(vec![whole.with_shards(3, 1)]).is_err());
}

/// No request makes the pool panic, or reserve memory that it does not need.
#[test]
fn extreme_requests_get_an_answer() {
    let mut oracle = oracle(vec![window(16, 16)], 8);
    let prompt = tokens(1, 20);
    let base = AdmissionRequest::new(Oracle::fields(), &prompt, u32::MAX);
    for request in [
        AdmissionRequest { chunk: Some(16), ..base },
        AdmissionRequest { prompt: &[], max_new: 0, ..base },
        AdmissionRequest { drafts: u32::MAX, ..base },
        AdmissionRequest { chunk: Some(0), recompute: u32::MAX, encoder_tokens: u32::MAX, ..base },
        AdmissionRequest { lifetime: Some(u64::MAX), priority: 255, ..base },
    ] {
        let verdict = oracle.pool.can_admit(&request);
        let admitted = oracle.admit_by(&request);
        assert_eq!(matches!(verdict, AdmissionVerdict::Now { .. }), admitted.is_ok(), "{verdict:?}");
        if let Ok(at) = admitted {
            assert!(oracle.pool.append(&oracle.running[at].handle, u32::MAX).is_err());
            oracle.drop_sequence(at);
        }
    }
    let mix = [orlop_kv::LengthMix { prompt: u32::MAX, max_new: u32::MAX, weight: u32::MAX }];
    assert!(oracle.pool.capacity(&mix) < 100 * 16);
}

/// The pool's bytes are KV memory of the context that it was built in.
#[test]
fn the_pool_is_one_block_of_kv_memory() {
    let context = Context::new();
    let geometry = || KvGeometry::new(vec![LayerGroup::full("full", 2, 64)]).unwrap();
    let pool = KvPool::builder(geometry()).bytes(1 << 20).build(&context, Device::CPU).unwrap();
    let block = pool.memory().unwrap();
    assert_eq!((block.kind(), block.len()), (MemoryKind::KvCache, 1 << 20));
    assert!(context.stats(Device::CPU).kind(MemoryKind::KvCache).live_bytes >= 1 << 20);
    drop(pool);
    assert_eq!(context.stats(Device::CPU).kind(MemoryKind::KvCache).live_bytes, 0);
    let null = orlop_alloc::backing::Null::new(Device::cuda(0));
    let allocator: AllocatorRef = Direct::new(null).into_ref().erase();
    let pool = KvPool::builder(geometry()).bytes(80 << 30).build_in(&allocator).unwrap();
    assert_eq!(pool.memory().unwrap().device(), Device::cuda(0));
    assert!(KvPool::builder(geometry()).bytes(100).build_detached().is_err());
}

/// A sequence may be dropped on any thread.
#[test]
fn sequences_are_dropped_anywhere() {
    let mut oracle = oracle(vec![full(16)], 64);
    for round in 0..20 {
        let at = oracle.admit(&tokens(round, 48), 1).unwrap();
        oracle.prefill(at).unwrap();
    }
    let running = std::mem::take(&mut oracle.running);
    std::thread::scope(|scope| {
        for sequence in running {
            scope.spawn(move || drop(sequence));
        }
    });
    oracle.check();
    assert_eq!(oracle.books().used_bytes, 0);
    oracle.pool.discard_cache();
    assert_eq!(free(&mut oracle), 64);
}

/// A cross group has the encoder's tokens, however many the sequence has.
#[test]
fn an_encoder_has_slots_of_its_own() {
    let mut oracle = oracle(vec![full(16), LayerGroup::cross("cross", 1, ENTRY)], 8);
    let prompt = tokens(1, 4);
    let request =
        AdmissionRequest { encoder_tokens: 20, ..AdmissionRequest::new(Oracle::fields(), &prompt, 1) };
    let at = oracle.admit_by(&request).unwrap();
    oracle.append(at, 4).unwrap();
    let handle = &oracle.running[at].handle;
    let mut slots = [0; 21];
    assert_eq!(oracle.pool.write_slot_mapping(handle, 1, 0, 0..20, &mut slots).unwrap(), 20);
    assert_eq!(slots[15] - slots[0], 15);
    assert!(oracle.pool.write_slot_mapping(handle, 1, 0, 0..21, &mut slots).is_err());
    let (mut indptr, mut indices, mut last) = ([0; 2], [0; 2], [0; 1]);
    oracle.pool.write_flashinfer(&[handle], 1, 0, &mut indptr, &mut indices, &mut last).unwrap();
    assert_eq!((indptr, last), ([0, 2], [4]));
}

/// A priority that has ended does not return with a hit.
#[test]
fn a_priority_ends_for_good() {
    let mut oracle = oracle(vec![full(16)], 16);
    let prompt = tokens(1, 33);
    let mut request = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
    (request.priority, request.lifetime) = (100, Some(10));
    let at = oracle.admit_by(&request).unwrap();
    oracle.prefill(at).unwrap();
    oracle.finish(at);
    oracle.pass_time(20);
    // A hit, and then another prompt, of the default priority: it was used last.
    let again = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
    let at = oracle.admit_by(&again).unwrap();
    assert_eq!(oracle.running[at].hit, 32);
    oracle.drop_sequence(at);
    oracle.serve(&tokens(2, 33));
    assert!(oracle.pool.evict());
    assert_eq!(oracle.pool.probe(&again), 16, "the older one goes first");
}

/// Sizes at the end of their ranges are errors or bounds, not panics.
#[test]
fn hostile_sizes_are_errors() {
    let max = u32::MAX;
    let many = KvGeometry::new(vec![LayerGroup::full("many", max, 8)]).unwrap();
    assert!(many.needed_bytes(max, max) > 1 << 60);
    let huge = |layers, bytes| LayerGroup::full("huge", layers, bytes).with_block_tokens(1);
    let sizes = KvGeometry::new([1 << 63, 1, 2, 4].map(|bytes| huge(1, bytes)).to_vec()).unwrap();
    assert_eq!(sizes.large_page_bytes(), 1 << 63);
    let entry =
        KvGeometry::new(vec![huge(1, 1 << 62).with_arena("more", 1 << 62), huge(1, 1 << 63)]).unwrap();
    assert_eq!(entry.needed_bytes(max, max), u64::MAX);
    let pools = [max - 1, 1 << 27].map(|count| builder(vec![full(16)], count).build_detached());
    assert!(pools.iter().all(|pool| matches!(pool, Err(orlop_kv::KvError::OutOfRange { .. }))));

    let groups = vec![huge(max, 1), LayerGroup::window("window", max, 1, max).with_sinks(max)];
    let mut pool = builder(groups, 1).match_unit(max).steps_in_flight(max).build_detached().unwrap();
    let prompt = tokens(1, 10);
    let request = AdmissionRequest::new(Oracle::fields(), &prompt, max);
    let all = AdmissionRequest { drafts: max, recompute: max, encoder_tokens: max, ..request };
    assert!(matches!(pool.can_admit(&all), AdmissionVerdict::Never { .. }));
    let mix = orlop_kv::LengthMix { prompt: max, max_new: max, weight: max };
    assert!(pool.capacity(&[mix; 9]) < 1 << 32);

    // A unit that no prompt reaches costs no memory, and a fork to the end of the range is refused.
    let mut pool = builder(vec![full(16)], 8).match_unit(max).steps_in_flight(max).build_detached().unwrap();
    let admission = pool.admit(&AdmissionRequest::new(Oracle::fields(), &prompt, 9)).unwrap();
    pool.append(&admission.sequence, 10).unwrap();
    let step = pool.close_step();
    pool.settle(step).unwrap();
    assert!(pool.fork(&admission.sequence, max).is_err());
    assert!(pool.append(&admission.sequence, max).is_err());
    assert_eq!(pool.verify(), Ok(()));
}
