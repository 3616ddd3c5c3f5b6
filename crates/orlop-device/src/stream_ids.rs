//! [`StreamIdSet`]: many streams in little memory.

use orlop_core::StreamId;
use std::collections::BTreeMap;

/// A set of streams, as ranges of their numbers. Programs create streams one after the other and end them, so
/// the set of all that have ended takes the memory of a few ranges.
///
/// ```
/// use orlop_core::StreamId;
/// use orlop_device::StreamIdSet;
///
/// let mut ended = StreamIdSet::default();
/// assert!((1..1000).all(|number| ended.insert(StreamId::from_raw(number))));
/// assert!(ended.contains(StreamId::from_raw(7)) && !ended.contains(StreamId::from_raw(1000)));
/// assert_eq!(ended.ranges(), 1);
/// ```
#[derive(Debug, Clone, Default)]
pub struct StreamIdSet {
    /// The first and last numbers of ranges that neither overlap nor touch.
    ranges: BTreeMap<u64, u64>,
}

impl StreamIdSet {
    /// Adds a stream. Returns `true` if it was not in the set.
    pub fn insert(&mut self, stream: StreamId) -> bool {
        if self.contains(stream) {
            return false;
        }
        let (mut first, mut last) = (stream.raw(), stream.raw());
        if let Some((&start, &end)) = self.ranges.range(..first).next_back()
            && end + 1 == first
        {
            first = start;
        }
        if let Some(end) = last.checked_add(1).and_then(|next| self.ranges.remove(&next)) {
            last = end;
        }
        self.ranges.insert(first, last);
        true
    }

    /// Removes a stream. Returns `true` if it was in the set.
    pub fn remove(&mut self, stream: StreamId) -> bool {
        let number = stream.raw();
        let Some((first, last)) = self.range_of(number) else { return false };
        self.ranges.remove(&first);
        if first < number {
            self.ranges.insert(first, number - 1);
        }
        if number < last {
            self.ranges.insert(number + 1, last);
        }
        true
    }

    /// Returns `true` if a stream is in the set.
    #[must_use]
    pub fn contains(&self, stream: StreamId) -> bool {
        self.range_of(stream.raw()).is_some()
    }

    /// Returns the number of ranges, to which the memory is proportional.
    #[must_use]
    pub fn ranges(&self) -> usize {
        self.ranges.len()
    }

    fn range_of(&self, number: u64) -> Option<(u64, u64)> {
        let (&first, &last) = self.ranges.range(..=number).next_back()?;
        (number <= last).then_some((first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ranges_are_those_of_a_set_of_numbers() {
        let (mut ranges, mut set, mut random) =
            (StreamIdSet::default(), BTreeSet::new(), 88_172_645_463_325_252_u64);
        for _ in 0..if cfg!(miri) { 30 } else { 20_000 } {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            // Both ends of the numbers.
            let number = (random >> 32) % 40;
            let number = if random & 2 == 0 { number } else { u64::MAX - number };
            let stream = StreamId::from_raw(number);
            if random & 1 == 0 {
                assert_eq!(ranges.insert(stream), set.insert(number));
            } else {
                assert_eq!(ranges.remove(stream), set.remove(&number));
            }
            assert_eq!(ranges.contains(stream), set.contains(&number));
            let starts = |&&number: &&u64| number == 0 || !set.contains(&(number - 1));
            assert_eq!(ranges.ranges(), set.iter().filter(starts).count());
        }
    }
}
