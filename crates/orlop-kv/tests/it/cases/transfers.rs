//! Loads and stores beside steps: what a transfer must not meet, and what its end leaves.

use super::{branch, builder, full, oracle, tokens};
use crate::oracle::Oracle;
use orlop_kv::{AdmissionRequest, KvError, Visibility};

fn probe(oracle: &Oracle, prompt: &[u32]) -> u32 {
    oracle.pool.probe(&AdmissionRequest::new(Oracle::fields(), prompt, 1))
}

/// The prompt is computed instead, and sampled tokens follow it, not the position of the load.
#[test]
fn a_load_that_fails_leaves_the_prompt_known() {
    for expires in [false, true] {
        let mut oracle = oracle(vec![full(16)], 16);
        let prompt = tokens(1, 32);
        let at = oracle.admit(&prompt, 40).unwrap();
        oracle.begin_load(at, 32, 10).unwrap();
        if expires {
            oracle.pass_time(10);
        } else {
            oracle.end_load(at, false);
        }
        oracle.append(at, 32).unwrap();
        oracle.close();
        oracle.settle();
        oracle.append(at, 16).unwrap();
        oracle.close();
        oracle.settle();
        let refused = oracle.pool.push_tokens(&oracle.running[at].handle, 0, &[1; 16]);
        assert!(matches!(refused, Err(KvError::NotNextToken { position: 0, known: 32 })), "{refused:?}");
        oracle.push_tokens(at);
        let all = oracle.running[at].tokens.clone();
        oracle.finish(at);
        let sampled: Vec<u32> = all[32..].iter().copied().chain([1]).collect();
        assert_eq!(probe(&oracle, &sampled), 0, "the prompt's blocks under the sampled tokens");
        assert_eq!(probe(&oracle, &[all, vec![1]].concat()), 48);
    }
}

/// A prompt that was cut has no known tokens behind the cut: pushing at the old position is refused.
#[test]
fn tokens_are_pushed_where_the_known_ones_end() {
    let mut oracle = oracle(vec![full(16)], 16);
    let at = oracle.admit(&tokens(1, 32), 40).unwrap();
    oracle.prefill(at).unwrap();
    let handle = &oracle.running[at].handle;
    assert_eq!(oracle.pool.truncate(handle, 24).unwrap().known, 16);
    let refused = oracle.pool.push_tokens(handle, 24, &[1]);
    assert!(matches!(refused, Err(KvError::NotNextToken { position: 24, known: 16 })), "{refused:?}");
    oracle.pool.push_tokens(handle, 16, &[1; 8]).unwrap();
}

#[test]
fn a_store_is_not_overwritten() {
    let mut oracle = oracle(vec![full(32)], 4);
    let at = oracle.admit(&tokens(1, 16), 40).unwrap();
    oracle.prefill(at).unwrap();
    oracle.append(at, 12).unwrap();
    oracle.close();
    oracle.settle();
    let (ticket, pages) = oracle.pool.begin_store(&oracle.running[at].handle, 28, 1_000).unwrap();
    // Behind the stored tokens the block is written in place.
    oracle.append(at, 2).unwrap();
    assert!(oracle.pool.copies().is_empty());
    oracle.close();
    oracle.settle();
    // Nothing else refers to the block.
    oracle.pool.discard_cache();
    oracle.truncate(at, 20).unwrap();
    oracle.append(at, 4).unwrap();
    let copies = oracle.pool.copies().to_vec();
    assert!(copies.len() == 1 && copies[0].from == pages[0].page && copies[0].tokens == 20, "{copies:?}");
    oracle.close();
    oracle.settle();
    oracle.pool.complete(ticket).unwrap();
    oracle.check();
}

/// The step may still write the drafts to the slots of the load.
#[test]
fn a_load_does_not_run_beside_a_step_that_was_taken_back() {
    let mut oracle = oracle(vec![full(32)], 4);
    let at = oracle.admit(&tokens(1, 32), 40).unwrap();
    oracle.append(at, 20).unwrap();
    oracle.close();
    oracle.settle();
    oracle.append(at, 8).unwrap();
    let step = oracle.close();
    oracle.truncate(at, 20).unwrap();
    let refused = oracle.begin_load(at, 8, 1_000).unwrap_err();
    assert!(matches!(refused, KvError::StepInFlight { step: in_flight } if in_flight == step.0), "{refused}");
    oracle.settle();
    oracle.running[at].tokens = tokens(1, 32);
    oracle.begin_load(at, 8, 1_000).unwrap();
}

/// The hit's tokens are visible when the step is closed: a store would read them before it has run.
#[test]
fn a_store_waits_for_the_step_that_writes_its_hit() {
    let mut oracle = Oracle::new(builder(vec![full(16)], 8).visibility(Visibility::SameStream));
    let first = oracle.admit(&tokens(1, 33), 1).unwrap();
    oracle.append(first, 33).unwrap();
    let step = oracle.close();
    let second = oracle.admit(&tokens(1, 33), 1).unwrap();
    assert_eq!(oracle.running[second].hit, 32);
    let refused = oracle.pool.begin_store(&oracle.running[second].handle, 32, 10).unwrap_err();
    assert!(matches!(refused, KvError::StepInFlight { step: in_flight } if in_flight == step.0), "{refused}");
    oracle.settle();
    oracle.pool.begin_store(&oracle.running[second].handle, 32, 10).unwrap();
}

/// A copy of settled tokens runs in the open step: a store waits for it, and its page stays until then.
#[test]
fn a_copied_page_is_not_read_or_freed_before_the_copy() {
    let cached = || {
        let mut oracle = Oracle::new(builder(vec![full(32)], 6).match_unit(4));
        oracle.serve(&tokens(0, 40));
        let at = oracle.admit(&branch(1, 36, 64), 1).unwrap();
        assert_eq!(oracle.running[at].hit, 36);
        (oracle, at)
    };
    let (mut oracle, at) = cached();
    oracle.append(at, 4).unwrap();
    assert_eq!(oracle.pool.copies().len(), 1);
    oracle.close();
    let refused = oracle.pool.begin_store(&oracle.running[at].handle, 36, 10);
    assert!(matches!(refused, Err(KvError::StepInFlight { .. })), "{refused:?}");
    oracle.settle();
    oracle.pool.begin_store(&oracle.running[at].handle, 36, 10).unwrap();

    let (mut oracle, at) = cached();
    let ticket = oracle.begin_load(at, 28, 10).unwrap();
    let page = oracle.pool.copies()[0].to;
    oracle.pool.cancel(ticket).unwrap();
    oracle.drop_sequence(at);
    oracle.pool.discard_cache();
    let other = oracle.admit(&tokens(2, 32 * 2), 1).unwrap();
    oracle.append(other, 64).unwrap();
    assert!(oracle.pool.fresh_pages().iter().all(|fresh| fresh.page != page), "the copy's page");
    assert_eq!(oracle.pool.copies().len(), 1);
}

/// sglang#22811, #38031: a load of layers with two arenas is one page for both, and nothing uses a layer
/// before the load is complete as a whole.
#[test]
fn a_layer_is_not_used_before_all_of_its_arenas_are_there() {
    for is_complete in [true, false] {
        let mut oracle = oracle(vec![full(16).with_arena("indexer", 2 * crate::oracle::ENTRY)], 16);
        let prompt = tokens(1, 64);
        let at = oracle.admit(&prompt, 20).unwrap();
        oracle.begin_load(at, 32, 100).unwrap();
        let refused = oracle.pool.append(&oracle.running[at].handle, 1);
        assert!(matches!(refused, Err(KvError::BeyondEnd { .. })), "{refused:?}");
        let refused = oracle.pool.begin_store(&oracle.running[at].handle, 16, 10);
        assert!(matches!(refused, Err(KvError::BeyondEnd { .. })), "{refused:?}");
        assert_eq!(probe(&oracle, &prompt), 0);
        oracle.end_load(at, is_complete);
        let left = if is_complete { 32 } else { 64 };
        assert_eq!(probe(&oracle, &prompt), 64 - left);
        oracle.append(at, left).unwrap();
        oracle.close();
        oracle.settle();
        assert_eq!(probe(&oracle, &prompt), 48);
        oracle.check();
    }
}
