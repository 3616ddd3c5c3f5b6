//! Building a checked trace from operations.

use super::replay_step::PackedStep;
use super::{LiveTotals, Operation, Trace};
use crate::{Result, TraceError};
use orlop_core::StreamId;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The state of a block's id.
#[derive(Clone, Copy)]
enum IdState {
    Live { slot: u32, bytes: u64, since: u64 },
    Freed { since: u64 },
}

#[derive(Default)]
pub(super) struct TraceBuilder {
    trace: Trace,
    ids: HashMap<u64, IdState>,
    streams: HashMap<StreamId, u32>,
    /// Slots whose block was freed, the latest on top: its entry in the replay's array is in the cache.
    empty: Vec<u32>,
}

impl TraceBuilder {
    /// Adds the operation of a line.
    pub(super) fn push(&mut self, operation: Operation, line: u64) -> Result<()> {
        if self.trace.len() == Trace::MAX_OPERATIONS {
            return Err(TraceError::TooManyEvents { limit: Trace::MAX_OPERATIONS as u64 });
        }
        match operation {
            Operation::Allocate { id, bytes, stream } => self.allocate(id, bytes, stream, line),
            Operation::Free { id } => self.free(id, line),
        }
    }

    fn allocate(&mut self, id: u64, bytes: u64, stream: StreamId, line: u64) -> Result<()> {
        let overflow = TraceError::LiveOverflow { line, bytes };
        let entry = match self.ids.entry(id) {
            Entry::Occupied(entry) => match *entry.get() {
                IdState::Live { since, .. } => return Err(TraceError::AllocatedTwice { line, id, since }),
                IdState::Freed { .. } => Entry::Occupied(entry),
            },
            vacant @ Entry::Vacant(_) => vacant,
        };
        let (Some(live), Ok(size)) = (self.trace.end.bytes.checked_add(bytes), usize::try_from(bytes)) else {
            return Err(overflow);
        };
        let too_long = TraceError::TooManyEvents { limit: Trace::MAX_OPERATIONS as u64 };
        let Ok(next_slot) = u32::try_from(self.trace.end.blocks) else { return Err(too_long) };
        let Ok(next_stream) = u32::try_from(self.trace.streams.len()) else { return Err(too_long) };
        // If no slot is empty, the live blocks fill all of them.
        let slot = self.empty.pop().unwrap_or(next_slot);
        let stream = *self.streams.entry(stream).or_insert_with(|| {
            self.trace.streams.push(stream);
            next_stream
        });
        entry.insert_entry(IdState::Live { slot, bytes, since: line });
        self.trace.steps.push(PackedStep::allocate(slot, size, stream));
        let Trace { peak, end, .. } = &mut self.trace;
        *end = LiveTotals { bytes: live, blocks: end.blocks + 1 };
        *peak = LiveTotals { bytes: peak.bytes.max(end.bytes), blocks: peak.blocks.max(end.blocks) };
        Ok(())
    }

    fn free(&mut self, id: u64, line: u64) -> Result<()> {
        let state = self.ids.get_mut(&id).ok_or(TraceError::FreedUnknown { line, id })?;
        match *state {
            IdState::Freed { since } => Err(TraceError::FreedTwice { line, id, since }),
            IdState::Live { slot, bytes, .. } => {
                *state = IdState::Freed { since: line };
                self.empty.push(slot);
                self.trace.steps.push(PackedStep::free(slot));
                let end = &mut self.trace.end;
                *end = LiveTotals { bytes: end.bytes - bytes, blocks: end.blocks - 1 };
                Ok(())
            }
        }
    }

    pub(super) fn finish(self) -> Trace {
        self.trace
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::text::ReplayStep;

    fn error(text: &str) -> String {
        Trace::parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn ids_become_slots_and_slots_are_used_again() {
        let trace = Trace::parse("a,70,1\na,9,2,5\nf,70\na,3,4\nf,3\na,70,8\n".as_bytes()).unwrap();
        let on =
            |slot, bytes, stream| ReplayStep::Allocate { slot, bytes, stream: StreamId::from_raw(stream) };
        let expected = [
            on(0, 1, 0),
            on(1, 2, 5),
            ReplayStep::Free { slot: 0 },
            on(0, 4, 0),
            ReplayStep::Free { slot: 0 },
            on(0, 8, 0),
        ];
        assert!(trace.steps().eq(expected));
        assert_eq!((trace.slots(), trace.len()), (2, 6));
        assert_eq!(trace.peak(), LiveTotals { bytes: 10, blocks: 2 });
        assert_eq!(trace.live_at_end(), LiveTotals { bytes: 10, blocks: 2 });
        assert_eq!(trace.streams(), [StreamId::from_raw(0), StreamId::from_raw(5)]);
    }

    #[test]
    fn contradictions_are_reported_with_both_lines() {
        assert_eq!(error("a,1,2\nf,1\nf,2\n"), "line 3: 2 is freed, but was never allocated");
        assert_eq!(error("a,1,2\n\nf,1\n# x\nf,1\n"), "line 5: 1 is freed again, and was freed on line 3");
        assert_eq!(error("a,1,2\na,1,2\n"), "line 2: 1 is allocated again, and has been live since line 1");
        assert_eq!(
            error("a,0,1\na,1,18446744073709551615\n"),
            "line 2: with 18446744073709551615 more bytes the live bytes exceed 2^64"
        );
    }

    #[test]
    fn an_empty_trace_is_a_trace() {
        let trace = Trace::parse(&b""[..]).unwrap();
        assert!(trace.is_empty());
        assert_eq!(trace.peak(), LiveTotals::default());
    }
}
