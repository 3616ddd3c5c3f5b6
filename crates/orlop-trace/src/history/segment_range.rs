//! A segment without its blocks.

use super::{AddressRange, Segment, SegmentBlock, SiteId};
use orlop_core::StreamId;

/// A segment without its blocks and its address, which is the key of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentRange {
    pub(crate) bytes: u64,
    pub(crate) stream: StreamId,
    pub(crate) small: bool,
    pub(crate) expandable: bool,
    pub(crate) pool: (u64, u64),
    pub(crate) site: SiteId,
}

impl SegmentRange {
    pub(crate) fn of(segment: &Segment) -> Self {
        let &Segment { bytes, stream, small, expandable, pool, site, .. } = segment;
        Self { bytes, stream, small, expandable, pool, site }
    }

    /// Creates the segment at `address` with these blocks.
    pub(crate) fn with_blocks(self, address: u64, blocks: Vec<SegmentBlock>) -> Segment {
        let Self { bytes, stream, small, expandable, pool, site } = self;
        Segment { address, bytes, stream, small, expandable, pool, site, blocks }
    }

    /// Returns `true` if adjacent pages of both form one segment.
    pub(crate) fn joins(&self, other: &Self) -> bool {
        self.expandable && other.expandable && self.stream == other.stream && self.pool == other.pool
    }
}

impl AddressRange for SegmentRange {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn part(&self, _: u64, bytes: u64) -> Self {
        Self { bytes, ..*self }
    }
}
