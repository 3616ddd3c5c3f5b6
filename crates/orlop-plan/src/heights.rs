//! The heights that plans can have.

use crate::normal::Normal;

/// The possible heights of plans in which no span can be moved down: the topmost span's offset is a multiple
/// of a unit, and its size need not be one.
#[derive(Debug)]
pub(crate) struct Heights {
    unit: u64,
    /// The bytes by which the end of a span can be above a multiple, in order.
    above: Vec<u64>,
}

impl Heights {
    /// Returns the smallest height that is at least `height`.
    pub(crate) fn at_least(&self, height: u64) -> u64 {
        let (base, above) = (height - height % self.unit, height % self.unit);
        let next = self.above.get(self.above.partition_point(|&bytes| bytes < above));
        match (next, self.above.first()) {
            (Some(next), _) => base.saturating_add(*next),
            (None, Some(first)) => base.saturating_add(self.unit).saturating_add(*first),
            (None, None) => height,
        }
    }

    /// Returns the greatest height that is at most `height`, or 0.
    pub(crate) fn at_most(&self, height: u64) -> u64 {
        let (base, above) = (height - height % self.unit, height % self.unit);
        let before = self.above.partition_point(|&bytes| bytes <= above).checked_sub(1);
        match (before, self.above.last()) {
            (Some(before), _) => base + self.above[before],
            (None, Some(last)) => (base + last).saturating_sub(self.unit),
            (None, None) => 0,
        }
    }
}

impl Normal {
    /// Returns the heights of plans in which no span can be moved down.
    pub(crate) fn heights(&self) -> Heights {
        let unit = self.unit();
        let mut above: Vec<u64> = self.spans.iter().map(|span| span.size % unit).collect();
        above.sort_unstable();
        above.dedup();
        Heights { unit, above }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Problem};

    fn heights(buffers: &[Buffer]) -> Heights {
        Normal::new(&Problem::new(buffers.iter().copied()).unwrap()).heights()
    }

    #[test]
    fn heights_are_multiples_and_the_rest_of_the_topmost() {
        // Offsets are multiples of 512: heights are 0, 300 or 400 above one.
        let found = heights(&[812, 400, 512].map(|size| Buffer::new(0..1, size)));
        let at_least = [0, 1, 300, 301, 401, 512].map(|height| found.at_least(height));
        assert_eq!(at_least, [0, 300, 300, 400, 512, 512]);
        let at_most = [0, 1, 300, 399, 511, 513].map(|height| found.at_most(height));
        assert_eq!(at_most, [0, 0, 300, 300, 400, 512]);
        let found = heights(&[Buffer::new(0..1, 300)]);
        assert_eq!([0, 300, 301, u64::MAX].map(|height| found.at_least(height)), [300, 300, 812, u64::MAX]);
        assert_eq!([299, 300, 811, 812].map(|height| found.at_most(height)), [0, 300, 300, 812]);
    }
}
