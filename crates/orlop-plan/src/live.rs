//! Which spans are live together, without a list of all pairs.
//!
//! The spans that begin while a span is live are consecutive, because spans are in order of their first
//! section. Those that began before are found from a checkpoint: at every few sections, the spans that are
//! live there are listed. The distance of checkpoints is chosen so that the lists are about as long as the
//! list of spans, where the pairs can be a thousand times as many.

use crate::normal::Normal;

/// An index of the spans by time.
#[derive(Debug)]
pub(crate) struct LiveIndex {
    /// The number of sections from a checkpoint to the next.
    stride: usize,
    /// By checkpoint, where its part of `live` begins; at the end, the length of `live`.
    begin: Vec<usize>,
    /// The spans that are live in the section before a checkpoint and in the one after it.
    live: Vec<u32>,
}

impl LiveIndex {
    pub(crate) fn new(normal: &Normal) -> Self {
        let sections = normal.load.len();
        let spans = normal.spans.len();
        let crossing: usize = normal.spans.iter().map(|span| (span.behind - span.first) as usize - 1).sum();
        let stride = crossing.div_ceil(2 * spans.max(1)).max(1);
        let (mut begin, mut live, mut current) = (Vec::new(), Vec::new(), Vec::<u32>::new());
        for checkpoint in (0..sections).step_by(stride) {
            begin.push(live.len());
            let from = checkpoint.saturating_sub(stride);
            current.extend(normal.first_span[from]..normal.first_span[checkpoint]);
            current.retain(|&number| normal.spans[number as usize].behind as usize > checkpoint);
            live.extend_from_slice(&current);
        }
        begin.push(live.len());
        Self { stride, begin, live }
    }

    /// Returns the indices of the spans that may not share bytes with a span, each once, without itself.
    pub(crate) fn neighbors<'a>(
        &'a self,
        normal: &'a Normal,
        number: usize,
    ) -> impl Iterator<Item = usize> + 'a {
        let span = &normal.spans[number];
        let first = span.first as usize;
        let checkpoint = first / self.stride;
        let before = self.live[self.begin[checkpoint]..self.begin[checkpoint + 1]].iter().copied();
        let since = normal.first_span[checkpoint * self.stride]..normal.first_span[first];
        let earlier =
            before.chain(since).filter(move |&other| normal.spans[other as usize].behind > span.first);
        let later = normal.first_span[first]..normal.first_span[span.behind as usize];
        let sharing = earlier.chain(later).map(|other| other as usize).filter(move |&other| other != number);
        let conflicts = normal.conflicts.as_ref();
        let sharing = sharing.filter(move |&other| conflicts.is_none_or(|all| all.meet(number, other)));
        let excluded = conflicts.map_or(&[][..], |conflicts| conflicts.excluded(number));
        sharing.chain(excluded.iter().map(|&other| other as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Problem};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn neighbors_are_those_that_are_live_at_the_same_time(
            lifetimes in prop::collection::vec((0u64..60, 1u64..40), 1..80),
        ) {
            let lifetimes = lifetimes.iter().map(|&(start, length)| start..start + length);
            let buffers = lifetimes.map(|lifetime| Buffer::unaligned(lifetime, 1));
            let normal = Normal::new(&Problem::new(buffers).unwrap());
            let index = LiveIndex::new(&normal);
            for (number, span) in normal.spans.iter().enumerate() {
                let mut found: Vec<usize> = index.neighbors(&normal, number).collect();
                found.sort_unstable();
                let shares = |other: usize| {
                    let other = &normal.spans[other];
                    other.first < span.behind && span.first < other.behind
                };
                let expected: Vec<usize> =
                    (0..normal.spans.len()).filter(|&other| other != number && shares(other)).collect();
                prop_assert_eq!(found, expected);
            }
        }
    }
}
