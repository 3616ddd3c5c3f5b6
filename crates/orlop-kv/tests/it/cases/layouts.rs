//! Blocks of different sizes, units that divide none of them, and pools whose free pages are scattered.

use super::tiers::{attach, stats, store};
use super::{builder, full, oracle, tokens, window};
use crate::oracle::{ENTRY, MemoryStore, Oracle};
use orlop_kv::{
    AdmissionRequest, CheckpointPolicy, KvError, KvGeometry, KvLayer, KvPool, LayerGroup, MissCause,
};
use std::collections::HashSet;

/// vllm#41262, #41657, kvcached#446, vllm-gaudi#1323: pages of the same bytes hold 16 tokens of one group and
/// 32 of another, and a slot's bytes belong to one token of one group.
#[test]
fn slots_of_different_block_sizes_do_not_overlap() {
    let long = LayerGroup::full("long", 1, ENTRY).with_block_tokens(32);
    let short = LayerGroup::full("short", 1, 2 * ENTRY).with_block_tokens(16);
    let mut oracle = oracle(vec![long, short], 24);
    assert_eq!(oracle.pool.geometry().page_bytes(0), oracle.pool.geometry().page_bytes(1));
    for family in 1..4 {
        let at = oracle.admit(&tokens(family, 70), 1).unwrap();
        oracle.prefill(at).unwrap();
    }
    let mut places = HashSet::new();
    for sequence in &oracle.running {
        for (group, spec) in oracle.pool.geometry().groups().iter().enumerate() {
            let mut slots = [0; 70];
            oracle.pool.write_slot_mapping(&sequence.handle, group, 0, 0..70, &mut slots).unwrap();
            for slot in slots {
                let (page, entry) =
                    (slot / u64::from(spec.block_tokens), slot % u64::from(spec.block_tokens));
                let view = oracle.pool.geometry().arena(group, 0, 0).unwrap();
                let start = view.base + page * view.stride + entry * spec.arenas[0].bytes;
                let words = start / ENTRY..(start + spec.arenas[0].bytes) / ENTRY;
                assert!(words.into_iter().all(|word| places.insert(word)), "two tokens in one place");
            }
        }
    }
    assert_eq!(places.len(), 3 * 70 * 3);
}

/// vllm#53786, qwen38-27b-rtx3090#18, vllm#55600: hits end on the unit, for windows and states, too, whose
/// blocks it does not divide.
#[test]
fn a_unit_need_not_divide_a_block() {
    let state = || LayerGroup::state("state", 1, 8 * ENTRY);
    for unit in [16, 24, 40] {
        for groups in [
            vec![full(64), window(128, 64)],
            vec![full(48), window(20, 16)],
            vec![full(64), window(100, 16), state()],
            vec![full(16), state()],
        ] {
            let mut oracle = Oracle::new(builder(groups.clone(), 200).match_unit(unit));
            for len in [121, 185, 200] {
                let prompt = tokens(len, len);
                oracle.serve(&prompt);
                assert_eq!(oracle.serve(&prompt), (len - 1) / unit * unit, "unit {unit}, {groups:?}");
            }
        }
    }
}

/// llama.cpp#17527, #23720: what comes back from a tier needs pages, not neighbours.
#[test]
fn a_restored_prefix_fits_scattered_pages() {
    let mut oracle = oracle(vec![full(16)], 12);
    attach(&mut oracle, 1 << 20, None);
    let prompt = tokens(1, 81);
    store(&mut oracle, &prompt);
    let running: Vec<usize> = (2..14).map(|family| oracle.admit(&tokens(family, 16), 1).unwrap()).collect();
    for &at in &running {
        oracle.prefill(at).unwrap();
    }
    // Every second page is free.
    for at in (0..12).rev().step_by(2) {
        let sequence = oracle.running.remove(at);
        drop(sequence);
    }
    oracle.pool.discard_cache();
    let at = oracle.admit(&prompt, 1).unwrap();
    assert_eq!((oracle.running[at].hit, oracle.pool.stats().free_bytes), (80, 128));
    let mut row = [0; 6];
    oracle.pool.write_block_table(&oracle.running[at].handle, 0, 0, u32::MAX, &mut row).unwrap();
    assert!(row[..5].windows(2).any(|pair| pair[0].abs_diff(pair[1]) > 1), "{row:?} is not scattered");
    oracle.prefill(at).unwrap();
    oracle.finish(at);
}

/// llama.cpp#26063, sglang#30850: prompts that end at, before and behind the end of an entry and of a step
/// come back from a store.
#[test]
fn every_length_comes_back_from_a_store() {
    let groups = vec![
        LayerGroup::compressed("compressed", 1, ENTRY, 4).with_block_tokens(16),
        LayerGroup::compressed("sparse", 1, ENTRY, 32).with_block_tokens(32),
        window(12, 4),
        LayerGroup::state("tail", 1, ENTRY).with_optional(),
    ];
    for len in [31, 32, 33, 63, 64, 65, 66, 95, 96, 97, 128, 129] {
        let policy = CheckpointPolicy { every: Some(32), ..CheckpointPolicy::default() };
        let mut oracle = Oracle::new(builder(groups.clone(), 200).match_unit(4).checkpoints(policy));
        attach(&mut oracle, 0, Some(Box::new(MemoryStore::default())));
        let prompt = tokens(1, len);
        if len > 32 {
            store(&mut oracle, &prompt);
        }
        assert_eq!(oracle.serve(&prompt), (len - 1) / 32 * 32, "{len} tokens");
    }
}

/// LMCache#1034, vllm#35931: lookups that the device serves keep nothing in host memory.
#[test]
fn hits_on_the_device_pin_nothing_in_host_memory() {
    let mut oracle = oracle(vec![full(16)], 40);
    let block = oracle.pool.geometry().page_bytes(0);
    attach(&mut oracle, 4 * block, None);
    let prompt = tokens(1, 65);
    store(&mut oracle, &prompt);
    assert_eq!(stats(&oracle).host_bytes, 4 * block);
    oracle.serve(&prompt);
    for _ in 0..10 {
        let at = oracle.admit(&prompt, 1).unwrap();
        oracle.drop_sequence(at);
    }
    // Others take all of host memory.
    let other = tokens(2, 65);
    let at = oracle.admit(&other, 1).unwrap();
    oracle.prefill(at).unwrap();
    assert_eq!(oracle.pool.store(&oracle.running[at].handle, 64).unwrap(), 4 * block);
    oracle.finish(at);
    oracle.pool.discard_cache();
    assert_eq!(oracle.pool.probe(&AdmissionRequest::new(Oracle::fields(), &prompt, 1)), 0);
    assert_eq!((oracle.serve(&prompt), oracle.serve(&other)), (0, 64));
}

/// vllm#56734: a row that is used again has none of its former pages.
#[test]
fn a_row_that_is_used_again_has_no_stale_pages() {
    let mut oracle = oracle(vec![full(16), window(32, 16)], 40);
    let (mut row, mut of_window) = ([7; 8], [7; 8]);
    for len in [100, 20, 1] {
        let at = oracle.admit(&tokens(len, len), 1).unwrap();
        oracle.prefill(at).unwrap();
        let handle = &oracle.running[at].handle;
        let entries = oracle.pool.write_block_table(handle, 0, 0, u32::MAX, &mut row).unwrap();
        oracle.pool.write_block_table(handle, 1, 0, u32::MAX, &mut of_window).unwrap();
        let behind = row[entries..].iter().chain(&of_window[entries..]);
        assert!(entries == len.div_ceil(16) as usize && behind.copied().all(|page| page == u32::MAX));
        assert!(row[..entries].iter().all(|&page| page < oracle.pool.page_ids(0)));
        oracle.drop_sequence(at);
    }
}

/// vllm#50696: what a load fills is not among the pages to clear, whatever had them before in the same step.
#[test]
fn pages_of_a_load_are_not_cleared() {
    for blocks in 1..=6 {
        let mut oracle = oracle(vec![full(16)], blocks);
        let prompt = tokens(1, 33);
        let Ok(first) = oracle.admit(&tokens(2, 33), 1) else { continue };
        oracle.append(first, 33).unwrap();
        oracle.drop_sequence(first);
        // Its pages are still to be cleared by the open step.
        match oracle.admit(&prompt, 1) {
            Ok(at) => {
                oracle.begin_load(at, 32, 1_000).unwrap();
                let mut row = [0; 3];
                let handle = &oracle.running[at].handle;
                oracle.pool.write_block_table(handle, 0, 0, u32::MAX, &mut row).unwrap();
                let is_cleared = |page: u32| oracle.pool.fresh_pages().iter().any(|fresh| fresh.page == page);
                assert!(!row[..2].iter().any(|&page| is_cleared(page)), "{row:?}");
                oracle.close();
                oracle.end_load(at, true);
                oracle.append(at, 1).unwrap();
                oracle.close();
                oracle.settle_all();
            }
            Err(error) => assert!(blocks < 6, "{error}"),
        }
    }
}

/// tt-xla#5731, tpu-inference#3129: shards divide the bytes of a token once, and multiply the tokens of a
/// block once.
#[test]
fn shards_count_once() {
    let tokens_of = |tensor, context| {
        let group = LayerGroup::full("full", 4, 64).with_shards(tensor, context);
        let pool = KvPool::builder(KvGeometry::new(vec![group]).unwrap()).bytes(1 << 20);
        let pool = pool.build_detached().unwrap();
        let spans = pool.geometry().groups()[0].span();
        (u64::from(pool.page_ids(0)) * u64::from(spans) / u64::from(pool.geometry().parts(0)), spans)
    };
    assert_eq!([tokens_of(1, 1), tokens_of(4, 1)], [(4096, 16), (16_384, 16)]);
    assert_eq!([tokens_of(1, 2), tokens_of(4, 2)], [(8192, 32), (32_768, 32)]);
}

/// sglang#35270: pages that several branches share are counted once.
#[test]
fn shared_pages_are_reclaimable_once() {
    let mut oracle = oracle(vec![full(16)], 20);
    for branch in 2..6 {
        oracle.serve(&[tokens(1, 64), tokens(branch, 33)].concat());
    }
    let stats = oracle.books();
    assert_eq!(stats.cached_bytes, (4 + 4 * 2) * 128);
    assert_eq!(oracle.pool.reclaimable_now(), 20);
    // A running branch takes the shared pages out of what can be reclaimed, once.
    let at = oracle.admit(&[tokens(1, 64), tokens(2, 33)].concat(), 1).unwrap();
    assert_eq!(oracle.running[at].hit, 96);
    assert_eq!(oracle.pool.reclaimable_now(), 20 - 6);
}

/// vllm#51031, vllm-gaudi#1323: a kernel with smaller blocks than pages finds every token where the slot
/// mapping has it.
#[test]
fn kernel_blocks_divide_pages() {
    let groups = vec![
        LayerGroup::full("full", 2, ENTRY).with_arena("v", ENTRY).with_block_tokens(64),
        window(40, 32),
        LayerGroup::compressed("compressed", 1, 2 * ENTRY, 4).with_block_tokens(64),
        LayerGroup::full("sharded", 1, ENTRY).with_shards(1, 2).with_block_tokens(32),
    ];
    let mut pool = builder(groups.clone(), 60).build_detached().unwrap();
    let prompt = tokens(1, 150);
    let handle = &pool.admit(&AdmissionRequest::new(Oracle::fields(), &prompt, 1)).unwrap().sequence;
    pool.append(handle, 150).unwrap();
    let step = pool.close_step();
    pool.settle(step).unwrap();
    for (group, spec) in groups.iter().enumerate() {
        for (layer, arena) in (0..spec.layers).flat_map(|layer| [(layer, 0), (layer, spec.arenas.len() - 1)])
        {
            for kernel in [4, 16, 32] {
                let blocks = pool.kernel_blocks(KvLayer { group, layer }, arena, kernel).unwrap();
                let pages = u64::from(pool.page_ids(group)) * pool.geometry().page_bytes(group);
                let end = blocks.base + u64::from(blocks.ids) * blocks.bytes;
                assert!(end <= pages, "{blocks:?} leave {pages} B");
                let mut row = [7; 40];
                let entries = pool.write_kernel_table(handle, &blocks, u32::MAX, &mut row).unwrap();
                let shards = spec.context_shards;
                assert_eq!(entries, 150_u32.div_ceil(kernel * shards) as usize);
                assert!(row[entries..].iter().all(|&id| id == u32::MAX));
                let view = pool.geometry().arena(group, layer, arena).unwrap();
                let ratio = if group == 2 { 4 } else { 1 };
                let entry = spec.arenas[arena].bytes;
                let first = if group == 1 { 96 } else { 0 };
                for position in first..150 {
                    let mut slot = [0];
                    let range = position..position + 1;
                    pool.write_slot_mapping(handle, group, view.part, range, &mut slot).unwrap();
                    let of_page = u64::from(spec.block_tokens / ratio);
                    let by_slot = view.base + slot[0] / of_page * view.stride + slot[0] % of_page * entry;
                    let id = row[(position / (kernel * shards)) as usize];
                    assert!(id < blocks.ids);
                    let inside = u64::from(position % (kernel * shards) / shards / ratio);
                    assert_eq!(blocks.base + u64::from(id) * blocks.bytes + inside * entry, by_slot);
                }
                if group == 1 {
                    assert_eq!(row[0], u32::MAX, "its window has moved on");
                }
                let short = pool.write_kernel_table(handle, &blocks, 0, &mut row[..entries - 1]);
                assert!(matches!(short, Err(KvError::BufferTooSmall { .. })));
            }
            for wrong in [0, 24, 128] {
                let refused = pool.kernel_blocks(KvLayer { group, layer }, arena, wrong);
                assert!(matches!(refused, Err(KvError::KernelBlockSize { .. })), "{refused:?}");
            }
        }
    }
    // Bytes that do not divide the distance of pages lie on no grid.
    let odd = LayerGroup::full("odd", 1, 8).with_arena("scales", 3);
    let pool = builder(vec![odd], 2).build_detached().unwrap();
    assert!(pool.kernel_blocks(KvLayer { group: 0, layer: 0 }, 0, 16).is_err());
    assert!(matches!(
        pool.kernel_blocks(KvLayer { group: 0, layer: 0 }, 2, 16),
        Err(KvError::NoSuchPart { .. })
    ));
}

/// Kernel blocks of a pool with another geometry or size would name other memory, or none.
#[test]
fn kernel_blocks_of_another_pool_are_refused() {
    let pool = |groups, pages| builder(groups, pages).build_detached().unwrap();
    let wide = || LayerGroup::full("wide", 1, 2 * ENTRY).with_block_tokens(32);
    let mut here = pool(vec![full(32), window(32, 32)], 8);
    let handle = here.admit(&AdmissionRequest::new(Oracle::fields(), &tokens(1, 40), 1)).unwrap().sequence;
    here.append(&handle, 40).unwrap();
    let blocks =
        |pool: &KvPool, group, kernel| pool.kernel_blocks(KvLayer { group, layer: 0 }, 0, kernel).unwrap();
    for (foreign, group) in [
        (pool(vec![full(32), wide()], 8), 0),
        (pool(vec![wide(), full(32)], 8), 0),
        (pool(vec![full(32), wide()], 8), 1),
        (pool(vec![full(32), window(32, 32)], 9), 0),
        (pool(vec![full(32), full(32), full(32)], 8), 2),
    ] {
        let mut row = [7; 8];
        let refused = here.write_kernel_table(&handle, &blocks(&foreign, group, 16), 0, &mut row);
        assert!(matches!(refused, Err(KvError::NoSuchPart { .. })), "group {group}: {refused:?}");
        assert_eq!(row, [7; 8]);
    }
    let mut row = [7; 8];
    assert_eq!(here.write_kernel_table(&handle, &blocks(&here, 1, 16), 0, &mut row).unwrap(), 3);
}

/// States that cannot be saved: no prefix is reused, unless it may be without them.
#[test]
fn states_that_cannot_be_saved_prevent_reuse() {
    let state = || LayerGroup::state("state", 1, 16 * ENTRY).without_checkpoints();
    for (group, hit) in [(state(), 0), (state().with_optional(), 48)] {
        let mut oracle = oracle(vec![full(16), group], 20);
        oracle.serve(&tokens(1, 49));
        assert_eq!(oracle.serve(&tokens(1, 49)), hit);
        let missed = oracle.books().missed_tokens(MissCause::NoReuse);
        assert_eq!(missed, if hit == 0 { 98 } else { 0 });
    }
}

/// A large page of 80 pages is emptied, and becomes one of a single page: none of its bits is left.
#[test]
fn a_large_page_of_many_pages_becomes_a_single_page() {
    let groups = vec![LayerGroup::full("many", 1, 8), LayerGroup::full("one", 80, 8)];
    let mut pool = builder(groups, 8).build_detached().unwrap();
    let [ended, other] = [1, 2].map(|family| {
        let prompt = tokens(family, 15);
        let admission = pool.admit(&AdmissionRequest::new(Oracle::fields(), &prompt, 2)).unwrap();
        pool.append(&admission.sequence, 15).unwrap();
        admission.sequence
    });
    let step = pool.close_step();
    pool.finish(ended).unwrap();
    pool.settle(step).unwrap();
    assert_eq!(pool.verify(), Ok(()));
    pool.append(&other, 2).unwrap();
    assert_eq!(pool.verify(), Ok(()));
}
