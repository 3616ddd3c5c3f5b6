//! Options for reading NumPy files.

use super::NpyError;
use orlop_core::MemoryKind;

/// Options for reading: the memory kind, and limits.
///
/// ```
/// use orlop_core::MemoryKind;
/// use orlop_tensor::interchange::npy::ReadOptions;
///
/// let weights = ReadOptions::new().kind(MemoryKind::Persistent).max_bytes(64 << 30);
/// # let _ = weights;
/// ```
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct ReadOptions {
    pub(super) kind: MemoryKind,
    max_bytes: u64,
    max_entries: usize,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl ReadOptions {
    /// Creates options with the default kind, up to 4 GiB of uncompressed elements, and up to 65536 arrays.
    pub const fn new() -> Self {
        Self { kind: MemoryKind::Default, max_bytes: 4 << 30, max_entries: 1 << 16 }
    }

    /// Reads into memory of this kind.
    pub const fn kind(mut self, kind: MemoryKind) -> Self {
        self.kind = kind;
        self
    }

    /// Limits the bytes of elements, in total for arrays that are read together. The limit applies where the
    /// size is not bounded by the size of a file: compressed arrays and streams.
    pub const fn max_bytes(mut self, bytes: u64) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Limits the number of arrays in a file.
    pub const fn max_entries(mut self, entries: usize) -> Self {
        self.max_entries = entries;
        self
    }

    pub(super) fn check_bytes(&self, bytes: u64) -> Result<(), NpyError> {
        let limit = self.max_bytes;
        if bytes > limit { Err(NpyError::TooLarge { bytes, limit }) } else { Ok(()) }
    }

    pub(super) fn check_entries(&self, entries: usize) -> Result<(), NpyError> {
        let limit = self.max_entries;
        if entries > limit { Err(NpyError::TooManyEntries { entries, limit }) } else { Ok(()) }
    }
}
