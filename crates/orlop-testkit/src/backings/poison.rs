//! [`PoisonBacking`]: returns dirty memory.

use orlop_alloc::backing::{Backing, Region};
use orlop_alloc::{Access, forward_backing};
use orlop_core::Alignment;

/// Returns regions filled with [`PoisonBacking::POISON`] that are not declared zero, to detect code that
/// relies on fresh memory being zero. Inaccessible address space stays as it is.
#[derive(Debug)]
pub struct PoisonBacking<B> {
    inner: B,
}

impl<B: Backing> PoisonBacking<B> {
    /// The value of fresh bytes.
    pub const POISON: u8 = 0xa5;

    /// Wraps `inner`.
    pub fn new(inner: B) -> Self {
        Self { inner }
    }
}

// SAFETY: regions are the inner backing's; every byte stays initialised, and none is declared zero.
unsafe impl<B: Backing> Backing for PoisonBacking<B> {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        let region = self.inner.reserve(bytes, align)?;
        if self.inner.access() == Access::Host {
            // SAFETY: host-accessible for `region.bytes` bytes by the inner backing's contract, just
            // allocated, and not used by anything else.
            unsafe { region.ptr.write_bytes(Self::POISON, region.bytes) };
        }
        Some(Region { zeroed: false, ..region })
    }

    // Memory that is committed is zero by contract.
    forward_backing!(inner; except reserve, reserve_addresses);
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_alloc::backing::System;

    #[test]
    fn poison_is_everywhere() {
        let backing = PoisonBacking::new(System::new());
        let region = backing.reserve(100, Alignment::CPU).unwrap();
        assert!(!region.zeroed);
        // SAFETY: allocated above, at least 100 bytes, and not used by anything else.
        let bytes = unsafe { std::slice::from_raw_parts(region.ptr.as_ptr(), 100) };
        assert!(bytes.iter().all(|&byte| byte == PoisonBacking::<System>::POISON));
        // SAFETY: allocated above; `bytes` is not used any more.
        unsafe { backing.release(region) };
    }
}
