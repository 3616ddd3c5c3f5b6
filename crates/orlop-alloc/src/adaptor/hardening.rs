//! How much a [`Hardened`] looks after: settings apart from the allocator they are for, so that a context's configuration
//! can carry them.

use super::hardened::Hardened;
use crate::Allocator;

/// Settings of a [`Hardened`]: what each protection finds and costs is at the head of its file.
/// There are always canaries.
///
/// ```
/// use orlop_alloc::adaptor::Hardening;
/// use orlop_alloc::context::CpuConfig;
/// use orlop_alloc::{Context, Request};
/// use orlop_core::Device;
///
/// let context = Context::with(Device::CPU, CpuConfig::new().hardened(Hardening::full()));
/// let block = context.allocate(Device::CPU, &Request::new(100))?;
/// drop(block);
/// // Writes behind a block are refused frees, told to the observer with their address.
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
    /// Canaries and poison.
    pub const fn new() -> Self {
        Self { poison: true, quarantine: 0, guarded_one_in: 0 }
    }

    /// All of it: a quarantine of 16 MiB, and guard pages for one block in 256.
    pub const fn full() -> Self {
        Self::new().quarantine(16 << 20).guard_pages(256)
    }

    /// Whether returned blocks are filled with [`POISON`](super::POISON).
    pub const fn poison(mut self, on: bool) -> Self {
        self.poison = on;
        self
    }

    /// Keeps the last returned blocks back, so many bytes of them.
    pub const fn quarantine(mut self, bytes: usize) -> Self {
        self.quarantine = bytes;
        self
    }

    /// Puts one block in so many right before a page that nobody can touch; zero for none. Where the system has no such
    /// pages, nothing.
    pub const fn guard_pages(mut self, one_in: u64) -> Self {
        self.guarded_one_in = one_in;
        self
    }
}

/// Canaries and poison.
impl Default for Hardening {
    fn default() -> Self {
        Self::new()
    }
}

/// Settings of a [`Hardened`] and what it stands before. There are always canaries; poison is on unless set.
#[derive(Debug, Clone)]
pub struct HardenedBuilder<A> {
    inner: A,
    hardening: Hardening,
}

impl<A: Allocator> HardenedBuilder<A> {
    pub(super) fn new(inner: A) -> Self {
        Self { inner, hardening: Hardening::new() }
    }

    /// All settings at once.
    #[must_use]
    pub fn hardening(mut self, hardening: Hardening) -> Self {
        self.hardening = hardening;
        self
    }

    /// As [`Hardening::poison`].
    #[must_use]
    pub fn poison(mut self, on: bool) -> Self {
        self.hardening = self.hardening.poison(on);
        self
    }

    /// As [`Hardening::quarantine`]. None unless set.
    #[must_use]
    pub fn quarantine(mut self, bytes: usize) -> Self {
        self.hardening = self.hardening.quarantine(bytes);
        self
    }

    /// As [`Hardening::guard_pages`]. None unless set.
    #[must_use]
    pub fn guard_pages(mut self, one_in: u64) -> Self {
        self.hardening = self.hardening.guard_pages(one_in);
        self
    }

    /// The adaptor.
    #[must_use]
    pub fn build(self) -> Hardened<A> {
        Hardened::new(self.inner, self.hardening)
    }
}
