//! The bytes of segments by use, and why free bytes cannot be used.
//!
//! Every byte of a segment counts as exactly one of five: requested, rounding, pending, split, cached. So the
//! five add up to the reserved bytes, and each has its own remedy.

use orlop_trace::history::{BlockState, DeviceHistory, Segment, SegmentBlock};
use serde::Serialize;
use std::collections::BTreeMap;

/// The bytes of segments by use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Fragmentation {
    /// All bytes of all segments.
    pub reserved: u64,
    /// Requested bytes of live blocks.
    pub requested: u64,
    /// Bytes of live blocks beyond the requested ones.
    pub rounding: u64,
    /// Freed blocks that a stream may still use.
    pub pending: u64,
    /// Free chunks of segments with other blocks in use (PyTorch: inactive split). They serve only requests
    /// that fit, and cannot be released to the device.
    pub split: u64,
    /// Segments that are entirely free. They can be released to the device.
    pub cached: u64,
    /// The largest free chunk: no larger request fits without new memory.
    pub largest_free: u64,
    /// The number of free chunks.
    pub free_blocks: u64,
}

impl Fragmentation {
    /// Computes the fragmentation of segments.
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

/// Returns `true` if all of a segment is free.
pub(super) fn is_cached(segment: &Segment) -> bool {
    segment.blocks.iter().all(|block| block.state == BlockState::Free)
}

/// Sizes from a file may not add up in 64 bits.
fn add(sum: &mut u64, bytes: u64) {
    *sum = sum.saturating_add(bytes);
}

/// The pool of segments that serves a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SegmentPool {
    /// The default pool, small requests.
    Small,
    /// The default pool, all other requests.
    Large,
    /// The default pool, expandable segments.
    Expandable,
    /// A private pool, usually of a CUDA graph.
    Private,
}

impl SegmentPool {
    /// Returns the name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Large => "large",
            Self::Expandable => "expandable",
            Self::Private => "private",
        }
    }

    /// Returns the pool of a segment.
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

/// The segments of one pool and one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PoolUse {
    /// The pool.
    pub pool: SegmentPool,
    /// The stream.
    pub stream: u64,
    /// The number of segments.
    pub segments: u64,
    /// Their bytes by use.
    #[serde(flatten)]
    pub bytes: Fragmentation,
}

/// The segments of a device at an instant.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct SegmentsInfo {
    /// The number of segments.
    pub segments: u64,
    /// Their bytes by use.
    #[serde(flatten)]
    pub bytes: Fragmentation,
    /// The largest request that would have succeeded, if the device's memory is known: a free chunk, or what
    /// the device has left after all cached segments are released. Free memory of private pools serves only
    /// their own requests, and does not count.
    pub largest_request: Option<u64>,
    /// By pool and stream.
    pub pools: Vec<PoolUse>,
}

impl SegmentsInfo {
    /// Describes all segments of a device with `memory` bytes.
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
        let common = Fragmentation::of(segments.iter().filter(|segment| segment.pool == (0, 0)));
        let left = memory.map(|memory| memory.saturating_sub(bytes.reserved).saturating_add(common.cached));
        Self {
            segments: segments.len() as u64,
            bytes,
            largest_request: left.map(|left| left.max(common.largest_free)),
            pools: pools
                .into_iter()
                .map(|((pool, stream), (segments, bytes))| PoolUse {
                    pool,
                    stream: stream.raw(),
                    segments,
                    bytes,
                })
                .collect(),
        }
    }
}

/// Returns the peak of the bytes of segments in the first `events` events; `None` without segments.
pub(super) fn peak_of_segments(history: &DeviceHistory, events: usize) -> Option<u64> {
    let mut has_segments = !history.start.is_empty();
    let mut reserved: u128 = history.start.iter().map(|segment| u128::from(segment.bytes)).sum();
    let mut peak = reserved;
    for event in history.events.iter().take(events).filter(|event| event.action.is_region()) {
        let bytes = u128::from(event.bytes);
        reserved = if event.action.adds_region() { reserved + bytes } else { reserved.saturating_sub(bytes) };
        has_segments = true;
        peak = peak.max(reserved);
    }
    has_segments.then(|| u64::try_from(peak).unwrap_or(u64::MAX))
}
