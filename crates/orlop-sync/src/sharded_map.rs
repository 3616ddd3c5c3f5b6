//! A hash map in shards, each behind a lock of its own.
//!
//! For maps that many threads change at once, a few instructions at a time: entries by address, by id. The
//! functions take closures and no guards go out, so that a thread holds at most one shard and never waits for
//! itself. The locks are those of std: maps are no part of loom's models.

use crate::CachePadded;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of shards, a power of two.
const SHARDS: usize = 32;

type Shard<K, V> = CachePadded<Mutex<HashMap<K, V>>>;

/// A hash map that threads share.
///
/// Closures run while their shard is locked: they must not use the map.
///
/// ```
/// use orlop_sync::ShardedMap;
///
/// let map = ShardedMap::new();
/// assert_eq!(map.insert(1, "one"), None);
/// assert_eq!(map.with(&1, |name| name.len()), Some(3));
/// assert_eq!(map.remove_if(&1, |name| name.is_empty()), None);
/// assert_eq!(map.remove(&1), Some("one"));
/// ```
pub struct ShardedMap<K, V> {
    shards: Box<[Shard<K, V>]>,
    hasher: RandomState,
}

impl<K: Eq + Hash, V> ShardedMap<K, V> {
    /// Creates an empty map.
    #[must_use]
    pub fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect(), hasher: RandomState::new() }
    }

    fn shard(&self, key: &K) -> MutexGuard<'_, HashMap<K, V>> {
        let hash = self.hasher.hash_one(key);
        // The remainder of a power of two, so that the conversion loses nothing that counts.
        let index = usize::try_from(hash % SHARDS as u64).unwrap_or(0);
        lock(&self.shards[index])
    }

    /// Inserts a value and returns the one that it replaces.
    pub fn insert(&self, key: K, value: V) -> Option<V> {
        self.shard(&key).insert(key, value)
    }

    /// Inserts a value unless there is one. Returns `true` if it was inserted.
    pub fn insert_if_absent(&self, key: K, value: V) -> bool {
        match self.shard(&key).entry(key) {
            Entry::Vacant(place) => {
                place.insert(value);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// Removes a value and returns it.
    pub fn remove(&self, key: &K) -> Option<V> {
        self.shard(key).remove(key)
    }

    /// Removes a value for which `is_removed` returns `true`, and returns it.
    pub fn remove_if(&self, key: &K, is_removed: impl FnOnce(&V) -> bool) -> Option<V> {
        let mut shard = self.shard(key);
        if shard.get(key).is_some_and(is_removed) { shard.remove(key) } else { None }
    }

    /// Calls `f` with a value and returns its result; `None` if there is no value.
    pub fn with<R>(&self, key: &K, f: impl FnOnce(&mut V) -> R) -> Option<R> {
        self.shard(key).get_mut(key).map(f)
    }

    /// Calls `f` with a value, which `make` makes if there is none, and returns the result of `f`.
    pub fn with_or_insert<R>(&self, key: K, make: impl FnOnce() -> V, f: impl FnOnce(&mut V) -> R) -> R {
        f(self.shard(&key).entry(key).or_insert_with(make))
    }

    /// Returns `true` if the key has a value.
    pub fn contains_key(&self, key: &K) -> bool {
        self.shard(key).contains_key(key)
    }

    /// Calls `f` with every entry, one shard after another: not at one instant.
    pub fn for_each(&self, mut f: impl FnMut(&K, &V)) {
        for shard in &self.shards {
            for (key, value) in lock(shard).iter() {
                f(key, value);
            }
        }
    }

    /// Returns the number of entries, which other threads may change.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Returns `true` if there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Locks a shard. One that a closure panicked in is used on: its map is whole, because the map changes it
/// outside of closures.
fn lock<K, V>(shard: &Mutex<HashMap<K, V>>) -> MutexGuard<'_, HashMap<K, V>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Eq + Hash, V> Default for ShardedMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Eq + Hash, V> fmt::Debug for ShardedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardedMap").field("entries", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;

    #[test]
    fn entries_come_and_go() {
        let map = ShardedMap::new();
        for key in 0..1000 {
            assert_eq!(map.insert(key, key), None);
        }
        assert_eq!(map.insert(7, 8), Some(7));
        assert!(!map.insert_if_absent(7, 9) && map.insert_if_absent(1000, 0));
        assert_eq!(map.remove_if(&7, |&value| value == 7), None);
        assert_eq!(map.remove_if(&7, |&value| value == 8), Some(8));
        assert!(!map.contains_key(&7) && map.remove(&7).is_none());
        assert_eq!(map.with(&1, |value| std::mem::replace(value, 5)), Some(1));
        assert_eq!((map.with(&1, |value| *value), map.with(&7, |value| *value)), (Some(5), None));
        assert_eq!(map.with_or_insert(1, || 0, |value| *value), 5);
        assert_eq!(map.with_or_insert(7, || 6, |value| *value), 6);
        assert_eq!(map.remove(&7), Some(6));
        let mut keys = Vec::new();
        map.for_each(|&key, _| keys.push(key));
        keys.sort_unstable();
        assert_eq!(keys, (0..7).chain(8..1001).collect::<Vec<_>>());
        assert_eq!(map.len(), 1000);
    }

    #[test]
    fn threads_share_it() {
        let map = ShardedMap::new();
        thread::scope(|scope| {
            for thread in 0..4 {
                let map = &map;
                scope.spawn(move || {
                    for key in 0..500 {
                        map.insert((thread, key), key);
                        map.with(&(thread, key), |value| *value += 1);
                        if key % 2 == 0 {
                            assert_eq!(map.remove(&(thread, key)), Some(key + 1));
                        }
                    }
                });
            }
        });
        assert_eq!(map.len(), 1000);
    }

    #[test]
    fn a_panic_in_a_closure_leaves_the_map_usable() {
        let map = ShardedMap::new();
        map.insert(1, 1);
        let panicking = || map.with(&1, |_| -> () { panic!("of a test") });
        assert!(catch_unwind(AssertUnwindSafe(panicking)).is_err());
        assert_eq!(map.remove(&1), Some(1));
    }
}
