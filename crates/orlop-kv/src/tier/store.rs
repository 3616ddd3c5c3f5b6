//! [`BlockStore`]: what a tier behind host memory has to do.

use super::BlockKey;
use std::fmt::Debug;
use std::io;

/// A store of blocks: files, an object store, a server. It stores bytes by key; what they mean, and whether
/// they are intact, is checked by the pool.
///
/// A block becomes visible as a whole or not at all: after an error of [`put`](Self::put) the key is absent,
/// or has its former content. A panic counts as an error.
pub trait BlockStore: Debug + Send {
    /// Stores a block under its key.
    ///
    /// # Errors
    /// Those of the store. The key is then not visible.
    fn put(&mut self, key: BlockKey, bytes: &[u8]) -> io::Result<()>;

    /// Reads at most the first `limit` bytes of a block to the end of `bytes`. Returns `false` if there is
    /// none.
    ///
    /// # Errors
    /// Those of the store. The block stays: an error says nothing about its content.
    fn get(&mut self, key: BlockKey, limit: usize, bytes: &mut Vec<u8>) -> io::Result<bool>;

    /// Returns `true` if there is a block under this key. It keeps nothing in the store.
    ///
    /// # Errors
    /// Those of the store. The pool goes on as if there were none.
    fn contains(&mut self, key: BlockKey) -> io::Result<bool>;

    /// Removes a block, if it is there.
    ///
    /// # Errors
    /// Those of the store.
    fn remove(&mut self, key: BlockKey) -> io::Result<()>;
}
