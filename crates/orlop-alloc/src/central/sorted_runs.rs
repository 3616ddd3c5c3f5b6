//! An ordered set in runs: sorted arrays of bounded length, themselves in order.
//!
//! Free lists hold tens of chunks nearly always and many thousands now and then. A sorted array wins below a
//! hundred elements (one cache line or two, no pointers to follow) and loses beyond, where insertion moves
//! everything. Cut into runs of at most [`RUN`] elements it keeps the first property and loses the second:
//! an insertion moves half a run, and the list of runs changes only when a run splits or empties.

/// The most elements in a run.
const RUN: usize = 128;

/// A set of small copyable keys.
#[derive(Debug, Clone)]
pub(crate) struct SortedRuns<K> {
    /// Invariants: no run is longer than `RUN`, nor empty unless it is the only one (whose storage waits for
    /// the next key); all keys ascend, within runs and across them.
    runs: Vec<Vec<K>>,
    len: usize,
}

impl<K> Default for SortedRuns<K> {
    fn default() -> Self {
        Self { runs: Vec::new(), len: 0 }
    }
}

impl<K: Copy + Ord> SortedRuns<K> {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn last(&self) -> Option<K> {
        self.runs.last().and_then(|run| run.last()).copied()
    }

    /// The run that holds `key`, or would.
    #[inline]
    fn run_of(&self, key: K) -> usize {
        if self.runs.len() <= 1 {
            return 0;
        }
        // The first run whose last key is not below; the last run takes what is above all.
        self.runs.partition_point(|run| run.last().is_some_and(|&last| last < key)).min(self.runs.len() - 1)
    }

    /// Adds a key that is not there yet.
    pub(crate) fn insert(&mut self, key: K) {
        self.len += 1;
        let index = self.run_of(key);
        let Some(run) = self.runs.get_mut(index) else {
            let mut run = Vec::with_capacity(RUN);
            run.push(key);
            self.runs.push(run);
            return;
        };
        let at = run.partition_point(|&k| k < key);
        debug_assert!(run.get(at) != Some(&key), "inserted twice");
        run.insert(at, key);
        if run.len() == RUN {
            let mut upper = Vec::with_capacity(RUN);
            upper.extend_from_slice(&run[RUN / 2..]);
            run.truncate(RUN / 2);
            self.runs.insert(index + 1, upper);
        }
    }

    /// Removes a key; false if it was not there.
    pub(crate) fn remove(&mut self, key: K) -> bool {
        let index = self.run_of(key);
        let Some(run) = self.runs.get_mut(index) else { return false };
        let at = run.partition_point(|&k| k < key);
        if run.get(at) != Some(&key) {
            return false;
        }
        self.take(index, at);
        true
    }

    /// Takes the least key from `key` on.
    #[inline]
    pub(crate) fn take_first_from(&mut self, key: K) -> Option<K> {
        let index = self.run_of(key);
        let run = self.runs.get_mut(index)?;
        let at = run.partition_point(|&k| k < key);
        if at == run.len() {
            return None;
        }
        Some(self.take(index, at))
    }

    /// Takes the least key.
    #[inline]
    pub(crate) fn take_first(&mut self) -> Option<K> {
        if self.len == 0 { None } else { Some(self.take(0, 0)) }
    }

    /// Takes the key at a place, which is there.
    #[inline]
    fn take(&mut self, index: usize, at: usize) -> K {
        let run = &mut self.runs[index];
        let key = run.remove(at);
        self.len -= 1;
        if run.is_empty() && self.runs.len() > 1 {
            self.runs.remove(index);
        }
        key
    }

    /// Keys from `key` on, ascending.
    #[inline]
    pub(crate) fn from(&self, key: K) -> impl Iterator<Item = K> + '_ {
        let index = self.run_of(key);
        let runs = self.runs.get(index..).unwrap_or(&[]);
        let (first, rest) = runs.split_first().map_or((&[][..], runs), |(first, rest)| (&first[..], rest));
        let at = first.partition_point(|&k| k < key);
        first[at..].iter().chain(rest.iter().flatten()).copied()
    }

    /// The greatest key below `key`.
    pub(crate) fn last_below(&self, key: K) -> Option<K> {
        let index = self.run_of(key);
        let run = self.runs.get(index)?;
        let at = run.partition_point(|&k| k < key);
        match at {
            0 => self.runs[..index].last()?.last().copied(),
            at => Some(run[at - 1]),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.runs.iter().map(|run| run.capacity() * size_of::<K>()).sum()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = K> + '_ {
        self.runs.iter().flatten().copied()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_like_a_tree(operations in prop::collection::vec((any::<bool>(), 0u16..2000), 0..if cfg!(miri) { 100 } else { 4000 })) {
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
                    let least = tree.range(key..).next().copied();
                    let taken = runs.take_first_from(key);
                    prop_assert_eq!(taken, least);
                    least.map(|least| tree.remove(&least));
                }
                if key % 11 == 0 {
                    prop_assert_eq!(runs.take_first(), tree.pop_first());
                }
                prop_assert_eq!(runs.last(), tree.last().copied());
            }
            prop_assert!(runs.iter().eq(tree.iter().copied()));
            let alone = runs.runs.len() == 1;
            prop_assert!(runs.runs.iter().all(|run| (alone || !run.is_empty()) && run.len() < RUN));
        }
    }
}
