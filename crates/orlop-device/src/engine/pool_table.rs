//! A set of private pools in the order of PyTorch's hash table (`ska::flat_hash_map`), in which it searches
//! the pools that lend their memory and releases those without users.
//!
//! The table is open-addressed, with Robin Hood hashing: an id goes to the first slot from its home on whose
//! id is nearer to its own home, and moves that one on. It is at most half full, and a removal moves the ids
//! behind it back. So the order depends on the ids, and a little on the order in which they were added.
//!
//! Source: `c10/util/flat_hash_map.h` of PyTorch.

use super::private_pools::PoolId;

/// The multiplier of Fibonacci hashing: 2^64 over the golden ratio.
const MULTIPLIER: u64 = 11_400_714_819_323_198_485;

/// The smallest table, and the least number of slots in which an id can be.
const MIN_SLOTS: usize = 4;

/// A set of ids of private pools.
#[derive(Debug, Default)]
pub(crate) struct PoolTable {
    /// A power of two of homes, and further slots behind them for the ids of the last ones.
    slots: Vec<Option<Entry>>,
    homes: usize,
    len: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    id: PoolId,
    /// The number of slots between this one and its home.
    distance: usize,
}

impl PoolTable {
    /// Returns the ids in PyTorch's order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = PoolId> + '_ {
        self.slots.iter().flatten().map(|entry| entry.id)
    }

    pub(crate) fn contains(&self, id: PoolId) -> bool {
        self.iter().any(|other| other == id)
    }

    pub(crate) fn insert(&mut self, id: PoolId) {
        if !self.contains(id) {
            self.place(id);
        }
    }

    pub(crate) fn remove(&mut self, id: PoolId) {
        let found = self.slots.iter().position(|slot| slot.is_some_and(|entry| entry.id == id));
        let Some(mut vacant) = found else { return };
        self.len -= 1;
        while let Some(Some(Entry { id, distance: distance @ 1.. })) = self.slots.get(vacant + 1).copied() {
            self.slots[vacant] = Some(Entry { id, distance: distance - 1 });
            vacant += 1;
        }
        self.slots[vacant] = None;
    }

    /// Adds an id that is not in the table.
    fn place(&mut self, id: PoolId) {
        let (mut slot, mut new) = (self.home(id), Entry { id, distance: 0 });
        // Ids that are as far from their homes, or farther, stay.
        while let Some(other) = self.at(slot)
            && other.distance >= new.distance
        {
            (slot, new.distance) = (slot + 1, new.distance + 1);
        }
        if new.distance == self.max_distance() || (self.len + 1) * 2 > self.homes {
            self.grow();
            return self.place(id);
        }
        let first = slot;
        while let Some(other) = self.at(slot) {
            if slot == first || other.distance < new.distance {
                self.slots[slot] = Some(new);
                new = Entry { distance: other.distance + 1, ..other };
            } else {
                new.distance += 1;
                if new.distance == self.max_distance() {
                    // The id without a slot takes that of the new one, which follows in a larger table.
                    if let Some(placed) = &mut self.slots[first] {
                        std::mem::swap(&mut placed.id, &mut new.id);
                    }
                    self.grow();
                    return self.place(new.id);
                }
            }
            slot += 1;
        }
        self.slots[slot] = Some(new);
        self.len += 1;
    }

    fn at(&self, slot: usize) -> Option<Entry> {
        self.slots.get(slot).copied().flatten()
    }

    /// Returns the home of an id: the first bits of its hash.
    fn home(&self, (first, second): PoolId) -> usize {
        let hash = MULTIPLIER.wrapping_mul(if first == 0 { second } else { first });
        let bits = self.homes.checked_ilog2().unwrap_or(0);
        usize::try_from(hash.checked_shr(u64::BITS - bits).unwrap_or(0)).unwrap_or(0)
    }

    /// Returns the distance from its home that no id reaches.
    fn max_distance(&self) -> usize {
        self.homes.checked_ilog2().map_or(0, |bits| MIN_SLOTS.max(bits as usize))
    }

    /// Doubles the table.
    fn grow(&mut self) {
        self.homes = MIN_SLOTS.max(2 * self.homes);
        let slots = vec![None; self.homes + self.max_distance()];
        let before = std::mem::replace(&mut self.slots, slots);
        self.len = 0;
        for entry in before.into_iter().flatten() {
            self.place(entry.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(pools: &PoolTable) -> Vec<u64> {
        pools.iter().map(|(_, second)| second).collect()
    }

    /// From PyTorch's own table.
    #[test]
    fn the_order_is_that_of_pytorchs_table() {
        let mut pools = PoolTable::default();
        RECORDED_ORDERS.iter().for_each(|&(change, expected)| {
            if change > 0 {
                pools.insert((0, change.unsigned_abs()));
            } else {
                pools.remove((0, change.unsigned_abs()));
            }
            assert_eq!(order(&pools), expected, "after {change}");
        });
    }

    /// A pool that begins to lend its memory or, negative, one that ends it; and the order after that.
    const RECORDED_ORDERS: &[(i64, &[u64])] = &[
        (6, &[6]),
        (7, &[7, 6]),
        (14, &[7, 6, 14]),
        (9, &[7, 9, 6, 14]),
        (2, &[2, 7, 9, 14, 6]),
        (12, &[2, 7, 12, 9, 14, 6]),
        (-14, &[2, 7, 12, 9, 6]),
        (-2, &[7, 12, 9, 6]),
        (11, &[7, 12, 9, 6, 11]),
        (4, &[7, 12, 4, 9, 6, 11]),
        (-11, &[7, 12, 4, 9, 6]),
        (14, &[7, 12, 4, 9, 14, 6]),
        (3, &[7, 12, 4, 9, 14, 6, 3]),
        (2, &[2, 7, 12, 4, 9, 14, 6, 3]),
        (-3, &[2, 7, 12, 4, 9, 14, 6]),
        (-9, &[2, 7, 12, 4, 14, 6]),
        (1, &[2, 7, 12, 4, 1, 14, 6]),
        (11, &[2, 7, 12, 4, 1, 14, 6, 11]),
        (10, &[10, 2, 7, 12, 4, 1, 14, 6, 11]),
        (9, &[10, 2, 7, 12, 4, 9, 1, 14, 6, 11]),
        (3, &[10, 2, 7, 12, 4, 9, 1, 14, 6, 11, 3]),
        (-11, &[10, 2, 7, 12, 4, 9, 1, 14, 6, 3]),
        (-4, &[10, 2, 7, 12, 9, 1, 14, 6, 3]),
        (4, &[10, 2, 7, 12, 4, 9, 1, 14, 6, 3]),
        (11, &[10, 2, 7, 12, 4, 9, 1, 14, 6, 11, 3]),
        (-3, &[10, 2, 7, 12, 4, 9, 1, 14, 6, 11]),
        (8, &[10, 2, 7, 12, 4, 9, 1, 14, 6, 11, 8]),
        (-4, &[10, 2, 7, 12, 9, 1, 14, 6, 11, 8]),
        (-11, &[10, 2, 7, 12, 9, 1, 14, 6, 8]),
        (11, &[10, 2, 7, 12, 9, 1, 14, 6, 11, 8]),
    ];
}
