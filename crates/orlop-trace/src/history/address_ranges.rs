//! Ranges of addresses that do not overlap, in a map by their first address: taking addresses out of them.

use std::collections::BTreeMap;

/// A range of addresses that can be cut.
pub trait AddressRange: Copy {
    /// Returns its length in bytes.
    fn bytes(&self) -> u64;

    /// Returns the part of it that begins at `address` and is `bytes` long.
    #[must_use]
    fn part(&self, address: u64, bytes: u64) -> Self;
}

/// Takes the addresses from `address` up to `end` out of `ranges`. What a range has outside of them stays, as
/// parts of what `cut` makes of it.
///
/// ```
/// use orlop_trace::history::{AddressRange, carve};
/// use std::collections::BTreeMap;
///
/// #[derive(Debug, Clone, Copy, PartialEq)]
/// struct Bytes(u64);
///
/// impl AddressRange for Bytes {
///     fn bytes(&self) -> u64 {
///         self.0
///     }
///     fn part(&self, _: u64, bytes: u64) -> Self {
///         Self(bytes)
///     }
/// }
///
/// let mut ranges = BTreeMap::from([(0, Bytes(100)), (100, Bytes(50))]);
/// carve(&mut ranges, 30, 110, |range| range);
/// assert_eq!(ranges, BTreeMap::from([(0, Bytes(30)), (110, Bytes(40))]));
/// ```
pub fn carve<R: AddressRange>(
    ranges: &mut BTreeMap<u64, R>,
    address: u64,
    end: u64,
    mut cut: impl FnMut(R) -> R,
) {
    while let Some((&start, &range)) = ranges.range(..end).next_back() {
        let stop = start.saturating_add(range.bytes());
        if stop <= address {
            break;
        }
        ranges.remove(&start);
        let rest = cut(range);
        if start < address {
            ranges.insert(start, rest.part(start, address - start));
        }
        if stop > end {
            ranges.insert(end, rest.part(end, stop - end));
        }
    }
}
