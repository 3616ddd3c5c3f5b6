//! Stream uses of blocks.

use super::subject::{Suite, SuiteSetup};
use crate::fault::{ConformanceFault, rule};
use crate::recording_mock::{RecordedCall, RecordingMock};
use orlop_alloc::{Allocator as _, Error, Request};
use orlop_core::MemoryKind;

/// A use is recorded if the allocator honours streams, and an error if not.
pub(super) fn honoured_or_refused(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    let setup = suite.setup();
    let waits = setup.allocator.semantics().stream_ordered;
    for kind in MemoryKind::ALL.into_iter().filter(|kind| kind.check_on(setup.allocator.device()).is_ok()) {
        let block =
            setup.allocator.allocate(&Request::new(1000).kind(kind).stream(suite.profile.stream(7)))?;
        for stream in [0, 3, 7] {
            let recorded = block.record_stream(suite.profile.stream(stream));
            let refused = matches!(recorded, Err(Error::StreamsNotHonoured { .. }));
            rule("a use is an error exactly if it is not honoured", refused != waits)?;
        }
        rule("a rejected use is not recorded", waits || block.stream_uses().next().is_none())?;
        let shared = block.share();
        rule("shared blocks behave alike", shared.record_stream(suite.profile.stream(9)).is_ok() == waits)?;
        let nothing = setup.allocator.allocate(&Request::new(0))?;
        rule("a use of an empty block is accepted", nothing.record_stream(suite.profile.stream(9)).is_ok())?;
    }
    setup.finish()
}

/// The recorded uses, and only these, reach the allocator with the freed block.
pub(super) fn delivered(suite: &Suite<'_>) -> Result<(), ConformanceFault> {
    let SuiteSetup { allocator, backing } = suite.setup();
    let (spy, log) = RecordingMock::new(allocator);
    let watched = spy.into_ref();
    let block = watched.allocate(&Request::new(1000).stream(suite.profile.stream(7)))?;
    let plain = watched.allocate(&Request::new(1000))?;
    for stream in [3, 7, 5, 3] {
        block.record_stream(suite.profile.stream(stream))?;
    }
    rule("recorded uses are visible, without the block's own stream", {
        block.stream_uses().eq([suite.profile.stream(5), suite.profile.stream(3)])
    })?;
    drop((block, plain));
    let returned: Vec<_> = log
        .take()
        .into_iter()
        .filter_map(|seen| match seen {
            RecordedCall::Returned { uses, accepted, .. } => Some((uses, accepted)),
            _ => None,
        })
        .collect();
    let expected = [(vec![suite.profile.stream(5), suite.profile.stream(3)], true), (Vec::new(), true)];
    rule("each block is freed with its uses", returned == expected)?;
    drop(watched);
    backing.map_or(Ok(()), |control| Ok(control.counts.check_returned()?))
}
