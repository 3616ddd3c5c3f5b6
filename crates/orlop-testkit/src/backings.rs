//! Backings for tests: one counts, one fails on request, one returns dirty memory.
//!
//! Each wraps another backing and shares its state with the test through an `Arc`, because the backing itself
//! is moved into an engine.

use crate::fault::BackingFault;
use orlop_alloc::Access;
use orlop_alloc::backing::{Backing, Region, Reservation};
use orlop_core::{Alignment, Device};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Locks, ignoring poison: after a panic elsewhere the records are still useful.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Implements the methods of [`Backing`] that every wrapper forwards.
macro_rules! pass_on {
    () => {
        fn device(&self) -> Device {
            self.inner.device()
        }
        fn access(&self) -> Access {
            self.inner.access()
        }
        fn name(&self) -> &str {
            self.inner.name()
        }
        fn node(&self) -> Option<u32> {
            self.inner.node()
        }
        fn commit_granularity(&self) -> Alignment {
            self.inner.commit_granularity()
        }
    };
}

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

    fn reserve_addresses(&self, capacity: usize, align: Alignment) -> Option<Reservation> {
        self.inner.reserve_addresses(capacity, align)
    }

    unsafe fn commit(&self, line: &Reservation, from: usize, to: usize) -> bool {
        let address = line.ptr.as_ptr().addr();
        {
            let mut records = lock(&self.counts.records);
            records.stats.requested += 1;
            let live = records.live.get(&address).map_or(0, |region| region.bytes);
            if live != from || to <= from || to > line.capacity {
                records.blame(BackingFault::BadRegion { address, bytes: to });
                return false;
            }
        }
        // SAFETY: the request was checked; the rest is guaranteed by the caller.
        let gained = unsafe { self.inner.commit(line, from, to) };
        if gained {
            let mut records = lock(&self.counts.records);
            let align = Alignment::ONE;
            records.live.insert(address, Region { ptr: line.ptr, bytes: to, align, zeroed: true });
            records.stats.reserved += 1;
            records.stats.bytes += (to - from) as u64;
            records.stats.peak_bytes = records.stats.peak_bytes.max(records.stats.bytes);
        }
        gained
    }

    unsafe fn decommit(&self, line: &Reservation, from: usize, to: usize) {
        let address = line.ptr.as_ptr().addr();
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
        unsafe { self.inner.decommit(line, from, to) };
    }

    unsafe fn release_addresses(&self, line: Reservation, gained: usize) {
        let address = line.ptr.as_ptr().addr();
        {
            let mut records = lock(&self.counts.records);
            let live = records.live.remove(&address).map_or(0, |region| region.bytes);
            records.stats.released += u64::from(live > 0);
            records.stats.bytes -= live as u64;
            if live != gained {
                return records.blame(BackingFault::Altered { address, bytes: gained, align: 1 });
            }
        }
        // SAFETY: recorded with these values, and removed from the records: it is released once.
        unsafe { self.inner.release_addresses(line, gained) };
    }

    unsafe fn discard(&self, ptr: NonNull<u8>, bytes: usize) -> usize {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.discard(ptr, bytes) }
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

    pass_on!();
}

impl<B: Backing> Drop for CountingBacking<B> {
    fn drop(&mut self) {
        if let (Err(fault), false) = (self.counts.check_returned(), std::thread::panicking()) {
            panic!("{}: {fault}", self.inner.name());
        }
    }
}

/// Controls when a [`FailingBacking`] fails. Initially it never does.
#[derive(Debug, Default)]
pub struct FailureSchedule {
    plan: Mutex<FailurePlan>,
}

#[derive(Debug, Default)]
struct FailurePlan {
    /// Bit `i`: the call `i` calls from now fails.
    mask: u64,
    /// The number of further calls that fail.
    next: u64,
    above: Option<usize>,
    capacity: Option<u64>,
    no_zeros: bool,
    live: u64,
    refused: u64,
}

impl FailurePlan {
    fn refuses(&mut self, bytes: usize) -> bool {
        let masked = self.mask & 1 == 1;
        self.mask >>= 1;
        let next = self.next > 0;
        self.next = self.next.saturating_sub(1);
        let large = self.above.is_some_and(|limit| bytes > limit);
        let full = self.capacity.is_some_and(|capacity| self.live.saturating_add(bytes as u64) > capacity);
        let refused = masked || next || large || full;
        self.refused += u64::from(refused);
        refused
    }
}

impl FailureSchedule {
    /// Fails call `i` from now (0 is the next one) if bit `i` is set.
    pub fn fail_calls(&self, mask: u64) {
        lock(&self.plan).mask = mask;
    }

    /// Fails the call after the next `skip` calls.
    pub fn fail_nth(&self, skip: u32) {
        self.fail_calls(1u64.checked_shl(skip).unwrap_or(0));
    }

    /// Fails the next `count` calls.
    pub fn fail_next(&self, count: u64) {
        lock(&self.plan).next = count;
    }

    /// Fails requests for regions of more bytes than this.
    pub fn fail_above(&self, bytes: usize) {
        lock(&self.plan).above = Some(bytes);
    }

    /// Fails requests that would make more than `bytes` bytes reserved.
    pub fn capacity(&self, bytes: u64) {
        lock(&self.plan).capacity = Some(bytes);
    }

    /// Sets whether zeroing memory fails.
    pub fn refuse_zeros(&self, refuses: bool) {
        lock(&self.plan).no_zeros = refuses;
    }

    /// Stops all failures.
    pub fn heal(&self) {
        let mut plan = lock(&self.plan);
        *plan = FailurePlan { live: plan.live, refused: plan.refused, ..FailurePlan::default() };
    }

    /// Returns the number of failed calls.
    pub fn refused(&self) -> u64 {
        lock(&self.plan).refused
    }
}

/// Fails requests for regions as its [`FailureSchedule`] says.
#[derive(Debug)]
pub struct FailingBacking<B> {
    inner: B,
    failures: Arc<FailureSchedule>,
}

impl<B: Backing> FailingBacking<B> {
    /// Wraps `inner`.
    pub fn new(inner: B) -> (Self, Arc<FailureSchedule>) {
        let failures = Arc::<FailureSchedule>::default();
        (Self { inner, failures: failures.clone() }, failures)
    }
}

// SAFETY: regions are the inner backing's, unchanged.
unsafe impl<B: Backing> Backing for FailingBacking<B> {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        if lock(&self.failures.plan).refuses(bytes) {
            return None;
        }
        let region = self.inner.reserve(bytes, align);
        let mut plan = lock(&self.failures.plan);
        match &region {
            Some(region) => plan.live += region.bytes as u64,
            None => plan.refused += 1,
        }
        region
    }

    unsafe fn release(&self, region: Region) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.release(region) };
        lock(&self.failures.plan).live -= region.bytes as u64;
    }

    fn reserve_addresses(&self, capacity: usize, align: Alignment) -> Option<Reservation> {
        self.inner.reserve_addresses(capacity, align)
    }

    unsafe fn commit(&self, line: &Reservation, from: usize, to: usize) -> bool {
        if lock(&self.failures.plan).refuses(to - from) {
            return false;
        }
        // SAFETY: guaranteed by the caller.
        let gained = unsafe { self.inner.commit(line, from, to) };
        let mut plan = lock(&self.failures.plan);
        if gained {
            plan.live += (to - from) as u64;
        } else {
            plan.refused += 1;
        }
        gained
    }

    unsafe fn decommit(&self, line: &Reservation, from: usize, to: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.decommit(line, from, to) };
        lock(&self.failures.plan).live -= (from - to) as u64;
    }

    unsafe fn release_addresses(&self, line: Reservation, gained: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.release_addresses(line, gained) };
        lock(&self.failures.plan).live -= gained as u64;
    }

    unsafe fn discard(&self, ptr: NonNull<u8>, bytes: usize) -> usize {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.discard(ptr, bytes) }
    }

    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        {
            let mut plan = lock(&self.failures.plan);
            if plan.no_zeros {
                plan.refused += 1;
                return false;
            }
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.zero(ptr, bytes) }
    }

    pass_on!();
}

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

    unsafe fn release(&self, region: Region) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.release(region) };
    }

    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.zero(ptr, bytes) }
    }

    pass_on!();
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_alloc::backing::{Null, System};
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

    #[test]
    fn fails_as_planned() {
        let (backing, failures) = FailingBacking::new(Null::new(Device::CPU));
        let outcome = |calls: usize, bytes| -> Vec<bool> {
            (0..calls).map(|_| backing.reserve(bytes, Alignment::ONE).is_some()).collect()
        };
        failures.fail_calls(0b101);
        assert_eq!(outcome(4, 8), [false, true, false, true]);
        failures.fail_next(1);
        assert_eq!(outcome(2, 8), [false, true]);
        failures.fail_above(8);
        assert_eq!((outcome(1, 8), outcome(1, 9)), (vec![true], vec![false]));
        failures.heal();
        failures.capacity(50);
        assert_eq!((outcome(1, 8), outcome(1, 50)), (vec![true], vec![false]));
        assert_eq!(failures.refused(), 5);
    }

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
