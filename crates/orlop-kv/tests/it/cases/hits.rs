//! Wrong hits: keys, parents, holes, tenants, adapters.

use super::{builder, full, oracle, state, tokens, window};
use crate::oracle::Oracle;
use orlop_kv::{
    Adapter, AdmissionRequest, ChainFields, KvError, KvEvent, MissCause, RemovalReason, Tenant, Visibility,
};
use std::collections::HashSet;

fn probe(oracle: &Oracle, fields: ChainFields<'_>, prompt: &[u32]) -> u32 {
    oracle.pool.probe(&AdmissionRequest::new(fields, prompt, 1))
}

/// TensorRT-LLM#8830.
#[test]
fn a_block_is_found_behind_its_own_parent_only() {
    let mut oracle = oracle(vec![full(16)], 16);
    oracle.serve(&tokens(1, 33));
    let mut other = tokens(2, 16);
    other.extend(&tokens(1, 33)[16..]);
    assert_eq!(probe(&oracle, Oracle::fields(), &other), 0);
    assert_eq!(probe(&oracle, Oracle::fields(), &tokens(1, 33)), 32);
}

/// llm-d-inference-sim#705. A hole cannot arise: blocks go from the end.
#[test]
fn a_prefix_is_evicted_from_its_end() {
    let mut oracle = oracle(vec![full(16)], 16);
    oracle.serve(&tokens(1, 49));
    for hit in [32, 16, 0] {
        assert!(oracle.pool.evict());
        oracle.check();
        assert_eq!(probe(&oracle, Oracle::fields(), &tokens(1, 49)), hit);
    }
    assert!(!oracle.pool.evict());
}

/// kvcached#362, #401.
#[test]
fn a_key_goes_with_its_page_and_stays_with_its_sibling() {
    let mut oracle = oracle(vec![full(16)], 4);
    // Two sequences compute the same prompt at the same time.
    let first = oracle.admit(&tokens(1, 32), 1).unwrap();
    let second = oracle.admit(&tokens(1, 32), 1).unwrap();
    oracle.append(first, 32).unwrap();
    oracle.append(second, 32).unwrap();
    oracle.close();
    oracle.settle();
    oracle.finish(second);
    assert_eq!(probe(&oracle, Oracle::fields(), &tokens(1, 32)), 16);
    oracle.finish(0);
    assert_eq!(probe(&oracle, Oracle::fields(), &tokens(1, 32)), 16);
    // The pages get another content: the key is gone with the first one.
    oracle.serve(&tokens(2, 64));
    assert_eq!(probe(&oracle, Oracle::fields(), &tokens(1, 32)), 0);
}

/// vllm#49125, vllm#58119.
#[test]
fn a_partial_block_is_announced_once_and_behind_a_known_parent() {
    let mut oracle = Oracle::new(builder(vec![full(16)], 8).match_unit(1).events(true));
    let at = oracle.admit(&tokens(1, 5), 40).unwrap();
    oracle.prefill(at).unwrap();
    for _ in 5..36 {
        oracle.append(at, 1).unwrap();
        oracle.close();
        oracle.settle();
        oracle.push_tokens(at);
    }
    oracle.finish(at);
    let (mut seen, mut last) = (HashSet::new(), None);
    let mut blocks = Vec::new();
    for event in oracle.pool.take_events() {
        match event {
            KvEvent::UnitsStored { parent, hashes } => {
                assert_eq!(parent, last);
                assert!(hashes.iter().all(|hash| seen.insert(*hash)));
                last = hashes.last().copied();
            }
            KvEvent::BlockStored { key, .. } => blocks.push(key),
            KvEvent::BlockRemoved { key, reason: RemovalReason::Extended, .. } => {
                assert_eq!(blocks.pop(), Some(key));
            }
            event => panic!("{event:?}"),
        }
    }
    assert_eq!(seen.len(), 36);
    let tokens: Vec<u32> = blocks.iter().map(|key| key.tokens).collect();
    assert_eq!(tokens, [16, 16, 4]);
}

/// sglang#31486.
#[test]
fn a_finished_window_is_hit_at_its_end_only() {
    let mut oracle = oracle(vec![window(128, 16)], 33);
    let at = oracle.admit(&tokens(1, 512), 2).unwrap();
    while oracle.running[at].scheduled < 512 {
        oracle.append(at, 16).unwrap();
        oracle.close();
        oracle.settle();
    }
    oracle.finish(at);
    assert_eq!(probe(&oracle, Oracle::fields(), &tokens(1, 513)), 512);
    assert_eq!(probe(&oracle, Oracle::fields(), &tokens(1, 257)), 0);
    assert!(oracle.books().cached_bytes <= 9 * 128, "{:?}", oracle.books());
}

/// vllm#42547.
#[test]
fn null_entries_do_not_hide_a_boundary() {
    let groups = vec![full(128), state().with_block_tokens(1), window(16, 128)];
    let mut oracle = oracle(groups, 16);
    oracle.serve(&tokens(1, 400));
    assert_eq!(oracle.serve(&tokens(1, 400)), 384);
}

/// vllm#38715, #41838.
#[test]
fn visibility_is_a_setting() {
    let hit = |groups, visibility| {
        let mut oracle = Oracle::new(builder(groups, 16).visibility(visibility));
        let first = oracle.admit(&tokens(1, 33), 1).unwrap();
        oracle.append(first, 33).unwrap();
        oracle.close();
        let second = oracle.admit(&tokens(1, 33), 1).unwrap();
        oracle.append(second, 33 - oracle.running[second].hit).unwrap();
        oracle.close();
        oracle.settle_all();
        oracle.running[second].hit
    };
    assert_eq!(hit(vec![full(16)], Visibility::AfterSettle), 0);
    assert_eq!(hit(vec![full(16)], Visibility::SameStream), 32);
    assert_eq!(hit(vec![full(16), state()], Visibility::SameStream), 0);
}

/// CVE-2025-46570; mistral.rs' adapter generations.
#[test]
fn tenants_and_generations_do_not_share() {
    let mut oracle = oracle(vec![full(16)], 16);
    let base = Oracle::fields();
    let tenant = |name| ChainFields { tenant: Tenant::Named(name), ..base };
    let adapter = |generation| ChainFields { adapter: Some(Adapter { name: "a", generation }), ..base };
    let prompt = tokens(1, 33);
    for fields in [tenant("x"), adapter(1)] {
        let at = oracle.admit_by(&AdmissionRequest::new(fields, &prompt, 1)).unwrap();
        oracle.prefill(at).unwrap();
        oracle.finish(at);
    }
    assert_eq!(probe(&oracle, tenant("x"), &prompt), 32);
    assert_eq!(probe(&oracle, tenant("y"), &prompt), 0);
    assert_eq!(probe(&oracle, base, &prompt), 0);
    assert_eq!(probe(&oracle, adapter(1), &prompt), 32);
    assert_eq!(probe(&oracle, adapter(2), &prompt), 0);
}

/// The cause of a miss is counted, in tokens.
#[test]
fn a_miss_has_a_cause() {
    let mut oracle = oracle(vec![full(16)], 4);
    oracle.serve(&tokens(1, 10));
    oracle.serve(&tokens(1, 33));
    oracle.serve(&tokens(2, 64));
    oracle.serve(&tokens(1, 33));
    let stats = oracle.books();
    assert_eq!(stats.missed_tokens(MissCause::BelowUnit), 10);
    assert_eq!(stats.missed_tokens(MissCause::NeverSeen), 33 + 64);
    assert_eq!(stats.missed_tokens(MissCause::Evicted), 33 - 16 * (stats.hit_tokens / 16));
}

/// LMCache#1969: two requests of 34 tokens, seven blocks. The one that makes room for the other finds its
/// complete blocks again.
#[test]
fn a_preempted_request_finds_its_blocks_again() {
    let mut oracle = oracle(vec![full(16)], 7);
    let first = oracle.admit(&tokens(1, 34), 1).unwrap();
    oracle.prefill(first).unwrap();
    let second = oracle.admit(&tokens(2, 34), 1).unwrap();
    oracle.prefill(second).unwrap();
    // Behind what they were pledged: the last free block, and then one that is missing.
    oracle.append(first, 30).unwrap();
    let missing = oracle.append(first, 4);
    assert!(matches!(missing, Err(KvError::OutOfPages { needed: 1, available: 0, .. })), "{missing:?}");
    oracle.close();
    oracle.settle_all();
    oracle.finish(second);
    let first = 0;
    oracle.append(first, 4).unwrap();
    oracle.close();
    oracle.settle_all();
    assert_eq!(probe(&oracle, Oracle::fields(), &tokens(2, 34)), 32);
    oracle.finish(first);
    let prompt = tokens(2, 34);
    let request = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
    let before = oracle.books();
    let resumed = oracle.admit_by(&AdmissionRequest { resumed: true, ..request }).unwrap();
    oracle.prefill(resumed).unwrap();
    let after = oracle.books();
    assert_eq!(after.resumed_hit_tokens - before.resumed_hit_tokens, 32);
    assert_eq!(after.hit_tokens, before.hit_tokens);
}

/// llama.cpp#12160: a prompt leaves out a part of an earlier one. What follows that part is at other
/// positions: it is computed, and the earlier prompt is found as it was.
#[test]
fn blocks_behind_a_part_that_was_left_out_are_not_reused() {
    let mut oracle = oracle(vec![full(16)], 16);
    let whole = tokens(1, 97);
    oracle.serve(&whole);
    let without = [&whole[..32], &whole[64..]].concat();
    assert_eq!(oracle.serve(&without), 32);
    assert_eq!(probe(&oracle, Oracle::fields(), &whole), 96);
    assert_eq!(probe(&oracle, Oracle::fields(), &without), 64);
}
