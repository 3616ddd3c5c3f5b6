//! [`LargePages`]: pages that are larger than those of their range.
//!
//! The driver creates and maps each page by calls of its own: 1 GiB takes a thousand of them in pages of
//! 2 MiB. So large growth is mapped in larger pages. A page is unmapped and moved as a whole. A large one
//! that fits into no hole goes back to the device, and new pages are mapped in its place.

use std::collections::BTreeMap;
use std::ops::Range;

/// Growth of this many pages is mapped in pages of twice the size.
const PAGES_PER_GROWTH: usize = 32;

/// The size of the largest pages, in bytes.
const MAX_PAGE_BYTES: usize = 32 << 20;

/// The pages that are larger than those of their range.
#[derive(Debug, Default)]
pub(crate) struct LargePages {
    /// Their sizes, by address.
    sizes: BTreeMap<usize, usize>,
}

/// Returns the size of the pages for growth by `bytes` bytes: the page of the range, or a power of two times
/// as much.
pub(crate) fn page_for_growth(bytes: usize, page: usize) -> usize {
    let mut large = page;
    while large <= MAX_PAGE_BYTES / 2 && bytes / PAGES_PER_GROWTH >= 2 * large {
        large *= 2;
    }
    large
}

impl LargePages {
    /// Notes new pages of `page` bytes.
    pub(crate) fn insert(&mut self, addresses: Range<usize>, page: usize) {
        self.sizes.extend(addresses.step_by(page).map(|address| (address, page)));
    }

    /// Forgets the pages of a range that are unmapped.
    pub(crate) fn remove(&mut self, addresses: Range<usize>) {
        self.take(addresses);
    }

    fn take(&mut self, addresses: Range<usize>) -> Vec<(usize, usize)> {
        let taken: Vec<_> = self.sizes.range(addresses).map(|(&address, &bytes)| (address, bytes)).collect();
        for (address, _) in &taken {
            self.sizes.remove(address);
        }
        taken
    }

    /// Notes that the pages of a range are at other addresses, which begin with `to`.
    pub(crate) fn relocate(&mut self, addresses: Range<usize>, to: usize) {
        let from = addresses.start;
        let taken = self.take(addresses);
        self.sizes.extend(taken.into_iter().map(|(address, bytes)| (address - from + to, bytes)));
    }

    /// Returns the page that an address lies inside of, neither at its start nor at its end.
    fn around(&self, address: usize) -> Option<Range<usize>> {
        let (&start, &bytes) = self.sizes.range(..address).next_back()?;
        (address < start + bytes).then_some(start..start + bytes)
    }

    /// Returns the start of the page that an address lies inside of, or the address.
    pub(crate) fn start_of(&self, address: usize) -> usize {
        self.around(address).map_or(address, |page| page.start)
    }

    /// Returns the end of the page that an address lies inside of, or the address.
    pub(crate) fn end_of(&self, address: usize) -> usize {
        self.around(address).map_or(address, |page| page.end)
    }

    /// Returns the part of a range that cuts no page. `None` if there is none.
    pub(crate) fn whole(&self, part: Range<usize>) -> Option<Range<usize>> {
        let whole = self.end_of(part.start)..self.start_of(part.end);
        (whole.start < whole.end).then_some(whole)
    }

    /// Returns the bytes of metadata.
    pub(crate) fn bytes(&self) -> usize {
        self.sizes.len() * size_of::<(usize, usize)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn growth_takes_few_pages_whatever_its_size() {
        for (mib, page) in [(2, 2), (64, 2), (127, 2), (128, 4), (256, 8), (1000, 16), (1024, 32), (9000, 32)]
        {
            assert_eq!(page_for_growth(mib * MIB, 2 * MIB), page * MIB, "{mib} MiB");
        }
        assert_eq!(page_for_growth(1 << 40, 20 * MIB), 20 * MIB);
        assert_eq!(page_for_growth(usize::MAX, 1 << 60), 1 << 60);
    }

    #[test]
    fn ranges_cut_no_page() {
        let mut pages = LargePages::default();
        pages.insert(100..140, 20);
        for (part, whole) in [
            (90..150, Some(90..150)),
            (100..140, Some(100..140)),
            (101..140, Some(120..140)),
            (90..139, Some(90..120)),
            (101..139, None),
            (101..119, None),
            (140..160, Some(140..160)),
        ] {
            assert_eq!(pages.whole(part.clone()), whole, "{part:?}");
        }
        pages.relocate(120..150, 500);
        assert_eq!((pages.start_of(510), pages.end_of(510), pages.end_of(130)), (500, 520, 130));
        pages.remove(0..1000);
        assert_eq!(pages.bytes(), 0);
    }
}
