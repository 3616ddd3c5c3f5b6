//! The segments with the fewest live bytes that together have enough bytes: a knapsack problem.
//!
//! Solved by the branch and bound of Horowitz and Sahni ("Computing partitions with applications to the
//! knapsack problem", 1974), for covers: segments with the fewest live bytes for their size first, and as the
//! bound the cover that may take a fraction of its last segment. The search has a limit; a result that it did
//! not prove is an estimate.

/// The maximum number of segments that the search looks at: a tenth of a second.
const MAX_VISITS: u64 = 20_000_000;

/// A segment that could be released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CoverItem {
    /// The live bytes in it, which a release costs.
    pub(super) live: u64,
    /// Its length in bytes.
    pub(super) bytes: u64,
    /// Its index in the caller's list.
    pub(super) index: usize,
}

/// The items of a cover by their indices, and whether none has fewer live bytes.
pub(super) type LeastCover = (Vec<usize>, bool);

/// Returns the items with the fewest live bytes whose bytes are at least `missing`; `None` if all are fewer.
pub(super) fn least_cover(mut items: Vec<CoverItem>, missing: u64) -> Option<LeastCover> {
    // a/b < c/d if a·d < c·b. An item without bytes covers nothing.
    items.retain(|item| item.bytes > 0);
    items.sort_by(|one, other| {
        let cross = |live: u64, bytes: u64| u128::from(live) * u128::from(bytes);
        cross(one.live, other.bytes).cmp(&cross(other.live, one.bytes))
    });
    Search { items: &items, missing: missing.into(), visits: 0 }.run()
}

struct Search<'a> {
    items: &'a [CoverItem],
    missing: u128,
    visits: u64,
}

impl Search<'_> {
    fn run(mut self) -> Option<LeastCover> {
        let mut best: Option<(u128, Vec<usize>)> = None;
        // The places of the chosen items; those between them are left out.
        let (mut chosen, mut live, mut covered) = (Vec::<usize>::new(), 0_u128, 0_u128);
        let mut next = 0;
        loop {
            let found = covered >= self.missing;
            if found && best.as_ref().is_none_or(|(least, _)| live < *least) {
                best = Some((live, chosen.clone()));
            }
            let is_promising = !found
                && self
                    .bound(live, covered, next)
                    .is_some_and(|bound| best.as_ref().is_none_or(|(least, _)| bound < *least));
            if let Some(item) = self.items.get(next).filter(|_| is_promising) {
                (live, covered) = (live + u128::from(item.live), covered + u128::from(item.bytes));
                chosen.push(next);
                next += 1;
                continue;
            }
            // Without the item that was chosen last.
            let Some(last) = chosen.pop() else { return best.map(|best| self.result(best.1, true)) };
            if self.visits > MAX_VISITS && best.is_some() {
                return best.map(|best| self.result(best.1, false));
            }
            if let Some(item) = self.items.get(last) {
                (live, covered) = (live - u128::from(item.live), covered - u128::from(item.bytes));
            }
            next = last + 1;
        }
    }

    /// Returns the live bytes that a cover by these and later items has at least; `None` if there is no
    /// cover.
    fn bound(&mut self, live: u128, covered: u128, next: usize) -> Option<u128> {
        let mut bound = live;
        let mut rest = self.missing.saturating_sub(covered);
        for item in self.items.get(next..)? {
            self.visits += 1;
            let (live, bytes) = (u128::from(item.live), u128::from(item.bytes));
            if bytes >= rest {
                return Some(bound + (live * rest).div_ceil(bytes));
            }
            (bound, rest) = (bound + live, rest - bytes);
        }
        (rest == 0).then_some(bound)
    }

    fn result(&self, chosen: Vec<usize>, is_exact: bool) -> LeastCover {
        let index = |place: usize| self.items.get(place).map(|item| item.index);
        (chosen.into_iter().filter_map(index).collect(), is_exact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn items(sizes: &[(u64, u64)]) -> Vec<CoverItem> {
        let item = |(index, &(live, bytes)): (usize, &(u64, u64))| CoverItem { live, bytes, index };
        sizes.iter().enumerate().map(item).collect()
    }

    #[test]
    fn two_of_three_are_less_than_the_cheapest_by_size() {
        // By size the first is cheapest, and it needs one more.
        assert_eq!(least_cover(items(&[(7, 70), (7, 60), (5, 40)]), 100), Some((vec![0, 2], true)));
        assert_eq!(least_cover(items(&[(7, 70), (7, 60), (5, 40)]), 110), Some((vec![0, 2], true)));
        assert_eq!(least_cover(items(&[(7, 70), (7, 60), (5, 40)]), 171), None);
        assert_eq!(least_cover(items(&[(7, 0)]), 1), None);
    }

    #[test]
    fn many_equal_segments_end() {
        let sizes: Vec<(u64, u64)> = (0..2000).map(|index| (1000 + index % 7, 20)).collect();
        let (cover, _) = least_cover(items(&sizes), 20_001).unwrap();
        assert_eq!(cover.len(), 1001);
    }

    proptest! {
        #[test]
        fn no_cover_has_fewer_live_bytes(
            sizes in prop::collection::vec((0..40_u64, 0..60_u64), 0..10), missing in 1..200_u64,
        ) {
            let subsets = (0..1_usize << sizes.len()).filter_map(|set| {
                let chosen = sizes.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
                let add = |sum: (u64, u64), (_, size): (usize, &(u64, u64))| (sum.0 + size.0, sum.1 + size.1);
                let (live, bytes) = chosen.fold((0, 0), add);
                (bytes >= missing).then_some(live)
            });
            let found = least_cover(items(&sizes), missing);
            prop_assert!(found.as_ref().is_none_or(|found| found.1));
            let live = found.map(|(cover, _)| cover.iter().map(|&index| sizes[index].0).sum::<u64>());
            prop_assert_eq!(live, subsets.min());
        }
    }
}
