//! A bound on the number of streams of a simulation.
//!
//! An engine has free lists of some kilobytes for each stream, and may search those of all streams when a
//! request finds nothing in its own. Programs have a few dozen streams; a file can use a new one in each
//! event, so that a megabyte would take gigabytes of memory and hours.

use foldhash::HashSet;
use orlop_core::StreamId;

/// The number of streams of a device that a replay distinguishes: the first ones. All others count as one.
pub const MAX_STREAMS: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct FoldedStreams {
    known: HashSet<StreamId>,
    /// The last distinguished stream: usually the next one, too.
    last: StreamId,
    /// The stream that stands for all others.
    rest: Option<StreamId>,
    folded: u64,
}

impl FoldedStreams {
    /// Returns the stream that stands for `stream`.
    #[inline]
    pub(super) fn fold(&mut self, stream: StreamId) -> StreamId {
        // The default stream is one more and always distinguished.
        if stream == self.last || stream.raw() == 0 { stream } else { self.other(stream) }
    }

    fn other(&mut self, stream: StreamId) -> StreamId {
        if self.known.len() < MAX_STREAMS {
            self.known.insert(stream);
        } else if !self.known.contains(&stream) {
            self.folded += 1;
            return *self.rest.get_or_insert(stream);
        }
        self.last = stream;
        stream
    }

    /// Returns the number of requests and uses of streams that are not distinguished.
    pub(super) fn folded(&self) -> u64 {
        self.folded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_are_distinguished_and_the_others_are_one() {
        let mut streams = FoldedStreams::default();
        let max = MAX_STREAMS as u64;
        for round in 0..2 {
            for stream in 0..max + 10 {
                let expected = stream.min(max + 1);
                assert_eq!(streams.fold(StreamId::from_raw(stream)), StreamId::from_raw(expected), "{round}");
            }
        }
        assert_eq!(streams.folded(), 2 * 9);
    }
}
