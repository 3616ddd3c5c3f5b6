//! `counters.last`, `counters.close`: exactly one call returns `Unused`, and its thread may destroy what the
//! others used. Also: live sums are never negative, and exact while no thread counts.

use crate::owner::{Owner, count_in, count_out, in_slot};
use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::thread;
use orlop_sync::{OwnerState, ShardedCounters, thread_slot::OWNED};

/// A slot that several threads may use.
const SHARED: usize = OWNED;

#[test]
fn blocks_outlive_the_last_handle() {
    loom::model(|| {
        let owner = Owner::new();
        count_in(owner.counters(), 0);
        count_in(owner.counters(), 1);
        let returners: Vec<_> = [0, 1]
            .map(|slot| {
                let owner = Arc::clone(&owner);
                thread::spawn(move || owner.return_block(slot))
            })
            .into();
        owner.close();
        for returner in returners {
            returner.join().unwrap();
        }
        assert_eq!(owner.destroyed.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn blocks_returned_in_another_slot_count_too() {
    loom::model(|| {
        let owner = Owner::new();
        count_in(owner.counters(), 0);
        count_in(owner.counters(), 0);
        let returner = {
            let owner = Arc::clone(&owner);
            thread::spawn(move || owner.return_block(SHARED))
        };
        owner.close();
        owner.return_block(SHARED);
        returner.join().unwrap();
        assert_eq!(owner.destroyed.load(Ordering::Relaxed), 1);
    });
}

/// A block is counted in in one slot and out in another, while a third thread reads.
fn reads_while_a_block_passes(made_before: u64) {
    let counters = Arc::new(ShardedCounters::<()>::new(true));
    for _ in 0..made_before {
        for index in [0, 1] {
            count_in(&counters, index);
            assert_eq!(in_slot(index, || count_out(&counters)), OwnerState::InUse);
        }
    }
    let reader = {
        let counters = Arc::clone(&counters);
        thread::spawn(move || {
            let seen = counters.totals().all;
            assert!(seen.allocations >= seen.frees);
            assert!(seen.allocated_bytes >= seen.freed_bytes);
            assert!(seen.live_bytes <= 64);
        })
    };
    count_in(&counters, 0);
    assert_eq!(in_slot(1, || count_out(&counters)), OwnerState::InUse);
    reader.join().unwrap();
    let quiet = counters.totals().all;
    let passed = 2 * made_before + 1;
    assert_eq!((quiet.allocations, quiet.frees, quiet.live_bytes), (passed, passed, 0));
    assert_eq!(quiet.requested_bytes, 0);
}

#[test]
fn live_is_never_negative_and_exact_when_quiet() {
    loom::model(|| reads_while_a_block_passes(0));
}

/// With slots that exist already: the creation of one would publish what its thread did before.
#[test]
fn live_is_never_negative_in_slots_that_were_used_before() {
    loom::model(|| reads_while_a_block_passes(1));
}
