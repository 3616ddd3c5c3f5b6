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
}

impl StreamMark {
    /// The mark of no stream.
    pub(super) const NONE: u32 = 0;

    /// The last mark: a token has room for it.
    const LAST: u32 = (1 << MARK_BITS) - 1;

    pub(super) fn new(stream: StreamId) -> Self {
        Self { stream, mark: Self::NONE + 1 }
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
        if self.mark != Self::NONE {
            self.mark = (self.mark + 1) & Self::LAST;
        }
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
}
