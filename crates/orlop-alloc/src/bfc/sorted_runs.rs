//! An ordered set in runs: sorted arrays of bounded length, themselves in order.
//!
//! Free lists mostly hold tens of chunks, and sometimes many thousands. Below a hundred elements a sorted
//! array is fastest (one or two cache lines, no pointers to follow); above, it is slow, because an insertion
//! moves all elements behind it. Runs of at most [`RUN`] elements keep the advantage: an insertion moves half
//! a run, and the list of runs changes only when a run splits or becomes empty.

/// The maximum number of elements in a run.
const RUN: usize = 64;

/// A set of small copyable keys.
#[derive(Debug, Clone)]
pub struct SortedRuns<K> {
    /// Invariants: no run is longer than `RUN`. No run is empty unless it is the only one, whose storage is
    /// kept for the next key. All keys ascend, within runs and across them.
    runs: Vec<Vec<K>>,
    /// The last key of each run, in one array: finding a run reads a few cache lines that stay hot, and no
    /// run. If the only run is empty, its entry is any key.
    lasts: Vec<K>,
    len: usize,
}

/// The position of a key, valid until the set changes.
#[derive(Debug, Clone, Copy)]
pub struct Position {
    run: usize,
    at: usize,
}

impl<K> Default for SortedRuns<K> {
    fn default() -> Self {
        Self { runs: Vec::new(), lasts: Vec::new(), len: 0 }
    }
}

impl<K: Copy + Ord> SortedRuns<K> {
    /// Returns `true` if the set has no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the least key.
    #[must_use]
    pub fn first(&self) -> Option<K> {
        self.runs.first().and_then(|run| run.first()).copied()
    }

    /// Returns the greatest key.
    #[must_use]
    pub fn last(&self) -> Option<K> {
        self.runs.last().and_then(|run| run.last()).copied()
    }

    /// Returns the run that holds `key` or would hold it.
    #[inline]
    fn run_of(&self, key: K) -> usize {
        // The first run whose last key is not below `key`; the last run holds all larger keys.
        match self.lasts.len() {
            0 | 1 => 0,
            runs => count_below(&self.lasts[..runs - 1], key, false),
        }
    }

    /// Returns `true` if the keys are few enough to be in a near cache.
    #[inline]
    fn is_near(&self) -> bool {
        self.runs.len() <= 1
    }

    /// Adds a key that is not in the set.
    pub fn insert(&mut self, key: K) {
        self.len += 1;
        let (index, is_near) = (self.run_of(key), self.is_near());
        let Some(run) = self.runs.get_mut(index) else {
            let mut run = Vec::with_capacity(RUN);
            run.push(key);
            self.runs.push(run);
            self.lasts.push(key);
            return;
        };
        let at = count_below(run, key, is_near);
        debug_assert!(run.get(at) != Some(&key), "inserted twice");
        if at == run.len() {
            self.lasts[index] = key;
        }
        run.insert(at, key);
        if run.len() == RUN {
            let mut upper = Vec::with_capacity(RUN);
            upper.extend_from_slice(&run[RUN / 2..]);
            run.truncate(RUN / 2);
            self.lasts.insert(index, run[RUN / 2 - 1]);
            self.runs.insert(index + 1, upper);
        }
    }

    /// Removes a key. Returns `false` if it was not in the set.
    pub fn remove(&mut self, key: K) -> bool {
        match self.first_from(key) {
            Some((position, found)) if found == key => {
                self.take(position);
                true
            }
            _ => false,
        }
    }

    /// Returns the smallest key that is not below `key`, with its position.
    #[inline]
    pub fn first_from(&self, key: K) -> Option<(Position, K)> {
        let run = self.run_of(key);
        let keys = self.runs.get(run)?;
        let at = count_below(keys, key, self.is_near());
        Some((Position { run, at }, *keys.get(at)?))
    }

    /// Takes the smallest key that is not below `key`.
    #[inline]
    pub(crate) fn take_first_from(&mut self, key: K) -> Option<K> {
        let (position, _) = self.first_from(key)?;
        Some(self.take(position))
    }

    /// Takes the smallest key.
    #[inline]
    pub(crate) fn take_first(&mut self) -> Option<K> {
        if self.len == 0 { None } else { Some(self.take(Position { run: 0, at: 0 })) }
    }

    /// Takes the key at a valid position.
    #[inline(always)]
    pub fn take(&mut self, Position { run: index, at }: Position) -> K {
        let run = &mut self.runs[index];
        // The last key has none behind it to move: no call of `memmove` for nothing.
        let key = if at + 1 == run.len() { run.swap_remove(at) } else { run.remove(at) };
        self.len -= 1;
        match run.last().copied() {
            Some(last) => self.lasts[index] = last,
            None if self.runs.len() > 1 => {
                self.runs.remove(index);
                self.lasts.remove(index);
            }
            None => {}
        }
        key
    }

    /// Iterates over the keys that are not below `key`, ascending.
    #[inline]
    pub fn from(&self, key: K) -> impl Iterator<Item = K> + '_ {
        let index = self.run_of(key);
        let runs = self.runs.get(index..).unwrap_or(&[]);
        let (first, rest) = runs.split_first().map_or((&[][..], runs), |(first, rest)| (&first[..], rest));
        let at = count_below(first, key, self.is_near());
        first[at..].iter().chain(rest.iter().flatten()).copied()
    }

    /// Returns the largest key below `key`.
    pub fn last_below(&self, key: K) -> Option<K> {
        let index = self.run_of(key);
        let run = self.runs.get(index)?;
        let at = count_below(run, key, self.is_near());
        match at {
            0 => self.runs[..index].last()?.last().copied(),
            at => Some(run[at - 1]),
        }
    }

    /// Returns the bytes of the storage of the keys.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.runs.iter().map(|run| run.capacity() * size_of::<K>()).sum::<usize>()
            + self.lasts.capacity() * size_of::<K>()
    }

    /// Returns all keys, ascending.
    pub fn iter(&self) -> impl Iterator<Item = K> + '_ {
        self.runs.iter().flatten().copied()
    }
}

/// Keys compared at once, without a branch between the comparisons.
const STRIDE: usize = 8;

/// Counts the keys, which ascend, that are below `key`.
///
/// Where keys are in a near cache, which those of a set with one run usually are, by halves and without a
/// branch on what is compared: at random positions it would be mispredicted. Elsewhere each load would wait
/// for the one before: the comparisons of up to 128 keys are then summed, first over every eighth key, then
/// over the eight keys that follow.
#[inline]
fn count_below<K: Copy + Ord>(keys: &[K], key: K, is_near: bool) -> usize {
    if is_near {
        return keys.partition_point(|&other| other < key);
    }
    let (mut start, mut keys) = (0, keys);
    while keys.len() > STRIDE * STRIDE * 2 {
        let (lower, upper) = keys.split_at(keys.len() / 2);
        if lower.last().is_some_and(|&last| last < key) {
            start += lower.len();
            keys = upper;
        } else {
            keys = lower;
        }
    }
    let below = |k: &K| usize::from(*k < key);
    let (strides, rest) = keys.as_chunks::<STRIDE>();
    let whole: usize = strides.iter().map(|stride| below(&stride[STRIDE - 1])).sum();
    let within: usize = match strides.get(whole) {
        Some(stride) => stride.iter().map(below).sum(),
        None => rest.iter().map(below).sum(),
    };
    start + whole * STRIDE + within
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    #[cfg_attr(miri, ignore = "safe code, and long under Miri")]
    fn counts_as_a_search_by_halves_does() {
        let max = 700;
        let odd: Vec<usize> = (0..max).map(|number| 2 * number + 1).collect();
        for keys in [0, 1, 7, 8, 9, 63, 64, 65, 127, 128, 129, 130, max / 2, max].map(|len| &odd[..len]) {
            for key in 0..2 * keys.len() + 2 {
                let counts = [true, false].map(|is_near| count_below(keys, key, is_near));
                let below = keys.iter().filter(|&&other| other < key).count();
                assert_eq!(counts, [below; 2], "{key} of {}", keys.len());
            }
        }
    }

    proptest! {
        #[test]
        #[cfg_attr(miri, ignore = "safe code, and long under Miri")]
        fn behaves_like_a_tree(operations in prop::collection::vec((any::<bool>(), 0u16..2000), 0..4000)) {
            let mut runs = SortedRuns::default();
            let mut tree = BTreeSet::new();
            for (insert, key) in operations {
                if insert {
                    if tree.insert(key) {
                        runs.insert(key);
                    }
                } else {
                    prop_assert_eq!(runs.remove(key), tree.remove(&key));
                }
                prop_assert_eq!(runs.from(key).next(), tree.range(key..).next().copied());
                prop_assert_eq!(runs.last_below(key), tree.range(..key).next_back().copied());
                if key % 7 == 0 {
                    let smallest = tree.range(key..).next().copied();
                    let taken = runs.take_first_from(key);
                    prop_assert_eq!(taken, smallest);
                    smallest.map(|smallest| tree.remove(&smallest));
                }
                if key % 11 == 0 {
                    prop_assert_eq!(runs.take_first(), tree.pop_first());
                }
                prop_assert_eq!(runs.last(), tree.last().copied());
            }
            prop_assert!(runs.iter().eq(tree.iter().copied()));
            let alone = runs.runs.len() == 1;
            prop_assert!(runs.runs.iter().all(|run| (alone || !run.is_empty()) && run.len() < RUN));
            prop_assert_eq!(runs.runs.len(), runs.lasts.len());
            let is_last = |(run, last): (&Vec<u16>, &u16)| run.last().is_none_or(|l| l == last);
            prop_assert!(runs.runs.iter().zip(&runs.lasts).all(is_last));
        }
    }
}
