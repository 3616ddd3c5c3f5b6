//! Maps of address ranges that do not overlap, keyed by first address, and removing addresses from them.

use std::collections::BTreeMap;

/// A range of addresses that can be split.
pub trait AddressRange: Copy {
    /// Returns its length in bytes.
    fn bytes(&self) -> u64;

    /// Returns the part of `bytes` bytes that begins at `address`.
    #[must_use]
    fn part(&self, address: u64, bytes: u64) -> Self;
}

/// Removes the addresses from `address` up to `end` from `ranges`. The parts of a range outside of them
/// remain, as parts of what `cut` returns for the range.
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
