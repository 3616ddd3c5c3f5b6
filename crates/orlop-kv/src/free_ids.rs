//! [`FreeIds`]: free ids, the lowest first.
//!
//! Ids are freed in any order. Those that are handed out one after the other are neighbours all the same, and
//! so are their records: the next one is in the same cache line, or the processor has fetched it already.

/// A set of ids. Each level has a bit for each word of the level below that is not 0; the last is one word.
#[derive(Debug, Default)]
pub(crate) struct FreeIds {
    levels: Vec<Vec<u64>>,
    len: usize,
    /// The word of the first level with the lowest id, if that is not 0.
    lowest: usize,
}

impl FreeIds {
    /// Creates the set of the ids below `count`.
    pub(crate) fn all(count: u32) -> Self {
        let mut free = Self::default();
        free.make_room(count);
        (0..count).for_each(|id| free.insert(id));
        free
    }

    /// Makes room for the ids below `count`, so that inserting them allocates nothing.
    pub(crate) fn make_room(&mut self, count: u32) {
        let mut words = (count as usize).div_ceil(64).max(1);
        let mut level = 0;
        loop {
            if level == self.levels.len() {
                // The first word of a level may be in use already.
                let below = level.checked_sub(1).map_or(0, |below| self.levels[below][0]);
                self.levels.push(vec![u64::from(below != 0)]);
            }
            if self.levels[level].len() < words {
                self.levels[level].resize(words, 0);
            }
            if words == 1 {
                return;
            }
            (words, level) = (words.div_ceil(64), level + 1);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an id that there is room for.
    pub(crate) fn insert(&mut self, id: u32) {
        let mut at = id as usize;
        self.lowest = self.lowest.min(at / 64);
        self.len += 1;
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            let was_empty = *word == 0;
            *word |= 1 << (at % 64);
            if !was_empty {
                return;
            }
            at /= 64;
        }
    }

    /// Takes the lowest id.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let word = match self.levels.first_mut()?.get_mut(self.lowest) {
            Some(word) if *word != 0 => word,
            _ => {
                self.lowest = self.lowest_word()?;
                &mut self.levels[0][self.lowest]
            }
        };
        let id = u32::try_from(self.lowest * 64).ok()? + word.trailing_zeros();
        *word &= *word - 1;
        let is_last = *word == 0;
        self.len -= 1;
        if is_last {
            self.clear_above(self.lowest);
        }
        Some(id)
    }

    /// Clears the bit of a word of the first level that is 0, and likewise above.
    #[cold]
    fn clear_above(&mut self, mut at: usize) {
        for level in self.levels.iter_mut().skip(1) {
            let word = &mut level[at / 64];
            *word &= !(1 << (at % 64));
            if *word != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// Removes an id, if it is there.
    pub(crate) fn remove(&mut self, id: u32) {
        let at = id as usize / 64;
        let Some(word) = self.levels.first_mut().and_then(|words| words.get_mut(at)) else { return };
        if *word >> (id % 64) & 1 == 0 {
            return;
        }
        *word &= !(1 << (id % 64));
        let is_last = *word == 0;
        self.len -= 1;
        if is_last {
            self.clear_above(at);
        }
    }

    /// Returns the bytes of the set.
    pub(crate) fn bytes(&self) -> usize {
        self.levels.iter().map(|level| level.capacity() * size_of::<u64>()).sum()
    }

    /// Returns the first word that is not 0; `None` if the set is empty.
    fn lowest_word(&self) -> Option<usize> {
        self.levels.iter().skip(1).rev().try_fold(0, |word, level| {
            let bits = level[word];
            (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::FreeIds;
    use std::collections::BTreeSet;

    #[test]
    fn the_lowest_id_comes_first() {
        let mut free = FreeIds::default();
        assert_eq!((free.pop(), free.len()), (None, 0));
        let (mut model, mut random) = (BTreeSet::new(), 1_u32);
        for count in [1, 64, 65, 5000, 300_000] {
            free.make_room(count);
            for _ in 0..5000 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let id = (random >> 8) % count;
                match random >> 30 {
                    0 => {
                        free.remove(id);
                        model.remove(&id);
                    }
                    1 => assert_eq!(free.pop(), model.pop_first()),
                    _ if model.insert(id) => free.insert(id),
                    _ => {}
                }
                assert_eq!((free.len(), free.is_empty()), (model.len(), model.is_empty()));
            }
        }
        while let Some(id) = free.pop() {
            assert_eq!(Some(id), model.pop_first());
        }
        assert!(model.is_empty());
        let mut all = FreeIds::all(130);
        assert!((0..130).all(|id| all.pop() == Some(id)) && all.pop().is_none());
    }
}
