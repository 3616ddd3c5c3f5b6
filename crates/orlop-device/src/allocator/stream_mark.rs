//! A number for the stream of the blocks, in place of the stream.

use super::token::MARK_BITS;
use orlop_core::StreamId;

/// A mark of the stream that the last block was for.
///
/// Most blocks of an allocator are for one stream, so the record of a new block mostly has the right stream
/// already. But the stream is in the second cache line of a record, and nothing else of an allocation is: the
/// line would be fetched for the comparison. So the token, which is in the first line, has the mark that the
/// stream had when it was written.
#[derive(Debug)]
pub(super) struct StreamMark {
    stream: StreamId,
    mark: u32,
    /// The first mark since a stream was retired.
    first: u32,
}

impl StreamMark {
    /// The mark of no stream.
    pub(super) const NONE: u32 = 0;

    /// The last mark: a token has room for it.
    const LAST: u32 = (1 << MARK_BITS) - 1;

    pub(super) fn new(stream: StreamId) -> Self {
        Self { stream, mark: Self::NONE + 1, first: Self::NONE }
    }

    /// Returns the mark of a stream: a new one if the last block was for another. A mark is never that of two
    /// streams; when all are used, it is `NONE`.
    #[inline(always)]
    pub(super) fn of(&mut self, stream: StreamId) -> u32 {
        if stream != self.stream {
            self.change(stream);
        }
        self.mark
    }

    #[inline(never)]
    fn change(&mut self, stream: StreamId) {
        self.stream = stream;
        self.renew();
    }

    fn renew(&mut self) {
        if self.mark != Self::NONE {
            self.mark = (self.mark + 1) & Self::LAST;
        }
    }

    /// Notes that a stream was retired: marks from before are smaller than [`first`](Self::first) from then
    /// on, and marks of new blocks are not, until all are used.
    pub(super) fn note_retired(&mut self) {
        self.renew();
        self.first = if self.mark == Self::NONE { Self::LAST + 1 } else { self.mark };
    }

    /// Returns the smallest mark of a block whose stream was not retired since the block was handed out.
    pub(super) fn first(&self) -> u32 {
        self.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_mark_is_that_of_two_streams() {
        let [one, two] = [1, 2].map(StreamId::from_raw);
        let mut mark = StreamMark::new(one);
        let first = mark.of(one);
        assert!(first == mark.of(one) && first != StreamMark::NONE);
        let second = mark.of(two);
        assert!(second == mark.of(two) && ![first, StreamMark::NONE].contains(&second));
        assert!(![first, second].contains(&mark.of(one)), "a stream that comes back has another");
        mark.mark = StreamMark::LAST;
        assert_eq!(mark.of(one), StreamMark::LAST);
        assert_eq!([mark.of(two), mark.of(one), mark.of(two)], [StreamMark::NONE; 3]);
    }

    #[test]
    fn marks_from_before_a_stream_was_retired_are_smaller() {
        let stream = StreamId::from_raw(1);
        let mut mark = StreamMark::new(stream);
        for _ in 0..2 {
            let before = mark.of(stream);
            assert!(before >= mark.first());
            mark.note_retired();
            assert!(before < mark.first() && mark.of(stream) >= mark.first());
        }
        mark.mark = StreamMark::LAST;
        mark.note_retired();
        assert!(StreamMark::LAST < mark.first() && mark.of(stream) < mark.first(), "no mark is left");
    }
}
