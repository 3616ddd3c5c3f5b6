//! The conformance suite over each peer.

use orlop::memory::Allocator;
mod capacity;

use orlop::memory::AllocatorRef;
use orlop::memory::backing::BackingRef;
use orlop::memory::engine::Direct;
use orlop_peers::{OffsetAllocator, PeerBacking, Placement, RangeAlloc, Rlsf};
use orlop_testkit::{SuiteProfile, conformance_over};
use std::sync::Arc;

/// The bytes of a pool: address space, of which a program touches a part.
const POOL: usize = 1 << 28;

fn pool<P: Placement>() -> BackingRef {
    match PeerBacking::<P>::new(POOL) {
        Some(backing) => Arc::new(backing),
        None => panic!("no memory for a pool of {POOL} bytes"),
    }
}

fn direct(backing: BackingRef) -> AllocatorRef {
    Direct::new(backing).into_ref().erase()
}

fn check<P: Placement>() {
    conformance_over(P::NAME, SuiteProfile::strict().limited(), pool::<P>, direct);
}

#[test]
fn rlsf() {
    check::<Rlsf>();
}

#[test]
fn offset_allocator() {
    check::<OffsetAllocator>();
}

#[test]
fn range_alloc() {
    check::<RangeAlloc>();
}
