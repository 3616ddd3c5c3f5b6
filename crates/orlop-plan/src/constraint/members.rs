//! When the members of a buffer with parts live, and in which of its bytes.

use crate::Problem;
use std::ops::Range;

/// The start or the end of a lifetime: the time, whether it is a start, and the slots of the member.
pub(super) type MemberEvent = (u64, bool, Range<usize>);

/// The lifetimes of a buffer and its parts, for a sweep over time.
///
/// The borders of members divide the bytes into *slots*: slot `n` is from border `n` to the next one.
pub(super) struct MemberEvents {
    /// Offsets from the start of the whole, in order.
    pub(super) borders: Vec<u64>,
    /// In order of time.
    events: Vec<MemberEvent>,
}

impl MemberEvents {
    /// Lists the lifetimes of the buffer `whole` and of its `parts`, which have offsets from its start.
    pub(super) fn new(problem: &Problem, whole: usize, parts: &[(usize, u64)]) -> Self {
        let size = |index: usize| problem.buffers()[index].size;
        let members = parts.iter().copied().chain([(whole, 0)]);
        let members: Vec<_> = members.filter(|&(index, _)| size(index) > 0).collect();
        let mut borders: Vec<u64> =
            members.iter().flat_map(|&(index, offset)| [offset, offset + size(index)]).collect();
        borders.sort_unstable();
        borders.dedup();
        let slot = |bytes: u64| borders.partition_point(|&border| border < bytes);
        let mut events = Vec::with_capacity(2 * members.len());
        for (index, offset) in members {
            let slots = slot(offset)..slot(offset + size(index));
            for lifetime in problem.lifetimes(index) {
                events.push((lifetime.end, false, slots.clone()));
                events.push((lifetime.start, true, slots.clone()));
            }
        }
        // At the same time, starts come before ends: no count of live members falls below zero.
        events.sort_unstable_by_key(|&(time, starts, _)| (time, !starts));
        Self { borders, events }
    }

    /// Returns each time with what starts and ends there.
    pub(super) fn by_time(&self) -> impl Iterator<Item = (u64, &[MemberEvent])> {
        self.events.chunk_by(|one, other| one.0 == other.0).map(|events| (events[0].0, events))
    }
}
