//! Stream uses on their way back (L14).

use super::{Rig, Suite};
use crate::fault::{Fault, rule};
use crate::spies::{Seen, Spy};
use orlop_alloc::{AllocatorRef, Request};
use orlop_core::StreamId;

/// What was recorded on a block is told when it comes back, and only that.
pub(super) fn delivered(suite: &Suite<'_>) -> Result<(), Fault> {
    let Rig { allocator, backing } = suite.rig();
    let (spy, log) = Spy::new(allocator);
    let watched = AllocatorRef::new(spy);
    let block = watched.allocate(&Request::new(1000).stream(StreamId::new(7)))?;
    let plain = watched.allocate(&Request::new(1000))?;
    for stream in [3, 7, 5, 3] {
        block.record_stream(StreamId::new(stream));
    }
    rule("uses are there to see, the own stream left out", {
        block.stream_uses().eq([StreamId::new(5), StreamId::new(3)])
    })?;
    drop((block, plain));
    let returned: Vec<_> = log
        .take()
        .into_iter()
        .filter_map(|seen| match seen {
            Seen::Returned { uses, accepted, .. } => Some((uses, accepted)),
            _ => None,
        })
        .collect();
    let expected = [(vec![StreamId::new(5), StreamId::new(3)], true), (Vec::new(), true)];
    rule("each block comes back with its uses", returned == expected)?;
    drop(watched);
    backing.map_or(Ok(()), |hand| Ok(hand.counts.check_returned()?))
}
