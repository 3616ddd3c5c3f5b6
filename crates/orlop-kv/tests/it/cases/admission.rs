//! Admission, pledges, progress.

use super::{builder, full, oracle, tokens, window};
use crate::oracle::Oracle;
use orlop_kv::{AdmissionRequest, AdmissionVerdict, KvError, LayerGroup, LengthMix, MissCause, Tenant};

fn verdict(oracle: &mut Oracle, prompt: u32, max_new: u32, drafts: u32) -> AdmissionVerdict {
    let prompt = tokens(9, prompt);
    let mut request = AdmissionRequest::new(Oracle::fields(), &prompt, max_new);
    request.drafts = drafts;
    oracle.pool.can_admit(&request)
}

/// vllm#45388.
#[test]
fn what_was_admitted_goes_on_while_others_wait() {
    let mut oracle = oracle(vec![full(16)], 2048);
    let first = oracle.admit(&tokens(1, 1249 * 16), 100).unwrap();
    let ticket = oracle.begin_load(first, 1000 * 16, 1_000).unwrap();
    assert!(matches!(verdict(&mut oracle, 1600 * 16, 1, 0), AdmissionVerdict::Later { .. }));
    oracle.pool.complete(ticket).unwrap();
    oracle.check();
    oracle.append(first, 249 * 16 + 99).unwrap();
}

/// vllm#57104.
#[test]
fn the_page_of_drafts_is_pledged() {
    let mut oracle = oracle(vec![full(16)], 7);
    let request = |family, prompt: u32| (tokens(family, prompt), 16);
    let (prompt, drafts) = request(1, 64);
    let mut first = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
    first.drafts = drafts;
    let first = oracle.admit_by(&first).unwrap();
    assert!(matches!(verdict(&mut oracle, 48, 1, 16), AdmissionVerdict::Later { missing: 2, .. }));
    oracle.prefill(first).unwrap();
    oracle.append_drafts(first, 15).unwrap();
    oracle.close();
    oracle.settle();
    oracle.finish(first);
    let (prompt, drafts) = request(2, 48);
    let mut second = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
    second.drafts = drafts;
    let second = oracle.admit_by(&second).unwrap();
    oracle.prefill(second).unwrap();
    oracle.append_drafts(second, 15).unwrap();
}

/// vllm#39734.
#[test]
fn what_never_fits_is_refused_at_once() {
    let mut oracle = oracle(vec![full(16)], 4);
    oracle.admit(&tokens(1, 64), 1).unwrap();
    assert_eq!(verdict(&mut oracle, 65, 1, 0), AdmissionVerdict::Never { need: 5, pool: 4 });
    assert!(matches!(oracle.admit(&tokens(2, 65), 1), Err(KvError::NeverFits { need: 5, pool: 4 })));
}

/// vllm#49674.
#[test]
fn victims_in_flight_free_nothing_yet() {
    let mut oracle = oracle(vec![full(16)], 6);
    for family in 1..=3 {
        let at = oracle.admit(&tokens(family, 32), 1).unwrap();
        oracle.append(at, 32).unwrap();
    }
    let step = oracle.close();
    oracle.drop_sequence(2);
    oracle.drop_sequence(1);
    assert_eq!((oracle.pool.reclaimable_now(), oracle.pool.after_fence(step)), (0, 4));
    let AdmissionVerdict::Later { missing: 4, after, .. } = verdict(&mut oracle, 64, 1, 0) else { panic!() };
    assert_eq!(after, Some(step), "no third victim is needed");
    oracle.settle();
    assert_eq!(verdict(&mut oracle, 64, 1, 0), AdmissionVerdict::Now { hit: 0 });
}

/// pegainfer's admission page.
#[test]
fn the_last_token_is_not_written() {
    for (max_new, pages) in [(1, 1), (2, 2)] {
        let mut oracle = oracle(vec![full(16)], pages);
        assert_eq!(verdict(&mut oracle, 16, max_new, 0), AdmissionVerdict::Now { hit: 0 });
        let need = u64::from(pages) + 1;
        let never = AdmissionVerdict::Never { need, pool: u64::from(pages) };
        assert_eq!(verdict(&mut oracle, 16, max_new + 16, 0), never);
    }
}

/// pegainfer#291.
#[test]
fn a_row_has_the_pages_of_its_tokens_and_no_more() {
    let mut oracle = oracle(vec![full(16)], 4);
    let at = oracle.admit(&tokens(1, 16), 17).unwrap();
    oracle.prefill(at).unwrap();
    let handle = &oracle.running[at].handle;
    let mut row = [7; 4];
    assert_eq!(oracle.pool.write_block_table(handle, 0, 0, u32::MAX, &mut row).unwrap(), 1);
    assert_eq!(row[1..], [u32::MAX; 3]);
    let (mut indptr, mut indices, mut last) = ([9; 2], [9; 4], [9; 1]);
    let batch = [handle];
    let count = oracle.pool.write_flashinfer(&batch, 0, 0, &mut indptr, &mut indices, &mut last).unwrap();
    assert_eq!((count, indptr, last), (1, [0, 1], [16]));
    let mut slots = [0; 4];
    oracle.pool.write_slot_mapping(handle, 0, 0, 12..16, &mut slots).unwrap();
    assert_eq!(slots, [12, 13, 14, 15].map(|slot| u64::from(row[0]) * 16 + slot));
    assert!(oracle.pool.write_slot_mapping(handle, 0, 0, 12..17, &mut slots).is_err());
}

/// atlas#375.
#[test]
fn one_failure_is_one_request() {
    let mut oracle = oracle(vec![full(16)], 15);
    for family in 1..=8 {
        let at = oracle.admit(&tokens(family, 16), 1).unwrap();
        oracle.prefill(at).unwrap();
    }
    let failed: Vec<usize> = (0..8).filter(|&at| oracle.append(at, 1).is_err()).collect();
    assert_eq!(failed, [7]);
    oracle.close();
    oracle.settle();
}

/// tt-metal#47488.
#[test]
fn windows_are_counted_by_their_chunk() {
    let mut groups = vec![full(64)];
    groups.extend((0..5).map(|_| window(1024, 64)));
    let (prompt, pages) = (32_768, 512 + 5 * 17 + 5 * 32);
    let mut oracle = oracle(groups, pages + 6);
    let prompt = tokens(1, prompt);
    let mut request = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
    let AdmissionVerdict::Never { need, .. } = oracle.pool.can_admit(&request) else { panic!() };
    assert_eq!(need, 6 * 512, "all at once, every layer needs every token");
    request.chunk = Some(1024);
    assert_eq!(oracle.pool.can_admit(&request), AdmissionVerdict::Now { hit: 0 });
    let at = oracle.admit_by(&request).unwrap();
    for _ in 0..32 {
        oracle.pool.append(&oracle.running[at].handle, 1024).unwrap();
        let step = oracle.pool.close_step();
        oracle.pool.settle(step).unwrap();
    }
    let other = tokens(2, 32_768);
    let AdmissionVerdict::Later { group, .. } =
        oracle.pool.can_admit(&AdmissionRequest { prompt: &other, ..request })
    else {
        panic!("a second request of this size does not fit");
    };
    assert_eq!(&*group, "full");
    oracle.check();
}

/// mlxcel#215.
#[test]
fn indices_are_absolute() {
    let mut oracle = oracle(vec![window(32, 16)], 8);
    let prompt = tokens(1, 160);
    let mut request = AdmissionRequest::new(Oracle::fields(), &prompt, 20);
    request.chunk = Some(16);
    let at = oracle.admit_by(&request).unwrap();
    while oracle.running[at].scheduled < 160 {
        oracle.append(at, 16).unwrap();
        oracle.close();
        oracle.settle();
    }
    oracle.append(at, 5).unwrap();
    oracle.close();
    oracle.truncate(at, 161).unwrap();
    oracle.settle();
    let mut row = [0; 11];
    assert_eq!(oracle.pool.write_block_table(&oracle.running[at].handle, 0, 0, 99, &mut row).unwrap(), 11);
    assert!(row[..7].iter().all(|&page| page == 99) && row[10] != 99);
    let mut empty = [7; 1];
    oracle.pool.write_cumulative_lengths(&[], &mut empty).unwrap();
    assert_eq!(empty, [0]);
    oracle.append(at, 1).unwrap();
    oracle.close();
    oracle.settle();
}

/// vllm#40691.
#[test]
fn capacity_is_what_fits() {
    let mut oracle = oracle(vec![full(16), window(64, 16)], 3000);
    let mix = [LengthMix { prompt: 100, max_new: 61, weight: 1 }];
    let capacity = oracle.pool.capacity(&mix);
    let mut tokens_in = 0;
    for family in 1.. {
        let prompt = tokens(family, 100);
        match oracle.pool.admit(&AdmissionRequest::new(Oracle::fields(), &prompt, 61)) {
            Ok(admission) => std::mem::forget(admission),
            Err(_) => break,
        }
        tokens_in += 160;
    }
    assert!(capacity.abs_diff(tokens_in) * 100 <= capacity, "{capacity} promised, {tokens_in} admitted");
}

/// Short requests share large pages: eight blocks of the first group are one large page.
#[test]
fn capacity_rounds_no_request_up() {
    let groups = vec![full(16), LayerGroup::full("large", 1, 8 * crate::oracle::ENTRY)];
    let mut oracle = oracle(groups, 90);
    let capacity = oracle.pool.capacity(&[LengthMix { prompt: 16, max_new: 1, weight: 1 }]);
    let admitted = (1..).take_while(|&family| oracle.admit(&tokens(family, 16), 1).is_ok()).count();
    assert_eq!((capacity, admitted), (80 * 16, 80));
}

/// What is pledged cannot be taken by others, whatever these do.
#[test]
fn a_pledge_is_kept() {
    let mut oracle = oracle(vec![full(16), window(32, 16)], 24);
    let first = oracle.admit(&tokens(1, 16), 145).unwrap();
    oracle.prefill(first).unwrap();
    let second = oracle.admit(&tokens(2, 16), 1).unwrap();
    oracle.prefill(second).unwrap();
    while oracle.append(second, 16).is_ok() {
        oracle.close();
        oracle.settle();
    }
    while oracle.running[first].scheduled < 160 {
        oracle.append(first, 16).expect("a pledged page");
        oracle.close();
        oracle.settle();
    }
}

/// The longest hit pins a block that it shares with the rest: 48 tokens in two blocks, and one for the copy.
#[test]
fn a_request_that_fits_without_its_hit_is_admitted() {
    for (pages, quota, hit) in [(2, None, 32), (1, None, 0), (8, Some(2 * 256), 32), (8, Some(256), 0)] {
        let mut oracle = oracle(vec![full(32)], pages);
        let prompt = tokens(1, if hit == 0 { 32 } else { 64 });
        let fields = orlop_kv::ChainFields { tenant: Tenant::Named("a"), ..Oracle::fields() };
        let request = AdmissionRequest::new(fields, &prompt, 1);
        if let Some(bytes) = quota {
            oracle.pool.set_quota("a", bytes);
        }
        for hit in [0, hit] {
            let at = oracle.admit_by(&request).unwrap();
            assert_eq!(oracle.running[at].hit, hit);
            oracle.prefill(at).unwrap();
            oracle.finish(at);
        }
        assert!(oracle.books().missed_tokens(MissCause::NoRoom) > 0);
    }
}

/// A fork computes like its parent: the steps in flight and the last boundary keep blocks of its window, too.
#[test]
fn a_fork_is_pledged_the_blocks_of_its_window() {
    let mut oracle = Oracle::new(builder(vec![window(32, 4)], 64).steps_in_flight(3));
    let prompt = tokens(1, 32);
    let mut request = AdmissionRequest::new(Oracle::fields(), &prompt, 200);
    request.drafts = 7;
    request.chunk = Some(8);
    let parent = oracle.admit_by(&request).unwrap();
    oracle.prefill(parent).unwrap();
    let fork = oracle.fork(parent, 200).unwrap();
    oracle.drop_sequence(parent);
    let fork = fork - 1;
    // Others take what is not pledged.
    let other = oracle.admit(&tokens(2, 4), 1).unwrap();
    while oracle.append(other, 4).is_ok() {}
    oracle.close();
    oracle.settle_all();
    while oracle.running[fork].scheduled + 8 <= 200 {
        oracle.append(fork, 8).expect("a pledged page");
        oracle.close();
        if oracle.steps_in_flight() > 3 {
            oracle.settle();
        }
    }
}

/// The steps of a prompt need more blocks of a window than those behind it: when the prompt has settled,
/// others are admitted with the difference.
#[test]
fn a_window_is_pledged_the_steps_of_a_prompt_until_they_have_settled() {
    for drafts in [0, 15] {
        let mut oracle = oracle(vec![window(32, 16)], 20);
        let prompt = tokens(1, 100);
        let mut request = AdmissionRequest::new(Oracle::fields(), &prompt, 400);
        request.drafts = drafts;
        let first = oracle.admit_by(&request).unwrap();
        assert!(matches!(verdict(&mut oracle, 32, 60, 0), AdmissionVerdict::Later { missing: 3, .. }));
        oracle.prefill(first).unwrap();
        oracle.close();
        oracle.settle();
        let second = oracle.admit(&tokens(2, 100), 60).unwrap();
        // Both can be generated to their ends.
        oracle.prefill(second).unwrap();
        for _ in 0..59 {
            oracle.append(first, 1).unwrap();
            oracle.append(second, 1).unwrap();
            oracle.close();
            oracle.settle();
        }
        for _ in 0..20 {
            oracle.append_drafts(first, drafts).unwrap();
            oracle.close();
            oracle.settle();
        }
    }
}

#[test]
fn without_a_cache_prompts_have_no_keys() {
    let mut pool = builder(vec![full(16), window(32, 16)], 64).prefix_cache(false).build_detached().unwrap();
    let prompt = tokens(1, 100);
    let request = AdmissionRequest::new(Oracle::fields(), &prompt, 20);
    assert_eq!((pool.prefix_keys(&request), pool.probe(&request)), (vec![], 0));
    let hashed = pool.hasher().hash(request);
    for admission in [pool.admit(&request).unwrap(), pool.admit_hashed(hashed).unwrap()] {
        assert_eq!((admission.hit, admission.miss), (0, Some(MissCause::NoReuse)));
        let sequence = admission.sequence;
        pool.append(&sequence, 100).unwrap();
        let error = pool.push_tokens(&sequence, 99, &[1]);
        assert!(matches!(error, Err(KvError::NotNextToken { position: 99, known: 100 })), "{error:?}");
        pool.push_tokens(&sequence, 100, &[1]).unwrap();
        pool.append_drafts(&sequence, 3).unwrap();
        pool.push_tokens(&sequence, 101, &[1, 2]).unwrap();
        let step = pool.close_step();
        assert_eq!(pool.truncate(&sequence, 102).unwrap().known, 102);
        pool.settle(step).unwrap();
        pool.finish(sequence).unwrap();
    }
    assert_eq!(pool.verify(), Ok(()));
}
