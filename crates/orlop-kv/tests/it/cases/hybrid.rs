//! Hybrid models: what a hit needs of each group, and what is kept for it.

use super::{branch, builder, full, oracle, state, tokens, window};
use crate::oracle::{ENTRY, Oracle};
use orlop_kv::{AdmissionRequest, CheckpointPolicy, KvGeometry, KvPool, LayerGroup, MissCause};

const EVERY_512: CheckpointPolicy = CheckpointPolicy { prompt_end: true, junctions: true, every: Some(512) };

/// Serves prompts without an oracle, in steps that end at checkpoints, and returns the hit.
fn serve(pool: &mut KvPool, prompt: &[u32], drafts: u32) -> u32 {
    let mut request = AdmissionRequest::new(Oracle::fields(), prompt, 1);
    request.drafts = drafts;
    request.chunk = Some(2048);
    let admission = pool.admit(&request).unwrap();
    let mut left = u32::try_from(prompt.len()).unwrap() - admission.hit;
    while left > 0 {
        let next = pool.tokens_to_checkpoint(&admission.sequence).unwrap().unwrap_or(left);
        let tokens = next.min(left).min(2048);
        pool.append(&admission.sequence, tokens).unwrap();
        let step = pool.close_step();
        pool.settle(step).unwrap();
        left -= tokens;
    }
    if drafts > 0 {
        let len = u32::try_from(prompt.len()).unwrap();
        for accepted in [0, drafts, 1] {
            let (before, _) = pool.len(&admission.sequence).unwrap();
            if pool.append_drafts(&admission.sequence, drafts).is_err() {
                break;
            }
            let step = pool.close_step();
            pool.truncate(&admission.sequence, before + 1 + accepted.min(drafts)).unwrap();
            pool.settle(step).unwrap();
        }
        let _ = pool.truncate(&admission.sequence, len);
    }
    pool.finish(admission.sequence).unwrap();
    assert_eq!(pool.verify(), Ok(()));
    admission.hit
}

/// vllm#45238; with the end of the prompt and the junction alone, the third request hits.
#[test]
fn a_junction_becomes_a_checkpoint_for_the_third_request() {
    for (policy, second) in [(EVERY_512, 1024), (CheckpointPolicy::default(), 0)] {
        let mut pool = builder(vec![full(528), state()], 64).checkpoints(policy).build_detached().unwrap();
        let hits: Vec<u32> = (1..=4).map(|at| serve(&mut pool, &branch(at, 1500, 2200), 0)).collect();
        assert_eq!(hits, [0, second, 1488, 1488]);
    }
}

/// vllm#40696, #53749.
#[test]
fn a_prefix_shorter_than_a_block_is_reused() {
    let mut oracle = oracle(vec![full(528), state()], 64);
    let hits: Vec<u32> = (1..=3).map(|at| oracle.serve(&branch(at, 480, 700))).collect();
    assert_eq!(hits, [0, 0, 480]);
    let stats = oracle.books();
    assert_eq!(stats.missed_tokens(MissCause::NoCheckpoint), 700);
}

/// vllm#48401.
#[test]
fn a_block_longer_than_the_context_does_not_prevent_reuse() {
    let mut pool = builder(vec![full(8320), state()], 64).build_detached().unwrap();
    assert_eq!([serve(&mut pool, &tokens(1, 3000), 0), serve(&mut pool, &tokens(1, 3000), 0)], [0, 2992]);
}

/// vllm#48435.
#[test]
fn tails_of_windows_are_not_the_first_to_go() {
    let groups = || vec![LayerGroup::full("full", 10, ENTRY), LayerGroup::window("window", 50, ENTRY, 1024)];
    let needed = 10 * (4000 * 10 + 1040 * 50) * ENTRY;
    // The last session has a step of 2,048 tokens in its window layers besides.
    let bytes = needed + 2 * 2048 * 50 * ENTRY;
    let mut pool = KvPool::builder(KvGeometry::new(groups()).unwrap()).bytes(bytes).build_detached().unwrap();
    for round in 0..3 {
        let hits: u32 = (0..10).map(|session| serve(&mut pool, &tokens(session, 4000), 0)).sum();
        let expected = if round == 0 { 0 } else { 39_200 };
        assert!(hits >= expected, "round {round}: {hits} of 40,000");
    }
}

/// vllm#42948, vllm-ascend#16270. A window in every layer, and entries for 4 and for 128 tokens.
#[test]
fn groups_with_many_ratios_keep_what_they_need() {
    let groups = vec![
        LayerGroup::window("window", 43, 1024, 128),
        LayerGroup::compressed("c4", 21, 1024, 4).with_arena("indexer", 256).with_block_tokens(64),
        LayerGroup::compressed("c128", 20, 1024, 128).with_block_tokens(128),
        LayerGroup::state("tail", 41, 4096).with_optional(),
    ];
    let geometry = KvGeometry::new(groups).unwrap();
    let (pages, needed) = (geometry.large_page_bytes(), geometry.needed_bytes(32_768, 0));
    let mut pool = KvPool::builder(geometry).bytes(2 << 30).build_detached().unwrap();
    let prompt = tokens(1, 32_768);
    let admission = pool.admit(&AdmissionRequest::new(Oracle::fields(), &prompt, 1)).unwrap();
    for _ in 0..16 {
        pool.append(&admission.sequence, 2048).unwrap();
        let step = pool.close_step();
        pool.settle(step).unwrap();
    }
    let held = pool.stats().held_bytes;
    assert!(held * 100 <= needed * 104, "{held} B held in pages of {pages} B, {needed} B needed");
    drop(admission);
    assert_eq!(serve(&mut pool, &tokens(2, 2048), 0), 0);
    assert!(serve(&mut pool, &tokens(2, 2048), 0) >= 1536);
}

/// sglang#35515, llama.cpp#24055, xinfer#413. `verify` fails if something is cached that no hit can reach.
#[test]
fn a_branch_without_its_tail_is_not_cached_at_all() {
    for tail in [window(64, 16), state()] {
        let mut oracle = oracle(vec![full(16), tail], 64);
        oracle.serve(&tokens(1, 400));
        let cached = oracle.books().cached_bytes;
        assert!(cached >= 24 * 128);
        while oracle.pool.evict() {
            oracle.check();
        }
        assert_eq!(oracle.books().cached_bytes, 0);
    }
    // The tail goes, and the branch with it: one candidate, nothing left.
    let mut oracle = oracle(vec![full(16), window(64, 16)], 64);
    oracle.serve(&tokens(1, 385));
    assert!(oracle.pool.evict());
    assert_eq!(oracle.books().cached_bytes, 0);
}

/// sglang#34870.
#[test]
fn the_live_tail_reaches_back_from_the_last_boundary() {
    let groups = vec![full(64), window(127, 64)];
    let mut oracle = Oracle::new(builder(groups, 64).match_unit(64));
    let at = oracle.admit(&tokens(1, 1023), 2).unwrap();
    while oracle.running[at].scheduled < 1024 {
        oracle.append(at, 32).unwrap();
        oracle.close();
        oracle.settle();
    }
    let mut row = [0; 16];
    oracle.pool.write_block_table(&oracle.running[at].handle, 1, 0, u32::MAX, &mut row).unwrap();
    assert_eq!(row.iter().position(|&page| page != u32::MAX), Some(832 / 64));
    oracle.finish(at);
    assert_eq!(oracle.serve(&tokens(1, 1023)), 960);
}

/// sglang#8649.
#[test]
fn each_group_keeps_by_its_own_rule() {
    let chunked = LayerGroup::chunked("chunked", 1, ENTRY, 512);
    let mut oracle = oracle(vec![full(16), window(1024, 16), chunked], 600);
    let at = oracle.admit(&tokens(1, 3000), 1).unwrap();
    oracle.prefill(at).unwrap();
    let first = |group| {
        let mut row = [u32::MAX; 188];
        oracle.pool.write_block_table(&oracle.running[at].handle, group, 0, u32::MAX, &mut row).unwrap();
        row.iter().position(|&page| page != u32::MAX).unwrap() * 16
    };
    // Boundaries are at multiples of 16: the last one is 2,992.
    assert_eq!([first(0), first(1), first(2)], [0, 2992 - 1024 + 16 - 16, 2560]);
}

/// tt-xla#5834.
#[test]
fn a_long_window_costs_what_its_tokens_cost() {
    let mut oracle = oracle(vec![window(1024, 16)], 8);
    let prompt = tokens(1, 128);
    let at = oracle.admit(&prompt, 1).unwrap();
    oracle.append(at, 40).unwrap();
    assert_eq!(oracle.books().used_bytes, 3 * 128);
    let verdict = oracle.pool.can_admit(&AdmissionRequest::new(Oracle::fields(), &prompt, 2));
    assert!(matches!(verdict, orlop_kv::AdmissionVerdict::Never { need: 9, pool: 8 }), "{verdict:?}");
}

/// Layers that share another layer's memory.
#[test]
fn shared_layers_are_counted_once() {
    let alone = KvGeometry::new(vec![LayerGroup::full("full", 3, 2048)]).unwrap();
    let shared = KvGeometry::new(vec![LayerGroup::full("full", 3, 2048).with_sharing(20)]).unwrap();
    assert_eq!(alone.needed_bytes(1000, 1), shared.needed_bytes(1000, 1));
    assert_eq!(alone.large_page_bytes(), shared.large_page_bytes());
    assert!(shared.arena(0, 3, 0).is_none(), "the table is the owner's");
}

/// vllm#44082, sglang#32459.
#[test]
fn drafts_do_not_cost_reuse() {
    let hits = |drafts| {
        let groups = vec![full(16), window(48, 16), state()];
        let mut pool = builder(groups, 4000).build_detached().unwrap();
        let prompts = (0..40_u32).map(|at| branch(at % 7, 100 * (1 + at % 5), 900));
        prompts.map(|prompt| serve(&mut pool, &prompt, drafts)).sum::<u32>()
    };
    let (without, with) = (hits(0), hits(3));
    assert!(
        without > 10_000 && without.abs_diff(with) <= without / 100,
        "{without} without, {with} with drafts"
    );
}

/// A step that ends at a second boundary leaves the live state there: the next step writes to a copy.
#[test]
fn a_live_state_in_the_cache_is_not_overwritten() {
    for groups in [vec![full(528), state()], vec![state()]] {
        let mut oracle = Oracle::new(builder(groups, 64).checkpoints(EVERY_512));
        let at = oracle.admit(&tokens(1, 1041), 1).unwrap();
        oracle.append(at, 1024).unwrap();
        oracle.close();
        oracle.settle();
        assert_eq!(oracle.books().boundaries, 1);
        oracle.append(at, 16).unwrap();
        oracle.close();
        oracle.settle();
        let second = oracle.admit(&[tokens(1, 1024), tokens(2, 40)].concat(), 1).unwrap();
        assert_eq!(oracle.running[second].hit, 1024);
        // The oracle reads the state that the hit ends with.
        oracle.prefill(second).unwrap();
    }
}

/// A checkpoint that is only a filler goes before anything else, and takes free pages only.
#[test]
fn fillers_go_first() {
    let policy = CheckpointPolicy { every: Some(16), ..CheckpointPolicy::default() };
    let mut oracle = Oracle::new(builder(vec![full(16), state()], 24).checkpoints(policy));
    oracle.serve(&tokens(1, 97));
    let before = oracle.books();
    assert_eq!(before.boundaries, 6);
    // Five fillers hold a state each: they make room for the next prompt.
    oracle.serve(&tokens(2, 97));
    assert_eq!(oracle.serve(&tokens(1, 97)), 96, "the end of the prompt was evicted for a filler");
}
