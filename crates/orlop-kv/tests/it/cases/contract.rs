//! Weights, pins, keys computed beside the pool, causes of misses, changed rows.

use super::{builder, full, oracle, tokens, window};
use crate::oracle::Oracle;
use orlop_kv::{AdmissionRequest, ChainFields, KvError, KvPool, MissCause, Sequence, Tenant, Visibility};

fn fields(tenant: Tenant<'_>) -> ChainFields<'_> {
    ChainFields { tenant, ..Oracle::fields() }
}

/// Serves a prompt, and leaves it in the cache.
fn serve(pool: &mut KvPool, tenant: Tenant<'_>, prompt: &[u32]) {
    let admission = pool.admit(&AdmissionRequest::new(fields(tenant), prompt, 1)).unwrap();
    let rest = u32::try_from(prompt.len()).unwrap() - admission.hit;
    pool.append(&admission.sequence, rest).unwrap();
    let step = pool.close_step();
    pool.settle(step).unwrap();
    pool.finish(admission.sequence).unwrap();
    assert_eq!(pool.verify(), Ok(()));
}

fn probe(pool: &KvPool, tenant: Tenant<'_>, prompt: &[u32]) -> u32 {
    pool.probe(&AdmissionRequest::new(fields(tenant), prompt, 1))
}

#[test]
fn eviction_takes_from_the_tenant_above_its_share() {
    let mut pool = builder(vec![full(16)], 12).build_detached().unwrap();
    let [a, b] = [Tenant::Named("a"), Tenant::Named("b")];
    pool.set_weight("a", 3);
    pool.set_weight("b", 1);
    // Of `a` 6 blocks, the older ones; of `b` 6.
    (1..3).for_each(|family| serve(&mut pool, a, &tokens(family, 48)));
    (3..5).for_each(|family| serve(&mut pool, b, &tokens(family, 48)));
    let cached = |pool: &KvPool, tenant, from: u32| -> u32 {
        (from..from + 2).map(|family| probe(pool, tenant, &[tokens(family, 48), vec![1]].concat())).sum()
    };
    for _ in 0..4 {
        assert!(pool.evict());
    }
    assert_eq!((cached(&pool, a, 1), cached(&pool, b, 3)), (96, 32), "b has a weight of 1 in 4");
    // Without weights of their own, the older blocks go first.
    let mut pool = builder(vec![full(16)], 12).build_detached().unwrap();
    (1..3).for_each(|family| serve(&mut pool, a, &tokens(family, 48)));
    (3..5).for_each(|family| serve(&mut pool, b, &tokens(family, 48)));
    for _ in 0..4 {
        assert!(pool.evict());
    }
    assert_eq!((cached(&pool, a, 1), cached(&pool, b, 3)), (32, 96));
    // A weight that is given late counts for what is cached already.
    pool.set_weight("a", 1);
    pool.set_weight("b", 1);
    for _ in 0..4 {
        assert!(pool.evict());
    }
    assert_eq!((cached(&pool, a, 1), cached(&pool, b, 3)), (32, 32));
}

#[test]
fn a_pinned_prefix_is_not_evicted() {
    for groups in [vec![full(16)], vec![full(16), window(32, 16)]] {
        let mut pool = builder(groups, 24).events(true).build_detached().unwrap();
        let prompt = tokens(1, 49);
        serve(&mut pool, Tenant::Shared, &prompt);
        let request = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
        let pin = pool.pin(&request).unwrap();
        assert_eq!((pin.tokens(), pool.verify()), (48, Ok(())));
        let second = pool.pin(&request).unwrap();
        while pool.evict() {}
        assert_eq!((probe(&pool, Tenant::Shared, &prompt), pool.verify()), (48, Ok(())));
        drop(second);
        while pool.evict() {}
        assert_eq!(probe(&pool, Tenant::Shared, &prompt), 48);
        // Other prompts branch off before the end of the pinned one, and are evicted.
        let branch = [tokens(1, 32), tokens(2, 17)].concat();
        serve(&mut pool, Tenant::Shared, &branch);
        while pool.evict() {}
        assert_eq!(probe(&pool, Tenant::Shared, &prompt), 48);
        drop(pin);
        while pool.evict() {}
        assert_eq!((probe(&pool, Tenant::Shared, &prompt), pool.verify()), (0, Ok(())));
        let stats = pool.stats();
        assert_eq!(stats.free_bytes, stats.total_bytes);
        assert!(matches!(pool.pin(&request), Err(KvError::NotCached)));
    }
}

#[test]
fn a_pin_does_not_take_what_others_were_pledged() {
    let mut pool = builder(vec![full(16)], 4).build_detached().unwrap();
    serve(&mut pool, Tenant::Shared, &tokens(1, 48));
    // It needs one of the three cached blocks, in time.
    let held = pool.admit(&AdmissionRequest::new(Oracle::fields(), &tokens(2, 32), 1)).unwrap();
    let prompt = tokens(1, 48);
    let request = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
    assert!(matches!(pool.pin(&request), Err(KvError::OutOfPages { .. })));
    pool.append(&held.sequence, 32).unwrap();
    assert_eq!(pool.verify(), Ok(()));
    // A quota counts pins.
    let mut pool = builder(vec![full(16)], 4).build_detached().unwrap();
    let tenant = Tenant::Named("a");
    serve(&mut pool, tenant, &prompt);
    pool.set_quota("a", 2 * pool.geometry().large_page_bytes());
    let request = AdmissionRequest::new(fields(tenant), &prompt, 1);
    assert!(matches!(pool.pin(&request), Err(KvError::QuotaExceeded { .. })));
    assert_eq!(pool.verify(), Ok(()));
}

#[test]
fn a_pin_dropped_elsewhere_or_discarded_ends() {
    let mut pool = builder(vec![full(16), window(32, 16)], 24).build_detached().unwrap();
    let prompt = tokens(1, 49);
    serve(&mut pool, Tenant::Shared, &prompt);
    let request = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
    let pin = pool.pin(&request).unwrap();
    std::thread::spawn(|| drop(pin)).join().unwrap();
    while pool.evict() {}
    assert_eq!(probe(&pool, Tenant::Shared, &prompt), 0);
    serve(&mut pool, Tenant::Shared, &prompt);
    let pin = pool.pin(&request).unwrap();
    pool.discard_cache();
    assert_eq!((probe(&pool, Tenant::Shared, &prompt), pool.verify()), (0, Ok(())));
    serve(&mut pool, Tenant::Shared, &prompt);
    drop(pin);
    while pool.evict() {}
    let stats = pool.stats();
    assert_eq!((stats.free_bytes, pool.verify()), (stats.total_bytes, Ok(())));
}

#[test]
fn keys_are_computed_beside_the_pool() {
    let mut pool = builder(vec![full(16)], 8).build_detached().unwrap();
    serve(&mut pool, Tenant::Shared, &tokens(1, 48));
    let prompt = tokens(1, 49);
    let request = AdmissionRequest::new(Oracle::fields(), &prompt, 1);
    let hasher = pool.hasher();
    let hashed = std::thread::scope(|scope| scope.spawn(|| hasher.hash(request)).join()).unwrap();
    let admission = pool.admit_hashed(hashed).unwrap();
    assert_eq!((admission.hit, admission.miss), (48, None));
    let mut other = builder(vec![full(16)], 8).secret([1; 16]).build_detached().unwrap();
    assert!(matches!(other.admit_hashed(hasher.hash(request)), Err(KvError::ForeignKeys)));
    let mut same = builder(vec![full(16)], 8).build_detached().unwrap();
    assert_eq!(same.admit_hashed(hasher.hash(request)).unwrap().hit, 0);
}

/// vllm#44100, sglang#27504 and the operators' question "why no hit?".
#[test]
fn a_miss_names_another_tenant_a_failed_load_and_what_comes_late() {
    let mut oracle = oracle(vec![full(16)], 16);
    let prompt = tokens(1, 33);
    let admit = |oracle: &mut Oracle, tenant| {
        let request = AdmissionRequest::new(fields(tenant), &prompt, 1);
        oracle.pool.admit(&request).unwrap()
    };
    // Late: the tokens are scheduled, and have not settled.
    let at = oracle.admit(&prompt, 1).unwrap();
    oracle.append(at, 33).unwrap();
    oracle.close();
    assert_eq!(admit(&mut oracle, Tenant::Shared).miss, Some(MissCause::Late));
    oracle.settle_all();
    assert_eq!(admit(&mut oracle, Tenant::Shared).miss, None);
    oracle.finish(at);
    // Another tenant has them.
    let other = admit(&mut oracle, Tenant::Named("b"));
    assert_eq!((other.hit, other.miss), (0, Some(MissCause::OtherTenant)));
    let unseen = tokens(2, 33);
    let request = AdmissionRequest::new(fields(Tenant::Named("b")), &unseen, 1);
    assert_eq!(oracle.pool.admit(&request).unwrap().miss, Some(MissCause::NeverSeen));
    // A load fails.
    let at = oracle.admit(&unseen, 1).unwrap();
    oracle.begin_load(at, 32, 10).unwrap();
    let request = AdmissionRequest::new(Oracle::fields(), &unseen, 1);
    assert_eq!(oracle.pool.admit(&request).unwrap().miss, Some(MissCause::Late));
    oracle.pass_time(20);
    assert_eq!(oracle.pool.admit(&request).unwrap().miss, Some(MissCause::FailedLoad));
    assert_eq!(oracle.pool.stats().missed_tokens(MissCause::OtherTenant), 33);
}

#[test]
fn rows_that_changed_are_a_range() {
    let mut oracle = Oracle::new(builder(vec![full(16)], 16).visibility(Visibility::SameStream));
    for family in 1..5 {
        let at = oracle.admit(&tokens(family, 16), 20).unwrap();
        oracle.prefill(at).unwrap();
    }
    let changed = |oracle: &mut Oracle| {
        let Oracle { pool, running, .. } = oracle;
        let rows: Vec<&Sequence> = running.iter().map(|running| &running.handle).collect();
        pool.take_changed_rows(&rows).unwrap()
    };
    assert_eq!(changed(&mut oracle), Some(0..4));
    assert_eq!(changed(&mut oracle), None);
    oracle.append(1, 1).unwrap();
    oracle.append(2, 17).unwrap();
    assert_eq!(changed(&mut oracle), Some(1..3));
    // Inside of a block, no row changes.
    oracle.append(1, 1).unwrap();
    assert_eq!(changed(&mut oracle), None);
    oracle.close();
    oracle.settle_all();
    oracle.truncate(3, 10).unwrap();
    assert_eq!(changed(&mut oracle), Some(3..4));
    assert_eq!(oracle.pool.take_changed_rows(&[]).unwrap(), None);
}

#[test]
fn tokens_are_compared_if_asked_for() {
    for groups in [vec![full(16)], vec![full(16), window(32, 16)]] {
        let mut oracle = Oracle::new(builder(groups, 24).compare_tokens(true).match_unit(8));
        let (first, second) = (tokens(1, 61), [tokens(1, 40), tokens(2, 30)].concat());
        assert_eq!(oracle.serve(&first), 0);
        oracle.serve(&second);
        assert_eq!(oracle.serve(&second), 64);
        assert_eq!(oracle.serve(&first), 56);
    }
}
