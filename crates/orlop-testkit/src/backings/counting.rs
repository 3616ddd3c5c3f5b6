//! [`CountingBacking`]: counts regions, and checks how an engine uses its backing.

use super::lock;
use crate::fault::BackingFault;
use orlop_alloc::backing::{Backing, Region, Reservation};
use orlop_alloc::forward_backing;
use orlop_core::Alignment;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// The statistics of a [`CountingBacking`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BackingStats {
    /// The number of requested regions.
    pub requested: u64,
    /// The number of granted regions.
    pub reserved: u64,
    /// The number of released regions.
    pub released: u64,
    /// The reserved bytes.
    pub bytes: u64,
    /// The peak of reserved bytes.
    pub peak_bytes: u64,
}

/// The counters of a [`CountingBacking`], shared with the test.
#[derive(Debug, Default)]
pub struct BackingCounters {
    records: Mutex<BackingRecords>,
}

#[derive(Debug, Default)]
struct BackingRecords {
    live: BTreeMap<usize, Region>,
    stats: BackingStats,
    /// The first fault; later ones are usually consequences.
    fault: Option<BackingFault>,
}

impl BackingRecords {
    fn blame(&mut self, fault: BackingFault) {
        self.fault.get_or_insert(fault);
    }
}

impl BackingCounters {
    /// Returns the present statistics.
    pub fn stats(&self) -> BackingStats {
        lock(&self.records).stats
    }

    /// Checks that no rule was broken.
    ///
    /// # Errors
    ///
    /// The first fault.
    pub fn check(&self) -> Result<(), BackingFault> {
        lock(&self.records).fault.map_or(Ok(()), Err)
    }

    /// Checks that no rule was broken, and that everything was released.
    ///
    /// # Errors
    ///
    /// The first fault, or [`BackingFault::Leaked`].
    pub fn check_returned(&self) -> Result<(), BackingFault> {
        self.check()?;
        let records = lock(&self.records);
        match records.live.len() {
            0 => Ok(()),
            regions => Err(BackingFault::Leaked { regions, bytes: records.stats.bytes }),
        }
    }
}

/// Counts regions, and checks the rules between an engine and its backing. Dropped with live regions or a
/// fault it panics, unless the thread is already panicking.
#[derive(Debug)]
pub struct CountingBacking<B: Backing> {
    inner: B,
    counts: Arc<BackingCounters>,
}

impl<B: Backing> CountingBacking<B> {
    /// Wraps `inner`.
    pub fn new(inner: B) -> (Self, Arc<BackingCounters>) {
        let counts = Arc::<BackingCounters>::default();
        (Self { inner, counts: counts.clone() }, counts)
    }
}

// SAFETY: regions are the inner backing's, unchanged.
unsafe impl<B: Backing> Backing for CountingBacking<B> {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        {
            let mut records = lock(&self.counts.records);
            records.stats.requested += 1;
            if bytes == 0 {
                records.blame(BackingFault::ZeroBytes);
            }
        }
        let region = self.inner.reserve(bytes, align)?;
        let mut records = lock(&self.counts.records);
        let (start, end) = (region.address(), region.address().saturating_add(region.bytes));
        let before = records.live.range(..end).next_back().map(|(&at, other)| at.saturating_add(other.bytes));
        let overlaps = before.is_some_and(|other_end| other_end > start);
        if region.bytes < bytes || !align.is_aligned(start) || overlaps {
            records.blame(BackingFault::BadRegion { address: start, bytes: region.bytes });
        }
        records.live.insert(start, region);
        records.stats.reserved += 1;
        records.stats.bytes += region.bytes as u64;
        records.stats.peak_bytes = records.stats.peak_bytes.max(records.stats.bytes);
        Some(region)
    }

    unsafe fn release(&self, region: Region) {
        {
            let mut records = lock(&self.counts.records);
            let address = region.address();
            // Removed from the records first: once released, another thread may get the same address.
            let Some(live) = records.live.remove(&address) else {
                return records.blame(BackingFault::NotHeld { address });
            };
            records.stats.released += 1;
            records.stats.bytes -= live.bytes as u64;
            if live.bytes != region.bytes || live.align != region.align {
                let (bytes, align) = (region.bytes, region.align.bytes());
                return records.blame(BackingFault::Altered { address, bytes, align });
            }
        }
        // SAFETY: recorded with these values, and removed from the records: it came from `inner` and is
        // released once.
        unsafe { self.inner.release(region) };
    }

    unsafe fn commit(&self, reservation: &Reservation, from: usize, to: usize) -> bool {
        let address = reservation.ptr.as_ptr().addr();
        {
            let mut records = lock(&self.counts.records);
            records.stats.requested += 1;
            let live = records.live.get(&address).map_or(0, |region| region.bytes);
            if live != from || to <= from || to > reservation.capacity {
                records.blame(BackingFault::BadRegion { address, bytes: to });
                return false;
            }
        }
        // SAFETY: the request was checked; the rest is guaranteed by the caller.
        let committed = unsafe { self.inner.commit(reservation, from, to) };
        if committed {
            let mut records = lock(&self.counts.records);
            let align = Alignment::ONE;
            records.live.insert(address, Region { ptr: reservation.ptr, bytes: to, align, zeroed: true });
            records.stats.reserved += 1;
            records.stats.bytes += (to - from) as u64;
            records.stats.peak_bytes = records.stats.peak_bytes.max(records.stats.bytes);
        }
        committed
    }

    unsafe fn decommit(&self, reservation: &Reservation, from: usize, to: usize) {
        let address = reservation.ptr.as_ptr().addr();
        {
            let mut records = lock(&self.counts.records);
            match records.live.get_mut(&address) {
                Some(region) if region.bytes == from && to < from => region.bytes = to,
                _ => return records.blame(BackingFault::NotHeld { address }),
            }
            records.stats.released += 1;
            records.stats.bytes -= (from - to) as u64;
        }
        // SAFETY: recorded with these values; the rest is guaranteed by the caller.
        unsafe { self.inner.decommit(reservation, from, to) };
    }

    unsafe fn release_addresses(&self, reservation: Reservation, committed: usize) {
        let address = reservation.ptr.as_ptr().addr();
        {
            let mut records = lock(&self.counts.records);
            let live = records.live.remove(&address).map_or(0, |region| region.bytes);
            records.stats.released += u64::from(live > 0);
            records.stats.bytes -= live as u64;
            if live != committed {
                return records.blame(BackingFault::Altered { address, bytes: committed, align: 1 });
            }
        }
        // SAFETY: recorded with these values, and removed from the records: it is released once.
        unsafe { self.inner.release_addresses(reservation, committed) };
    }

    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        {
            let address = ptr.as_ptr().addr();
            let mut records = lock(&self.counts.records);
            let live = records.live.range(..=address).next_back().map(|(&at, region)| at + region.bytes);
            if live.is_none_or(|end| address.checked_add(bytes).is_none_or(|last| last > end)) {
                records.blame(BackingFault::ZeroedOutside { address, bytes });
                return false;
            }
        }
        // SAFETY: in a live region; the rest is guaranteed by the caller.
        unsafe { self.inner.zero(ptr, bytes) }
    }

    forward_backing!(inner; except reserve, release, commit, decommit, release_addresses, zero);
}

impl<B: Backing> Drop for CountingBacking<B> {
    fn drop(&mut self) {
        if let (Err(fault), false) = (self.counts.check_returned(), std::thread::panicking()) {
            panic!("{}: {fault}", self.inner.name());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_alloc::backing::Null;
    use orlop_core::Device;

    #[test]
    fn counts_and_finds_leaks_and_strangers() {
        let (backing, counts) = CountingBacking::new(Null::new(Device::CPU));
        let region = backing.reserve(100, Alignment::CPU).unwrap();
        assert_eq!((counts.stats().reserved, counts.stats().bytes), (1, 100));
        assert!(matches!(counts.check_returned(), Err(BackingFault::Leaked { regions: 1, bytes: 100 })));
        // SAFETY: allocated above.
        unsafe { backing.release(region) };
        assert_eq!(counts.check_returned(), Ok(()));
        // SAFETY: violates the contract on purpose: the records detect it before the inner backing is called.
        unsafe { backing.release(region) };
        assert_eq!(counts.check(), Err(BackingFault::NotHeld { address: region.address() }));
        // Dropping it with a fault panics.
        let goes = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(backing)));
        assert!(goes.is_err());
    }
}
