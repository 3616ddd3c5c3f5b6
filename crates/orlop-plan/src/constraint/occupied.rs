//! The bytes that a buffer with parts occupies over time.

use super::merged;
use crate::Problem;
use std::ops::Range;

/// Bytes that are in use for a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OccupiedBytes {
    pub(crate) time: Range<u64>,
    /// From the start of the whole.
    pub(crate) bytes: Range<u64>,
}

/// Returns what the buffer `whole` and its `parts` occupy, without overlaps. Takes time in proportion to the
/// square of their number.
pub(crate) fn occupied(problem: &Problem, whole: usize, parts: &[(usize, u64)]) -> Vec<OccupiedBytes> {
    let members = || parts.iter().copied().chain([(whole, 0)]);
    let buffer = |index: usize| &problem.buffers()[index];
    let mut times: Vec<u64> =
        members().flat_map(|(index, _)| [buffer(index).start, buffer(index).end]).collect();
    times.sort_unstable();
    times.dedup();
    let mut found: Vec<OccupiedBytes> = Vec::new();
    for pair in times.windows(2) {
        let live =
            members().filter(|&(index, _)| buffer(index).start <= pair[0] && pair[1] <= buffer(index).end);
        let used = merged(live.map(|(index, offset)| offset..offset + buffer(index).size).collect());
        for bytes in used {
            // What is used on is one piece.
            let before = found.iter_mut().find(|before| before.time.end == pair[0] && before.bytes == bytes);
            match before {
                Some(before) => before.time.end = pair[1],
                None => found.push(OccupiedBytes { time: pair[0]..pair[1], bytes }),
            }
        }
    }
    found
}
