//! What a [`Ledger`] tells.

#[cfg(doc)]
use super::Ledger;
use orlop_core::MemoryKind;

/// What an entry said about the owner of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the last one out must destroy the owner"]
pub enum Entry {
    /// Handles or blocks remain.
    More,
    /// No handle and no block remains, and nobody else was told so.
    Last,
}

/// Sums for one kind, or for all. Bytes are granted bytes unless they say requested.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// Blocks handed out so far.
    pub allocations: u64,
    /// Blocks returned so far.
    pub frees: u64,
    /// Bytes handed out so far.
    pub allocated_bytes: u64,
    /// Bytes returned so far.
    pub freed_bytes: u64,
    /// Bytes in blocks not yet returned.
    pub live_bytes: u64,
    /// The same as the users asked for them, before rounding.
    pub requested_bytes: u64,
    /// The highest `live_bytes` since the last [`Ledger::reset_peaks`].
    pub peak_bytes: u64,
}

impl Account {
    /// Blocks not yet returned.
    #[must_use]
    pub fn live_blocks(&self) -> u64 {
        self.allocations - self.frees
    }
}

/// Everything a ledger knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Over all kinds. Its peak is the peak of the sum, not the sum of the kinds' peaks.
    pub all: Account,
    /// By kind, at [`MemoryKind::index`].
    pub kinds: [Account; MemoryKind::COUNT],
    /// The largest block so far, in granted bytes.
    pub largest: u64,
    /// Whether byte statistics are off here, or for a part of a sum: see
    /// [`AllocatorRef::with_statistics`](crate::AllocatorRef::with_statistics).
    pub uncounted: bool,
}

/// What an engine that keeps its own ledger tells of it.
pub trait Counter {
    /// See [`Ledger::totals`].
    fn totals(&self) -> Totals;

    /// See [`Ledger::reset_peaks`].
    fn reset_peaks(&self);
}
