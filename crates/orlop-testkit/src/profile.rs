//! What an allocator promises beyond what its trait methods say.

/// The promises of an allocator that the suite checks.
///
/// Whether sizes are tracked, bare pointers can be freed, handles are opaque and the host can reach the bytes
/// is asked of the allocator itself. No profile excuses from an alignment: up to 2 MiB all must serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SuiteProfile {
    /// Returned memory is handed out again without further ado, so that a steady loop needs bounded memory.
    pub reuses: bool,
    /// With no live block, `trim(0)` leaves nothing reserved.
    pub trims_to_zero: bool,
    /// It may refuse for a limit of its own, although the backing refuses nothing.
    pub limited: bool,
    /// Bytes are counted (not [`AllocatorRef::with_statistics`](orlop_alloc::AllocatorRef::with_statistics)
    /// with `counted: false`).
    pub counted: bool,
}

impl SuiteProfile {
    /// Reuses, trims to zero, counts, and refuses only when the backing does.
    #[must_use]
    pub const fn strict() -> Self {
        Self { reuses: true, trims_to_zero: true, limited: false, counted: true }
    }

    /// Not reusing memory before it is told to (arenas).
    #[must_use]
    pub const fn without_reuse(mut self) -> Self {
        self.reuses = false;
        self
    }

    /// Keeping some memory after `trim(0)`.
    #[must_use]
    pub const fn without_full_trim(mut self) -> Self {
        self.trims_to_zero = false;
        self
    }

    /// With a limit of its own.
    #[must_use]
    pub const fn limited(mut self) -> Self {
        self.limited = true;
        self
    }

    /// With byte statistics off (T19).
    #[must_use]
    pub const fn uncounted(mut self) -> Self {
        self.counted = false;
        self
    }
}
