//! Hashes that were seen lately.

/// The number of hashes that are remembered.
const PLACES: usize = 1 << 14;

/// Hashes of units, each in one place: the last ones, approximately.
#[derive(Debug, Default)]
pub(crate) struct RecentHashes(Vec<u128>);

fn place(hash: u128) -> usize {
    usize::try_from(hash % PLACES as u128).unwrap_or(0)
}

impl RecentHashes {
    pub(crate) fn insert(&mut self, hashes: &[u128]) {
        self.0.resize(PLACES, 0);
        for &hash in hashes {
            self.0[place(hash)] = hash;
        }
    }

    pub(crate) fn contains(&self, hash: u128) -> bool {
        self.0.get(place(hash)) == Some(&hash)
    }
}
