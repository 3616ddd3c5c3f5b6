//! Small histories for the tests of this module.

use orlop_core::StreamId;
use orlop_trace::history::{BlockState, Segment, SegmentBlock, SiteId};

pub(crate) fn block(address: u64, bytes: u64, state: BlockState) -> SegmentBlock {
    SegmentBlock { address, bytes, requested: bytes, state, site: SiteId::UNKNOWN }
}

pub(crate) fn segment(address: u64, blocks: &[SegmentBlock]) -> Segment {
    Segment {
        address,
        bytes: blocks.iter().map(|block| block.bytes).sum(),
        stream: StreamId::from_raw(0),
        small: false,
        expandable: false,
        pool: (0, 0),
        site: SiteId::UNKNOWN,
        blocks: blocks.to_vec(),
    }
}
