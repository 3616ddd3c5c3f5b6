//! `handles.leave`, `handles.only`: the last handle has seen what was done through all others, and there is
//! exactly one last handle, also when blocks create handles while it is dropped.

use crate::owner::{Owner, count_in, count_out, in_slot};
use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::thread;
use orlop_sync::OwnerState;

impl Owner {
    /// Uses a handle, and drops it.
    fn drop_handle(&self) {
        self.touch();
        if self.handles().leave() {
            self.touch();
            self.close();
        }
    }

    /// Creates a handle from a block, allocates with it, returns the new block, and drops the handle.
    fn allocate_from_block(&self, index: usize) -> bool {
        let joined = self.handles().join_from_block();
        if joined {
            count_in(self.counters(), index);
            self.touch();
            assert_eq!(in_slot(index, || count_out(self.counters())), OwnerState::InUse, "a handle is held");
            self.drop_handle();
        }
        joined
    }
}

/// Before the counters are closed, whose fences would hide it: the engine is trimmed first.
#[test]
fn the_last_handle_has_seen_what_the_others_did() {
    fn leave(owner: &Owner) {
        owner.touch();
        if owner.handles().leave() {
            // SAFETY: there is no block and no handle; loom checks.
            owner.memory.with_mut(|memory| unsafe { *memory = 1 });
            owner.close();
        }
    }
    loom::model(|| {
        let owner = Owner::new();
        owner.handles().join();
        let other = {
            let owner = Arc::clone(&owner);
            thread::spawn(move || leave(&owner))
        };
        leave(&owner);
        other.join().unwrap();
        assert_eq!(owner.destroyed.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn the_only_handle_has_seen_what_the_others_did() {
    loom::model(|| {
        let owner = Owner::new();
        owner.handles().join();
        let other = {
            let owner = Arc::clone(&owner);
            thread::spawn(move || {
                owner.touch();
                assert!(!owner.handles().leave());
            })
        };
        if owner.handles().only() {
            // SAFETY: no other thread uses it; loom checks.
            owner.memory.with_mut(|memory| unsafe { *memory = 1 });
        }
        other.join().unwrap();
    });
}

/// A handle is created from a block while the last one is dropped; then the block is returned.
#[test]
fn a_block_creates_a_handle_while_the_last_one_is_dropped() {
    loom::model(|| {
        let owner = Owner::new();
        count_in(owner.counters(), 0);
        let other = {
            let owner = Arc::clone(&owner);
            thread::spawn(move || {
                owner.allocate_from_block(0);
                owner.return_block(0);
            })
        };
        owner.drop_handle();
        other.join().unwrap();
        assert_eq!(owner.destroyed.load(Ordering::Relaxed), 1);
        assert!(!owner.handles().join_from_block(), "no handle is created afterwards");
    });
}

/// The same, while the last other block is returned: each of the three can be the last.
#[test]
fn a_block_creates_a_handle_while_the_last_handle_and_another_block_are_dropped() {
    loom::model(|| {
        let owner = Owner::new();
        count_in(owner.counters(), 0);
        count_in(owner.counters(), 1);
        let creates = {
            let owner = Arc::clone(&owner);
            thread::spawn(move || {
                if owner.handles().join_from_block() {
                    owner.drop_handle();
                }
                owner.return_block(0);
            })
        };
        let returns = {
            let owner = Arc::clone(&owner);
            thread::spawn(move || owner.return_block(1))
        };
        owner.drop_handle();
        creates.join().unwrap();
        returns.join().unwrap();
        assert_eq!(owner.destroyed.load(Ordering::Relaxed), 1);
    });
}
