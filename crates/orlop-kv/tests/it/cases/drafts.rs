//! Speculative decoding: what rejection takes back.

use super::{builder, full, oracle, state, tokens, window};
use crate::oracle::Oracle;
use orlop_kv::{AdmissionRequest, CheckpointPolicy, KvError};

/// vllm#17398.
#[test]
fn a_shorter_hit_needs_the_window_of_the_shorter_prefix() {
    // The end of the sequence is the only boundary.
    let pool = builder(vec![window(4, 2)], 16).match_unit(2).checkpoints(CheckpointPolicy::OFF);
    let mut oracle = Oracle::new(pool);
    oracle.serve(&tokens(1, 8));
    let prompt = tokens(1, 9);
    let mut request = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
    assert_eq!(oracle.pool.probe(&request), 8);
    // The draft model computes the last block again: 6 tokens would need tokens 3 to 5, of which 3 is gone.
    request.recompute = 3;
    assert_eq!(oracle.pool.probe(&request), 0);
    let at = oracle.admit_by(&request).unwrap();
    oracle.prefill(at).unwrap();
}

/// vllm#53912.
#[test]
fn a_state_over_rejected_drafts_is_not_cached() {
    let policy = CheckpointPolicy { every: Some(16), ..CheckpointPolicy::default() };
    let mut oracle = Oracle::new(builder(vec![full(16), state()], 16).checkpoints(policy));
    let at = oracle.admit(&tokens(1, 14), 20).unwrap();
    oracle.append(at, 14).unwrap();
    oracle.close();
    oracle.settle();
    oracle.append_drafts(at, 7).unwrap();
    oracle.close();
    let truncated = oracle.truncate(at, 17).unwrap();
    assert_eq!((truncated.len, truncated.recompute), (14, 3));
    oracle.settle();
    assert_eq!(oracle.books().boundaries, 0);
    // The three accepted tokens are computed again in one step: the state at 16 is not saved.
    oracle.append(at, 3).unwrap();
    oracle.close();
    oracle.settle();
    oracle.push_tokens(at);
    assert_eq!(oracle.books().boundaries, 0);
    let cached = oracle.running[at].tokens.clone();
    oracle.finish(at);
    let prompt: Vec<u32> = cached.into_iter().chain([1, 2]).collect();
    assert_eq!(oracle.pool.probe(&AdmissionRequest::new(Oracle::fields(), &prompt, 1)), 0);
}

/// vllm#47728.
#[test]
fn rejected_drafts_do_not_move_the_window() {
    for settle_first in [false, true] {
        let mut oracle = oracle(vec![window(64, 16)], 16);
        let at = oracle.admit(&tokens(1, 128), 40).unwrap();
        oracle.prefill(at).unwrap();
        oracle.append_drafts(at, 15).unwrap();
        oracle.close();
        let owned = |oracle: &Oracle| {
            let mut row = [0; 16];
            oracle.pool.write_block_table(&oracle.running[at].handle, 0, 0, u32::MAX, &mut row).unwrap();
            row[4] != u32::MAX
        };
        assert!(owned(&oracle));
        if !settle_first {
            oracle.truncate(at, 128).unwrap();
        }
        oracle.settle();
        if settle_first {
            // Settled without a rejection: the window has moved, and says so.
            assert!(matches!(oracle.truncate(at, 120), Err(KvError::WindowGone { .. })) || owned(&oracle));
        } else {
            assert!(owned(&oracle), "the page of tokens 64 to 79");
            oracle.append(at, 1).unwrap();
            oracle.close();
            oracle.settle();
        }
    }
}

/// mlx-lm#1109.
#[test]
fn a_state_returns_to_a_checkpoint_or_not_at_all() {
    let policy = CheckpointPolicy { every: Some(512), ..CheckpointPolicy::OFF };
    let mut oracle = Oracle::new(builder(vec![full(16), state()], 128).checkpoints(policy));
    let at = oracle.admit(&tokens(1, 700), 1).unwrap();
    oracle.prefill(at).unwrap();
    let truncated = oracle.truncate(at, 650).unwrap();
    assert_eq!((truncated.len, truncated.recompute), (512, 138));
    oracle.append(at, 138).unwrap();
    oracle.close();
    oracle.settle();
    oracle.pool.discard_cache();
    let refused = oracle.truncate(at, 600);
    assert!(matches!(refused, Err(KvError::StateNotSaved { position: 600, .. })), "{refused:?}");
    oracle.append(at, 1).unwrap();
    oracle.close();
    oracle.settle();
}

/// atlas#1114.
#[test]
fn drafts_evict_like_every_other_append() {
    let mut oracle = oracle(vec![full(16)], 8);
    oracle.serve(&tokens(1, 112));
    let at = oracle.admit(&tokens(2, 14), 8).unwrap();
    oracle.prefill(at).unwrap();
    assert_eq!(oracle.books().free_bytes, 0);
    oracle.append_drafts(at, 3).unwrap();
    oracle.close();
    oracle.settle();
}

/// Position 0 needs no state and no window.
#[test]
fn everything_can_be_taken_back() {
    let mut oracle = oracle(vec![full(16), window(32, 16), state()], 64);
    let at = oracle.admit(&tokens(1, 200), 1).unwrap();
    for _ in 0..5 {
        oracle.append(at, 40).unwrap();
        oracle.close();
        oracle.settle();
    }
    oracle.running[at].tokens = tokens(1, 200);
    let truncated = oracle.pool.truncate(&oracle.running[at].handle, 0).unwrap();
    assert_eq!((truncated.len, truncated.recompute, truncated.known), (0, 0, 0));
    oracle.check();
    assert_eq!(oracle.books().used_bytes, 0);
}
