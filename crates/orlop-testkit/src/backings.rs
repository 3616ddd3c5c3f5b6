//! Backings for tests: one counts, one refuses on demand, one hands out dirty memory.
//!
//! Each wraps another backing and shares its records with the test through an `Arc`, because the backing
//! itself disappears into an engine.

use crate::fault::BackingFault;
use orlop_alloc::Access;
use orlop_alloc::backing::{Backing, Region, Reservation};
use orlop_core::{Alignment, Device};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A panic elsewhere leaves records that are still worth reading.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the methods of [`Backing`] that every wrapper passes on.
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
    /// Regions asked for.
    pub asked: u64,
    /// Regions given.
    pub reserved: u64,
    /// Regions taken back.
    pub released: u64,
    /// Bytes held now.
    pub bytes: u64,
    /// The most bytes held at a time.
    pub peak_bytes: u64,
}

/// The counters of a [`CountingBacking`], shared with the test.
#[derive(Debug, Default)]
pub struct BackingCounters {
    books: Mutex<BackingRecords>,
}

#[derive(Debug, Default)]
struct BackingRecords {
    held: BTreeMap<usize, Region>,
    figures: BackingStats,
    /// The first one; those after it are mostly its consequences.
    fault: Option<BackingFault>,
}

impl BackingRecords {
    fn blame(&mut self, fault: BackingFault) {
        self.fault.get_or_insert(fault);
    }
}

impl BackingCounters {
    /// The figures so far.
    pub fn figures(&self) -> BackingStats {
        lock(&self.books).figures
    }

    /// Checks that nobody broke a rule.
    ///
    /// # Errors
    ///
    /// The first fault.
    pub fn check(&self) -> Result<(), BackingFault> {
        lock(&self.books).fault.map_or(Ok(()), Err)
    }

    /// Checks that, moreover, everything was given back.
    ///
    /// # Errors
    ///
    /// The first fault, or [`BackingFault::Leaked`].
    pub fn check_returned(&self) -> Result<(), BackingFault> {
        self.check()?;
        let books = lock(&self.books);
        match books.held.len() {
            0 => Ok(()),
            regions => Err(BackingFault::Leaked { regions, bytes: books.figures.bytes }),
        }
    }
}

/// Counts regions, and checks the rules between an engine and its backing. When it goes while regions are
/// held it panics, unless the thread panics already.
#[derive(Debug)]
pub struct CountingBacking<B: Backing> {
    inner: B,
    counts: Arc<BackingCounters>,
}

impl<B: Backing> CountingBacking<B> {
    /// Counts what goes through to `inner`.
    pub fn new(inner: B) -> (Self, Arc<BackingCounters>) {
        let counts = Arc::<BackingCounters>::default();
        (Self { inner, counts: counts.clone() }, counts)
    }
}

// SAFETY: regions are the inner backing's, unchanged.
unsafe impl<B: Backing> Backing for CountingBacking<B> {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        {
            let mut books = lock(&self.counts.books);
            books.figures.asked += 1;
            if bytes == 0 {
                books.blame(BackingFault::ZeroBytes);
            }
        }
        let region = self.inner.reserve(bytes, align)?;
        let mut books = lock(&self.counts.books);
        let (start, end) = (region.address(), region.address().saturating_add(region.bytes));
        let before = books.held.range(..end).next_back().map(|(&at, other)| at.saturating_add(other.bytes));
        let overlaps = before.is_some_and(|other_end| other_end > start);
        if region.bytes < bytes || !align.is_aligned(start) || overlaps {
            books.blame(BackingFault::BadRegion { address: start, bytes: region.bytes });
        }
        books.held.insert(start, region);
        books.figures.reserved += 1;
        books.figures.bytes += region.bytes as u64;
        books.figures.peak_bytes = books.figures.peak_bytes.max(books.figures.bytes);
        Some(region)
    }

    unsafe fn release(&self, region: Region) {
        {
            let mut books = lock(&self.counts.books);
            let address = region.address();
            // Out of the books first: once released, another thread may be given the same address.
            let Some(held) = books.held.remove(&address) else {
                return books.blame(BackingFault::NotHeld { address });
            };
            books.figures.released += 1;
            books.figures.bytes -= held.bytes as u64;
            if held.bytes != region.bytes || held.align != region.align {
                let (bytes, align) = (region.bytes, region.align.bytes());
                return books.blame(BackingFault::Altered { address, bytes, align });
            }
        }
        // SAFETY: held as it is, and taken out of the books: it came from there and goes back once.
        unsafe { self.inner.release(region) };
    }

    fn reserve_addresses(&self, capacity: usize, align: Alignment) -> Option<Reservation> {
        self.inner.reserve_addresses(capacity, align)
    }

    unsafe fn commit(&self, line: &Reservation, from: usize, to: usize) -> bool {
        let address = line.ptr.as_ptr().addr();
        {
            let mut books = lock(&self.counts.books);
            books.figures.asked += 1;
            let held = books.held.get(&address).map_or(0, |region| region.bytes);
            if held != from || to <= from || to > line.capacity {
                books.blame(BackingFault::BadRegion { address, bytes: to });
                return false;
            }
        }
        // SAFETY: what was asked was found to be right, and the caller's promise for the rest.
        let gained = unsafe { self.inner.commit(line, from, to) };
        if gained {
            let mut books = lock(&self.counts.books);
            let align = Alignment::ONE;
            books.held.insert(address, Region { ptr: line.ptr, bytes: to, align, zeroed: true });
            books.figures.reserved += 1;
            books.figures.bytes += (to - from) as u64;
            books.figures.peak_bytes = books.figures.peak_bytes.max(books.figures.bytes);
        }
        gained
    }

    unsafe fn decommit(&self, line: &Reservation, from: usize, to: usize) {
        let address = line.ptr.as_ptr().addr();
        {
            let mut books = lock(&self.counts.books);
            match books.held.get_mut(&address) {
                Some(region) if region.bytes == from && to < from => region.bytes = to,
                _ => return books.blame(BackingFault::NotHeld { address }),
            }
            books.figures.released += 1;
            books.figures.bytes -= (from - to) as u64;
        }
        // SAFETY: held as it is, and the caller's promise for the rest.
        unsafe { self.inner.decommit(line, from, to) };
    }

    unsafe fn release_addresses(&self, line: Reservation, gained: usize) {
        let address = line.ptr.as_ptr().addr();
        {
            let mut books = lock(&self.counts.books);
            let held = books.held.remove(&address).map_or(0, |region| region.bytes);
            books.figures.released += u64::from(held > 0);
            books.figures.bytes -= held as u64;
            if held != gained {
                return books.blame(BackingFault::Altered { address, bytes: gained, align: 1 });
            }
        }
        // SAFETY: held as it is, and taken out of the books: it goes back once.
        unsafe { self.inner.release_addresses(line, gained) };
    }

    unsafe fn discard(&self, ptr: NonNull<u8>, bytes: usize) -> usize {
        // SAFETY: the caller's promise.
        unsafe { self.inner.discard(ptr, bytes) }
    }

    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        {
            let address = ptr.as_ptr().addr();
            let mut books = lock(&self.counts.books);
            let held = books.held.range(..=address).next_back().map(|(&at, region)| at + region.bytes);
            if held.is_none_or(|end| address.checked_add(bytes).is_none_or(|last| last > end)) {
                books.blame(BackingFault::ZeroedOutside { address, bytes });
                return false;
            }
        }
        // SAFETY: in a held region, and the caller's promise for the rest.
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

/// Decides when a [`FailingBacking`] fails. At first it never does.
#[derive(Debug, Default)]
pub struct FailureSchedule {
    plan: Mutex<FailurePlan>,
}

#[derive(Debug, Default)]
struct FailurePlan {
    /// Bit `i`: the call `i` calls from now is refused.
    mask: u64,
    /// Further calls to refuse.
    next: u64,
    above: Option<usize>,
    capacity: Option<u64>,
    no_zeros: bool,
    held: u64,
    refused: u64,
}

impl FailurePlan {
    fn refuses(&mut self, bytes: usize) -> bool {
        let masked = self.mask & 1 == 1;
        self.mask >>= 1;
        let next = self.next > 0;
        self.next = self.next.saturating_sub(1);
        let large = self.above.is_some_and(|limit| bytes > limit);
        let full = self.capacity.is_some_and(|capacity| self.held.saturating_add(bytes as u64) > capacity);
        let refused = masked || next || large || full;
        self.refused += u64::from(refused);
        refused
    }
}

impl FailureSchedule {
    /// Refuses call `i` from now (0 is the next one) where bit `i` is set.
    pub fn fail_calls(&self, mask: u64) {
        lock(&self.plan).mask = mask;
    }

    /// Refuses the call that comes after `skip` others.
    pub fn fail_nth(&self, skip: u32) {
        self.fail_calls(1u64.checked_shl(skip).unwrap_or(0));
    }

    /// Refuses the next `count` calls.
    pub fn fail_next(&self, count: u64) {
        lock(&self.plan).next = count;
    }

    /// Refuses regions of more bytes than this.
    pub fn fail_above(&self, bytes: usize) {
        lock(&self.plan).above = Some(bytes);
    }

    /// Refuses what would make more than `bytes` bytes held.
    pub fn capacity(&self, bytes: u64) {
        lock(&self.plan).capacity = Some(bytes);
    }

    /// Whether it refuses to fill memory with zeros.
    pub fn refuse_zeros(&self, refuses: bool) {
        lock(&self.plan).no_zeros = refuses;
    }

    /// Refuses nothing from now on.
    pub fn heal(&self) {
        let mut plan = lock(&self.plan);
        *plan = FailurePlan { held: plan.held, refused: plan.refused, ..FailurePlan::default() };
    }

    /// Calls refused so far.
    pub fn refused(&self) -> u64 {
        lock(&self.plan).refused
    }
}

/// Refuses regions when [`FailureSchedule`] says so.
#[derive(Debug)]
pub struct FailingBacking<B> {
    inner: B,
    failures: Arc<FailureSchedule>,
}

impl<B: Backing> FailingBacking<B> {
    /// Stands before `inner`.
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
            Some(region) => plan.held += region.bytes as u64,
            None => plan.refused += 1,
        }
        region
    }

    unsafe fn release(&self, region: Region) {
        // SAFETY: the caller's promise.
        unsafe { self.inner.release(region) };
        lock(&self.failures.plan).held -= region.bytes as u64;
    }

    fn reserve_addresses(&self, capacity: usize, align: Alignment) -> Option<Reservation> {
        self.inner.reserve_addresses(capacity, align)
    }

    unsafe fn commit(&self, line: &Reservation, from: usize, to: usize) -> bool {
        if lock(&self.failures.plan).refuses(to - from) {
            return false;
        }
        // SAFETY: the caller's promise.
        let gained = unsafe { self.inner.commit(line, from, to) };
        let mut plan = lock(&self.failures.plan);
        if gained {
            plan.held += (to - from) as u64;
        } else {
            plan.refused += 1;
        }
        gained
    }

    unsafe fn decommit(&self, line: &Reservation, from: usize, to: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.inner.decommit(line, from, to) };
        lock(&self.failures.plan).held -= (from - to) as u64;
    }

    unsafe fn release_addresses(&self, line: Reservation, gained: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.inner.release_addresses(line, gained) };
        lock(&self.failures.plan).held -= gained as u64;
    }

    unsafe fn discard(&self, ptr: NonNull<u8>, bytes: usize) -> usize {
        // SAFETY: the caller's promise.
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
        // SAFETY: the caller's promise.
        unsafe { self.inner.zero(ptr, bytes) }
    }

    pass_on!();
}

/// Hands out regions full of [`PoisonBacking::POISON`] that do not claim to be zero: whoever relies on fresh
/// memory being zero is found out. Address space that nobody can touch stays as it is.
#[derive(Debug)]
pub struct PoisonBacking<B> {
    inner: B,
}

impl<B: Backing> PoisonBacking<B> {
    /// What fresh bytes are.
    pub const POISON: u8 = 0xa5;

    /// Poisons what comes from `inner`.
    pub fn new(inner: B) -> Self {
        Self { inner }
    }
}

// SAFETY: regions are the inner backing's; every byte stays initialised, and none is said to be zero.
unsafe impl<B: Backing> Backing for PoisonBacking<B> {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        let region = self.inner.reserve(bytes, align)?;
        if self.inner.access() == Access::Host {
            // SAFETY: host-accessible for `region.bytes` bytes by the inner backing's promise, just gained,
            // and known to nobody else.
            unsafe { region.ptr.write_bytes(Self::POISON, region.bytes) };
        }
        Some(Region { zeroed: false, ..region })
    }

    unsafe fn release(&self, region: Region) {
        // SAFETY: the caller's promise.
        unsafe { self.inner.release(region) };
    }

    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: the caller's promise.
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
        assert_eq!((counts.figures().reserved, counts.figures().bytes), (1, 100));
        assert!(matches!(counts.check_returned(), Err(BackingFault::Leaked { regions: 1, bytes: 100 })));
        // SAFETY: gained above.
        unsafe { backing.release(region) };
        assert_eq!(counts.check_returned(), Ok(()));
        // SAFETY: breaks the promise on purpose: the books refuse before the inner backing is asked.
        unsafe { backing.release(region) };
        assert_eq!(counts.check(), Err(BackingFault::NotHeld { address: region.address() }));
        // It does not go quietly with a fault.
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
        // SAFETY: gained above, 100 bytes at least, nobody else knows it.
        let bytes = unsafe { std::slice::from_raw_parts(region.ptr.as_ptr(), 100) };
        assert!(bytes.iter().all(|&byte| byte == PoisonBacking::<System>::POISON));
        // SAFETY: gained above; `bytes` is not used any more.
        unsafe { backing.release(region) };
    }
}
