//! The settings of a [`Hardened`](super::Hardened), apart from the allocator, so that a context's
//! configuration can carry them.

/// Settings of a [`Hardened`](super::Hardened). Canaries are always on. What each protection finds and costs:
///
/// | protection | finds | costs |
/// |---|---|---|
/// | canaries | writes behind a block, at its return | 16 bytes or more behind each block |
/// | poison | reads after the return, by their values | one more write of each block |
/// | quarantine | writes after the return | the bytes kept back |
/// | guard pages | accesses behind a block or after its return, at once | pages and system calls |
///
/// ```
/// use orlop_alloc::adaptor::Hardening;
/// use orlop_context::AllocatorConfig;
/// use orlop_alloc::Request;
/// use orlop_context::Context;
/// use orlop_core::Device;
///
/// let context = Context::with(Device::CPU, AllocatorConfig::new().hardened(Hardening::full()));
/// let block = context.allocate(Device::CPU, &Request::new(100))?;
/// drop(block);
/// // A write behind a block is reported as a refused free, with its address.
/// assert_eq!(context.stats(Device::CPU).refused_frees, 0);
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Hardening {
    pub(super) poison: bool,
    pub(super) quarantine: usize,
    pub(super) guarded_one_in: u64,
}

impl Hardening {
    /// Creates settings with canaries and poison on.
    pub const fn new() -> Self {
        Self { poison: true, quarantine: 0, guarded_one_in: 0 }
    }

    /// Creates settings with everything on: a quarantine of 16 MiB, and guard pages for one block in 256.
    pub const fn full() -> Self {
        Self::new().quarantine(16 << 20).guard_pages(256)
    }

    /// Sets whether returned blocks are filled with [`POISON`](super::POISON).
    pub const fn poison(mut self, on: bool) -> Self {
        self.poison = on;
        self
    }

    /// Sets the quarantine: returned blocks are kept back until their sum exceeds `bytes`.
    pub const fn quarantine(mut self, bytes: usize) -> Self {
        self.quarantine = bytes;
        self
    }

    /// Puts one block in `one_in` directly before an inaccessible page; zero for none. No effect where the
    /// system has no such pages.
    pub const fn guard_pages(mut self, one_in: u64) -> Self {
        self.guarded_one_in = one_in;
        self
    }
}

/// As [`Hardening::new`].
impl Default for Hardening {
    fn default() -> Self {
        Self::new()
    }
}
