//! The sizes of blocks and segments, by PyTorch's rules with their constants as parameters.
//!
//! Source: `CUDACachingAllocator.cpp`; the constant it comes from is named at each one.

use super::conf::ROUNDING_INTERVALS;

const MIB: usize = 1 << 20;

/// The granule of block sizes, in bytes (`kMinBlockSize`).
pub const MIN_BLOCK_BYTES: usize = 512;

/// The largest small request, in bytes (`kSmallSize`).
pub const SMALL_REQUEST_BYTES: usize = MIB;

/// The size of a segment for small requests, in bytes (`kSmallBuffer`).
pub const SMALL_SEGMENT_BYTES: usize = 2 * MIB;

/// The granule of the segments that large requests get for themselves, in bytes (`kRoundLarge`).
pub const SEGMENT_STEP_BYTES: usize = 2 * MIB;

/// The longest rest that is not split off a large block, in bytes (`kSmallSize`).
pub const UNSPLIT_REST_BYTES: usize = MIB;

/// The smallest request that gets a segment for itself, in bytes (`kMinLargeAlloc`).
const OWN_SEGMENT_FROM: usize = 10 * MIB;

/// Returns the size of the block for a request of `bytes` bytes; `None` if no memory is so large.
///
/// Sizes are multiples of `granule`, a power of two. Where `divisions` has more than one for the request's
/// interval ([`TorchConf::roundup_power2_divisions`](super::TorchConf::roundup_power2_divisions)), they are
/// multiples of that part of a power of two.
#[must_use]
#[inline]
pub fn round_size(bytes: usize, granule: usize, divisions: &[usize; ROUNDING_INTERVALS]) -> Option<usize> {
    if bytes <= granule {
        return Some(granule);
    }
    let interval = (bytes.ilog2() as usize).saturating_sub(20).min(ROUNDING_INTERVALS - 1);
    let divisions = divisions[interval];
    let step = if divisions > 1 && bytes > granule.saturating_mul(divisions) {
        ((1_usize << bytes.ilog2()) >> divisions.ilog2()).max(1)
    } else {
        granule
    };
    bytes.checked_next_multiple_of(step).filter(|&size| size <= isize::MAX.unsigned_abs())
}

/// Returns the size of the segment for a block of `size` bytes; `None` if no memory is so large.
///
/// Blocks of up to `small_limit` bytes share small segments, those below 10 MiB share segments of
/// `large_segment` bytes, and larger ones have their own.
#[must_use]
pub fn segment_size(size: usize, small_limit: usize, large_segment: usize) -> Option<usize> {
    let shared = match size {
        _ if size <= small_limit => SMALL_SEGMENT_BYTES,
        _ if size < OWN_SEGMENT_FROM => large_segment,
        _ => 0,
    };
    if shared >= size && shared > 0 {
        Some(shared)
    } else {
        size.checked_next_multiple_of(SEGMENT_STEP_BYTES)
    }
}

/// Returns the longest rest, in bytes, that stays with a block of `size` bytes instead of being split off.
///
/// Pools that split `finely` (small ones, and those that grow in place) keep less than a granule; large
/// blocks keep up to `large_rest` bytes, and blocks of `max_split` bytes or more are never split.
#[must_use]
#[inline]
pub fn kept_rest(size: usize, finely: bool, granule: usize, max_split: usize, large_rest: usize) -> usize {
    if finely {
        granule - 1
    } else if size >= max_split {
        usize::MAX
    } else {
        large_rest
    }
}
