//! What segments hold besides live bytes, and why it cannot be used.
//!
//! Every byte of a segment is in exactly one of five places: asked for, rounding, pending, split, cached. So
//! the five add up to what is reserved, and each has its own cure.

use orlop_trace::history::{BlockState, Segment, SegmentBlock};
use serde::Serialize;
use std::collections::BTreeMap;

/// Where the bytes of segments are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Fragmentation {
    /// All bytes of all segments.
    pub reserved: u64,
    /// Asked for, and live.
    pub requested: u64,
    /// In live blocks, beyond what was asked for.
    pub rounding: u64,
    /// In blocks that were given back, and that a stream may still use.
    pub pending: u64,
    /// Free pieces of segments that are in use (PyTorch: inactive split). Only what fits can use them, and
    /// the device cannot have them back.
    pub split: u64,
    /// Segments that are free all through. They can go back to the device.
    pub cached: u64,
    /// The largest free block: no larger request fits without new memory.
    pub largest_free: u64,
    /// Free blocks.
    pub free_blocks: u64,
}

impl Fragmentation {
    /// Of segments.
    #[must_use]
    pub fn of<'a>(segments: impl IntoIterator<Item = &'a Segment>) -> Self {
        let mut all = Self::default();
        for segment in segments {
            all.add(segment);
        }
        all
    }

    fn add(&mut self, segment: &Segment) {
        let whole = is_cached(segment);
        add(&mut self.reserved, segment.bytes);
        for &SegmentBlock { bytes, requested, state, .. } in &segment.blocks {
            match state {
                BlockState::Live => {
                    add(&mut self.requested, requested.min(bytes));
                    add(&mut self.rounding, bytes.saturating_sub(requested));
                }
                BlockState::Pending => add(&mut self.pending, bytes),
                BlockState::Free => {
                    add(if whole { &mut self.cached } else { &mut self.split }, bytes);
                    self.largest_free = self.largest_free.max(bytes);
                    add(&mut self.free_blocks, 1);
                }
            }
        }
    }
}

/// Whether all of a segment is free.
pub(super) fn is_cached(segment: &Segment) -> bool {
    segment.blocks.iter().all(|block| block.state == BlockState::Free)
}

/// Sizes in a made-up file need not add up in 64 bits.
fn add(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
}

/// Which segments serve a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SegmentPool {
    /// Of the common pool, for small requests.
    Small,
    /// Of the common pool, for all others.
    Large,
    /// Of the common pool, growing in place.
    Expandable,
    /// Of a private pool: a CUDA graph's, mostly.
    Private,
}

impl SegmentPool {
    /// What it is called in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
            Self::Expandable => "expandable",
            Self::Private => "private",
        }
    }

    /// The one a segment belongs to.
    #[must_use]
    pub fn of(segment: &Segment) -> Self {
        match segment {
            Segment { pool, .. } if *pool != (0, 0) => Self::Private,
            Segment { expandable: true, .. } => Self::Expandable,
            Segment { small: true, .. } => Self::Small,
            _ => Self::Large,
        }
    }
}

/// The segments of one pool, for one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PoolUse {
    /// Which pool.
    pub pool: SegmentPool,
    /// Which stream.
    pub stream: u64,
    /// How many segments.
    pub segments: u64,
    /// Where their bytes are.
    #[serde(flatten)]
    pub bytes: Fragmentation,
}

/// The segments of a device at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct SegmentsInfo {
    /// How many segments.
    pub segments: u64,
    /// Where their bytes are.
    #[serde(flatten)]
    pub bytes: Fragmentation,
    /// The largest request that would have got memory, if the device's own is known: a free block, or what
    /// the device has left with all cached segments back.
    pub largest_request: Option<u64>,
    /// By pool and stream.
    pub pools: Vec<PoolUse>,
}

impl SegmentsInfo {
    /// Of all segments of a device, which has so many bytes of `memory`.
    #[must_use]
    pub fn of(segments: &[Segment], memory: Option<u64>) -> Self {
        let bytes = Fragmentation::of(segments);
        let mut pools = BTreeMap::new();
        for segment in segments {
            let key = (SegmentPool::of(segment), segment.stream);
            let (count, bytes): &mut (u64, Fragmentation) = pools.entry(key).or_default();
            *count += 1;
            bytes.add(segment);
        }
        let left = memory.map(|memory| memory.saturating_sub(bytes.reserved).saturating_add(bytes.cached));
        Self {
            segments: segments.len() as u64,
            bytes,
            largest_request: left.map(|left| left.max(bytes.largest_free)),
            pools: pools
                .into_iter()
                .map(|((pool, stream), (segments, bytes))| PoolUse {
                    pool,
                    stream: stream.get(),
                    segments,
                    bytes,
                })
                .collect(),
        }
    }
}
