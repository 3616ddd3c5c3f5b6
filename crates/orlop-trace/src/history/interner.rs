//! Numbering of values without duplicates.

use foldhash::HashMap;
use std::borrow::Borrow;
use std::hash::Hash;

/// A list of distinct values, each with its index as id.
#[derive(Debug, Clone)]
pub(crate) struct Interner<T> {
    values: Vec<T>,
    ids: HashMap<T, u32>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { values: Vec::new(), ids: HashMap::default() }
    }
}

impl<T> Interner<T> {
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        self.values.get(id as usize)
    }
}

impl<T: Eq + Hash> Interner<T> {
    /// Returns the id of a value, if it is in the list.
    pub(crate) fn find<Q: Eq + Hash + ?Sized>(&self, value: &Q) -> Option<u32>
    where
        T: Borrow<Q>,
    {
        self.ids.get(value).copied()
    }

    /// Returns the id of a value and adds it if it is new. Tables have fewer entries than their sources have
    /// bytes; entries beyond 2^32 get the id 0.
    pub(crate) fn id<Q: Eq + Hash + ToOwned + ?Sized>(&mut self, value: &Q) -> u32
    where
        T: Borrow<Q> + From<Q::Owned> + Clone,
    {
        if let Some(id) = self.find(value) {
            return id;
        }
        let id = u32::try_from(self.values.len()).unwrap_or(0);
        let value = T::from(value.to_owned());
        self.values.push(value.clone());
        self.ids.insert(value, id);
        id
    }
}
