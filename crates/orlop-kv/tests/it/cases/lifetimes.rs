//! Leaks, aborts, frees under running work.

use super::{branch, builder, free, full, oracle, state, tokens, window};
use crate::oracle::Oracle;
use orlop_kv::{AdmissionRequest, KvError};

/// vllm#46283.
#[test]
fn a_load_that_is_lost_holds_its_pages_until_its_lease_ends() {
    let mut oracle = oracle(vec![full(16)], 16);
    let at = oracle.admit(&tokens(1, 128), 1).unwrap();
    let ticket = oracle.begin_load(at, 128, 5_000).unwrap();
    oracle.drop_sequence(at);
    assert_eq!((free(&mut oracle), oracle.books().in_flight_bytes), (8, 8 * 128));
    assert!(oracle.admit(&tokens(2, 16 * 9), 1).is_err(), "a page under a ticket was handed out");
    oracle.pool.set_time(4_999);
    assert_eq!(free(&mut oracle), 8);
    oracle.pool.set_time(6_000);
    assert_eq!(free(&mut oracle), 16);
    assert!(matches!(oracle.pool.complete(ticket), Err(KvError::TicketClosed(_))));
    let stats = oracle.books();
    assert_eq!((stats.late_completions, stats.expired_leases, stats.cached_units), (1, 1, 0));
}

/// vllm#44100, Mooncake#3599.
#[test]
fn probes_pin_nothing_and_keep_nothing_alive() {
    let mut oracle = oracle(vec![full(16)], 101);
    oracle.serve(&tokens(1, 1600));
    oracle.serve(&tokens(2, 16));
    let prompt = tokens(1, 1600);
    let request = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
    for _ in 0..1_000 {
        assert_eq!(oracle.pool.probe(&request), 1584);
    }
    // The chain was used before the other one: it goes first, probed or not.
    for left in (0..99).rev() {
        assert!(oracle.pool.evict());
        assert_eq!(oracle.pool.probe(&request), 16 * left.min(99) + if left == 99 { 0 } else { 16 });
    }
    assert!(oracle.pool.evict());
    assert_eq!(oracle.pool.probe(&request), 0);
    assert_eq!(oracle.books().cached_units, 1);
}

/// TensorRT-LLM#15018.
#[test]
fn blocks_of_a_sequence_that_was_dropped_before_they_settled_are_never_found() {
    let mut oracle = oracle(vec![full(16)], 3);
    let at = oracle.admit(&tokens(1, 48), 1).unwrap();
    oracle.append(at, 48).unwrap();
    let step = oracle.close();
    oracle.drop_sequence(at);
    assert_eq!((oracle.pool.reclaimable_now(), oracle.pool.after_fence(step)), (0, 3));
    oracle.settle();
    assert_eq!((free(&mut oracle), oracle.books().cached_units), (3, 0));
    assert_eq!(oracle.serve(&tokens(1, 48)), 0);
}

/// vllm#52211.
#[test]
fn a_store_outlives_its_sequence() {
    let mut oracle = oracle(vec![full(16)], 4);
    let at = oracle.admit(&tokens(1, 64), 1).unwrap();
    oracle.prefill(at).unwrap();
    let (ticket, pages) = oracle.pool.begin_store(&oracle.running[at].handle, 64, 1_000).unwrap();
    assert_eq!(pages.len(), 4);
    oracle.drop_sequence(at);
    // The pages are still read: none of them can be evicted.
    assert!(oracle.admit(&tokens(2, 16), 1).is_err());
    oracle.pool.complete(ticket).unwrap();
    oracle.check();
    let at = oracle.admit(&tokens(2, 64), 1).unwrap();
    oracle.prefill(at).unwrap();
}

/// vllm#45704.
#[test]
fn a_store_takes_settled_tokens_only() {
    let mut oracle = oracle(vec![full(16)], 4);
    let at = oracle.admit(&tokens(1, 32), 1).unwrap();
    oracle.append(at, 32).unwrap();
    oracle.close();
    let refused = oracle.pool.begin_store(&oracle.running[at].handle, 32, 1_000);
    assert!(matches!(refused, Err(KvError::BeyondEnd { .. })));
    oracle.settle();
    assert!(oracle.pool.begin_store(&oracle.running[at].handle, 32, 1_000).is_ok());
}

/// unified-cache-management#1053.
#[test]
fn a_window_returns_each_page_once() {
    let mut oracle = oracle(vec![window(64, 16)], 20);
    let at = oracle.admit(&tokens(1, 200), 1).unwrap();
    for _ in 0..20 {
        oracle.append(at, 10).unwrap();
        oracle.close();
        oracle.settle();
    }
    let mut row = [0; 16];
    let entries =
        oracle.pool.write_block_table(&oracle.running[at].handle, 0, 0, u32::MAX, &mut row).unwrap();
    let owned = row[..entries].iter().filter(|&&page| page != u32::MAX).count() as u64;
    assert_eq!((entries, owned), (13, 5));
    let before = free(&mut oracle) + oracle.books().cached_bytes / 128;
    oracle.drop_sequence(at);
    let after = free(&mut oracle) + oracle.books().cached_bytes / 128;
    assert!(after - before <= owned);
    oracle.pool.discard_cache();
    assert_eq!(free(&mut oracle), 20);
}

/// omlx#2180.
#[test]
fn what_was_restored_stays_when_an_extension_fails() {
    let mut oracle = oracle(vec![full(16)], 45);
    let prompt = tokens(1, 640);
    let at = oracle.admit(&prompt, 1).unwrap();
    let ticket = oracle.begin_load(at, 640, 1_000).unwrap();
    oracle.pool.complete(ticket).unwrap();
    let error = oracle.append(at, 160).unwrap_err();
    assert!(matches!(error, KvError::OutOfPages { needed: 10, available: 5, .. }), "{error}");
    assert_eq!(oracle.pool.len(&oracle.running[at].handle).unwrap(), (640, 640));
    oracle.append(at, 80).unwrap();
    oracle.close();
    oracle.settle();
}

/// vllm#47282, vllm#45096. With a state, every page is written in every step.
#[test]
fn a_load_waits_for_the_steps_that_still_use_a_page() {
    let mut paged = oracle(vec![full(16)], 4);
    let first = paged.admit(&tokens(1, 64), 1).unwrap();
    paged.append(first, 64).unwrap();
    let step = paged.close();
    paged.drop_sequence(first);
    let refused = paged.admit(&tokens(2, 64), 1).unwrap_err();
    assert!(matches!(refused, KvError::OutOfPages { needed: 4, available: 0, .. }), "{refused}");
    let prompt = tokens(2, 64);
    let request = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
    let orlop_kv::AdmissionVerdict::Later { missing: 4, after: Some(fence), .. } =
        paged.pool.can_admit(&request)
    else {
        panic!("{:?}", paged.pool.can_admit(&request));
    };
    assert_eq!(fence, step);
    paged.settle();
    let second = paged.admit(&prompt, 1).unwrap();
    let ticket = paged.begin_load(second, 64, 1_000).unwrap();
    paged.pool.complete(ticket).unwrap();

    let mut states = oracle(vec![state()], 2);
    let first = states.admit(&tokens(1, 64), 1).unwrap();
    states.append(first, 40).unwrap();
    states.close();
    states.drop_sequence(first);
    assert!(states.admit(&tokens(2, 64), 1).is_err(), "the state's page is written by the step in flight");
    states.settle();
    assert!(states.admit(&tokens(2, 64), 1).is_ok());
}

/// sglang#26728.
#[test]
fn a_page_under_a_ticket_is_not_evicted() {
    let mut oracle = oracle(vec![full(16)], 8);
    let at = oracle.admit(&tokens(1, 64), 1).unwrap();
    oracle.prefill(at).unwrap();
    let (ticket, _) = oracle.pool.begin_store(&oracle.running[at].handle, 64, 1_000).unwrap();
    oracle.finish(at);
    assert_eq!(oracle.books().in_flight_bytes, 4 * 128);
    oracle.serve(&tokens(2, 64));
    oracle.serve(&tokens(3, 64));
    assert_eq!(oracle.books().in_flight_bytes, 4 * 128);
    oracle.pool.cancel(ticket).unwrap();
    oracle.check();
    assert_eq!(oracle.books().in_flight_bytes, 0);
}

/// vllm-omni#6442.
#[test]
fn a_discarded_cache_is_not_hit_and_says_so() {
    let mut oracle = Oracle::new(builder(vec![full(16), state()], 16).events(true));
    oracle.serve(&tokens(1, 64));
    assert_eq!(oracle.serve(&tokens(1, 64)), 48);
    oracle.pool.take_events();
    oracle.pool.discard_cache();
    oracle.check();
    let removed = oracle.pool.take_events();
    let is_discarded = |event: &orlop_kv::KvEvent| {
        use orlop_kv::{KvEvent::*, RemovalReason::Discarded};
        matches!(
            event,
            UnitsRemoved { reason: Discarded, .. }
                | BoundaryRemoved { reason: Discarded, .. }
                | BlockRemoved { reason: Discarded, .. }
        )
    };
    assert!(removed.iter().all(is_discarded) && removed.len() >= 2, "{removed:?}");
    assert_eq!(free(&mut oracle), 16);
    assert_eq!(oracle.serve(&tokens(1, 64)), 0);
}

/// TensorRT-LLM#12306.
#[test]
fn a_shared_partial_block_is_copied_before_it_is_written() {
    let mut oracle = Oracle::new(builder(vec![full(32)], 16).match_unit(4));
    let first = oracle.admit(&tokens(0, 40), 30).unwrap();
    oracle.prefill(first).unwrap();
    let second = oracle.admit(&branch(1, 36, 48), 8).unwrap();
    assert_eq!(oracle.running[second].hit, 36);
    oracle.append(second, 12).unwrap();
    assert_eq!(oracle.pool.copies().len(), 1);
    assert_eq!(oracle.pool.copies()[0].tokens, 4);
    oracle.close();
    oracle.settle();
    let forks: Vec<usize> = (0..3).map(|_| oracle.fork(first, 60).unwrap()).collect();
    for (at, fork) in (0..).zip(forks) {
        oracle.running[fork].tokens.push(9_000 + at);
        oracle.append(fork, 1).unwrap();
    }
    // The owner goes on in place.
    oracle.append(first, 1).unwrap();
    assert_eq!(oracle.pool.copies().len(), 3);
    for _ in 0..8 {
        oracle.close();
        oracle.settle();
        for at in 0..oracle.running.len() {
            oracle.append(at, 1).unwrap();
        }
    }
}

/// A sequence's own cached block is no reason to refuse what it was pledged: the cache gives it up.
#[test]
fn a_cached_block_is_written_in_place_rather_than_not_at_all() {
    for groups in [vec![full(32)], vec![window(64, 32)], vec![full(32), window(64, 32)]] {
        let pages = u32::try_from(groups.len()).unwrap();
        let mut oracle = oracle(groups, 2 * pages);
        // Another sequence holds the other half of the pool.
        let other = oracle.admit(&tokens(2, 32), 1).unwrap();
        oracle.append(other, 32).unwrap();
        let at = oracle.admit(&tokens(1, 33)[..32], 1).unwrap();
        oracle.append(at, 32).unwrap();
        oracle.close();
        oracle.settle();
        let asked = AdmissionRequest { recompute: 1, ..AdmissionRequest::new(Oracle::fields(), &[], 1) };
        let prompts = [1, 2].map(|family| tokens(family, 33));
        let hits = |oracle: &Oracle| {
            [0, 1].map(|at| oracle.pool.probe(&AdmissionRequest { prompt: &prompts[at], ..asked }))
        };
        oracle.truncate(at, 8).unwrap();
        let before = hits(&oracle);
        assert!(before[0] >= 16 && before[1] >= 16);
        oracle.append(at, 24).unwrap();
        assert!(oracle.pool.copies().is_empty());
        assert_eq!(hits(&oracle)[0], 0, "tokens that are overwritten");
        assert_eq!(hits(&oracle)[1], before[1], "what others have cached");
        oracle.close();
        oracle.settle();
        oracle.push_tokens(at);
        oracle.finish(at);
    }
}
