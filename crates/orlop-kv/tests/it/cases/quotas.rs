//! Quotas of tenants.

use super::{full, oracle, tokens};
use crate::oracle::Oracle;
use orlop_kv::{AdmissionRequest, AdmissionVerdict, ChainFields, KvError, Tenant};

/// A tenant's quota bounds its blocks, not the others'.
#[test]
fn quotas_are_by_tenant() {
    let mut oracle = oracle(vec![full(16)], 16);
    oracle.pool.set_quota("a", 4 * 128);
    let prompt = tokens(1, 65);
    let named = |name| {
        let fields = ChainFields { tenant: Tenant::Named(name), ..Oracle::fields() };
        AdmissionRequest::new(fields, &prompt, 1)
    };
    assert_eq!(oracle.pool.can_admit(&named("a")), AdmissionVerdict::AboveQuota { need: 640, quota: 512 });
    let error = oracle.admit_by(&named("a")).unwrap_err();
    assert!(matches!(error, KvError::AboveQuota { quota: 512, needed: 640 }), "{error}");
    let at = oracle.admit_by(&named("b")).unwrap();
    oracle.prefill(at).unwrap();
    let short = AdmissionRequest { prompt: &prompt[..33], ..named("a") };
    let at = oracle.admit_by(&short).unwrap();
    oracle.prefill(at).unwrap();
    assert!(matches!(oracle.append(at, 32), Err(KvError::QuotaExceeded { .. })));
    // What is pledged counts before it is used: both requests together would exceed the quota.
    oracle.drop_sequence(at);
    let half = AdmissionRequest { prompt: &prompt[..32], reuse: false, ..named("a") };
    let first = oracle.admit_by(&half).unwrap();
    let second = oracle.admit_by(&half).unwrap();
    assert!(matches!(oracle.pool.can_admit(&half), AdmissionVerdict::OverQuota { .. }));
    oracle.prefill(first).unwrap();
    oracle.prefill(second).unwrap();
}

/// Cached blocks count when a sequence uses them.
#[test]
fn the_blocks_of_a_hit_count() {
    let mut oracle = oracle(vec![full(16)], 16);
    let fields = ChainFields { tenant: Tenant::Named("a"), ..Oracle::fields() };
    let prompt = tokens(1, 64);
    let request = AdmissionRequest::new(fields, &prompt, 1);
    let at = oracle.admit_by(&request).unwrap();
    oracle.prefill(at).unwrap();
    oracle.finish(at);
    oracle.pool.set_quota("a", 5 * 128);
    let two = AdmissionRequest { prompt: &prompt[..32], reuse: false, ..request };
    oracle.admit_by(&two).unwrap();
    // Three cached blocks and one to compute, besides the two that are pledged.
    let verdict = oracle.pool.can_admit(&request);
    assert_eq!(verdict, AdmissionVerdict::OverQuota { missing: 128 });
}

#[test]
fn a_fork_is_charged_to_its_tenant() {
    let mut oracle = oracle(vec![full(16)], 16);
    oracle.pool.set_quota("a", 4 * 128);
    let fields = ChainFields { tenant: Tenant::Named("a"), ..Oracle::fields() };
    let at = oracle.admit_by(&AdmissionRequest::new(fields, &tokens(1, 32), 1)).unwrap();
    oracle.prefill(at).unwrap();
    assert!(matches!(
        oracle.fork(at, 80),
        Err(KvError::QuotaExceeded { quota: 512, used: 256, needed: 384 })
    ));
    oracle.fork(at, 64).unwrap();
}
