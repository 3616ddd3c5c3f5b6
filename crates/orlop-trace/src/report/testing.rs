//! Small histories for the tests of this module.

use crate::history::{Action, BlockState, Event, Segment, SegmentBlock, SiteId, TextId};
use orlop_core::{MemoryKind, StreamId};

pub(crate) fn event(action: Action, address: u64, bytes: u64) -> Event {
    Event {
        time: 0,
        address,
        bytes,
        stream: StreamId::DEFAULT,
        site: SiteId::UNKNOWN,
        text: TextId::NONE,
        thread: 0,
        action,
        kind: MemoryKind::default(),
    }
}

pub(crate) fn block(address: u64, bytes: u64, state: BlockState) -> SegmentBlock {
    SegmentBlock { address, bytes, requested: bytes, state, site: SiteId::UNKNOWN }
}

pub(crate) fn segment(address: u64, blocks: &[SegmentBlock]) -> Segment {
    Segment {
        address,
        bytes: blocks.iter().map(|block| block.bytes).sum(),
        stream: StreamId::DEFAULT,
        small: false,
        expandable: false,
        pool: (0, 0),
        site: SiteId::UNKNOWN,
        blocks: blocks.to_vec(),
    }
}
