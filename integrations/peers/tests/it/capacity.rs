//! What of a pool is in blocks when a peer refuses the first request: the rest is metadata, rounding and
//! fragments. The figures are exact, and are those of `docs/extending.md`.

use orlop::memory::backing::{Backing, Region};
use orlop::types::{Alignment, SplitMix64};
use orlop_peers::{OffsetAllocator, PeerBacking, Placement, RangeAlloc, Rlsf};

/// The bytes of a pool.
const POOL: usize = 1 << 24;

/// Makes requests until the peer refuses one, and returns the live bytes in thousandths of the pool. `next`
/// returns the bytes of a request, and live blocks that it took out, to be freed before it.
fn filled<P: Placement>(
    align: Alignment,
    mut next: impl FnMut(&mut Vec<Region>) -> (usize, Vec<Region>),
) -> usize {
    let Some(backing) = PeerBacking::<P>::new(POOL) else { panic!("no memory for a pool") };
    let mut live: Vec<Region> = Vec::new();
    loop {
        let (bytes, freed) = next(&mut live);
        for region in freed {
            // SAFETY: a region of this backing, which is taken out of the live ones.
            unsafe { backing.release(region) };
        }
        let Some(region) = backing.reserve(bytes, align) else { break };
        live.push(region);
    }
    live.iter().map(|region| region.bytes).sum::<usize>() * 1000 / POOL
}

/// Blocks of one size, aligned to it.
fn of_one_size<P: Placement>(bytes: usize) -> usize {
    let Ok(align) = Alignment::new(bytes) else { panic!("{bytes} is no power of two") };
    filled::<P>(align, |_| (bytes, Vec::new()))
}

/// Sizes from 64 bytes to 512 KiB, of which two of five are freed again.
fn of_random_sizes<P: Placement>() -> usize {
    let mut random = SplitMix64::new(7);
    filled::<P>(Alignment::PLANNED, |live| {
        let mut below = |bound: usize| random.below(bound);
        let limit = 64 << below(14);
        let bytes = 64 + below(limit);
        let frees = below(5) < 2 && !live.is_empty();
        let freed = if frees {
            {
                let chosen = below(live.len());
                vec![live.swap_remove(chosen)]
            }
        } else {
            Vec::new()
        };
        (bytes, freed)
    })
}

fn figures<P: Placement>() -> [usize; 3] {
    [of_one_size::<P>(64), of_one_size::<P>(4096), of_random_sizes::<P>()]
}

#[test]
fn what_fits_in_a_pool() {
    let found = [figures::<Rlsf>(), figures::<OffsetAllocator>(), figures::<RangeAlloc>()];
    assert_eq!(found, [[499, 499, 980], [499, 500, 960], [1000, 1000, 980]]);
}

/// What a peer does with the whole pool as one request, and afterwards.
#[test]
fn a_whole_pool_in_one_request() {
    fn largest<P: Placement>() -> usize {
        let Some(backing) = PeerBacking::<P>::new(POOL) else { panic!("no memory for a pool") };
        let fits = |&bytes: &usize| {
            let region = backing.reserve(bytes, Alignment::ONE);
            // SAFETY: just reserved, and released once.
            region.map(|region| unsafe { backing.release(region) }).is_some()
        };
        (0..=POOL).rev().step_by(1 << 12).find(fits).unwrap_or(0) * 1000 / POOL
    }
    assert_eq!([largest::<Rlsf>(), largest::<OffsetAllocator>(), largest::<RangeAlloc>()], [984, 1000, 1000]);
}
