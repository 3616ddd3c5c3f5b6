//! [`AddressRanges`]: free ranges of addresses or of a file, first fit, merged when put back.
//!
//! First fit reuses low addresses at once, so that a use after free meets another allocation's bytes.

use std::collections::BTreeMap;
use std::ops::Range;

#[derive(Debug, Default)]
pub(crate) struct AddressRanges {
    /// Ends of free ranges, by start.
    free: BTreeMap<usize, usize>,
}

impl AddressRanges {
    pub(crate) fn new(range: Range<usize>) -> Self {
        Self { free: BTreeMap::from([(range.start, range.end)]) }
    }

    /// Takes a range that begins at a multiple of `alignment`, a power of two.
    pub(crate) fn take(&mut self, bytes: usize, alignment: usize) -> Option<usize> {
        let (start, end, taken) = self.free.iter().find_map(|(&start, &end)| {
            let taken = start.checked_next_multiple_of(alignment)?;
            (taken.checked_add(bytes)? <= end).then_some((start, end, taken))
        })?;
        self.free.remove(&start);
        if start < taken {
            self.free.insert(start, taken);
        }
        if taken + bytes < end {
            self.free.insert(taken + bytes, end);
        }
        Some(taken)
    }

    pub(crate) fn put(&mut self, range: Range<usize>) {
        let (mut start, mut end) = (range.start, range.end);
        if let Some(after) = self.free.remove(&end) {
            end = after;
        }
        if let Some((&before, &its_end)) = self.free.range(..start).next_back()
            && its_end == start
        {
            start = before;
        }
        self.free.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_split_and_merge() {
        let mut free = AddressRanges::new(100..1000);
        assert_eq!(free.take(100, 64), Some(128));
        assert_eq!(free.take(20, 4), Some(100));
        assert_eq!(free.take(1000, 1), None);
        assert_eq!(free.take(100, 512), Some(512));
        free.put(128..228);
        free.put(100..120);
        free.put(512..612);
        assert_eq!(free.free, BTreeMap::from([(100, 1000)]));
    }
}
