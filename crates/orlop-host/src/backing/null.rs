//! A backing of address space without memory.

use super::{Access, Backing, Region, Reservation};
use orlop_core::{Alignment, Device};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

/// Hands out addresses that must not be accessed, so that engines run at full speed and at any size.
///
/// Addresses ascend and are never reused. With a limit it refuses requests as a full device would.
#[derive(Debug)]
pub struct Null {
    device: Device,
    step: Alignment,
    limit: u64,
    state: Mutex<AddressSpace>,
}

#[derive(Debug)]
struct AddressSpace {
    next: usize,
    used: u64,
}

impl Null {
    /// The first address: not zero, so that no pointer is null.
    pub const FIRST_ADDRESS: usize = 1 << 32;

    /// Creates a backing on `device` without a limit.
    #[must_use]
    pub fn new(device: Device) -> Self {
        Self::with_limit(device, u64::MAX)
    }

    /// Creates a backing on `device` with at most `limit` bytes reserved at a time.
    #[must_use]
    pub fn with_limit(device: Device, limit: u64) -> Self {
        let state = Mutex::new(AddressSpace { next: Self::FIRST_ADDRESS, used: 0 });
        Self { device, step: Alignment::ONE, limit, state }
    }

    /// Rounds the address range of every region up to a multiple of `step`, as drivers do.
    #[must_use]
    pub fn step(mut self, step: Alignment) -> Self {
        self.step = step;
        self
    }
}

// SAFETY: 1. addresses ascend and are not used twice. 2. the access is `None`: callers must not read or
// write. 3. the state is plain numbers behind a mutex.
unsafe impl Backing for Null {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let used = state.used.checked_add(bytes as u64).filter(|&used| used <= self.limit)?;
        let start = align.round_up(state.next).ok()?;
        let end = self.step.round_up(bytes).ok().and_then(|length| start.checked_add(length))?;
        // As in a real address space, offsets between two addresses must fit in `isize`.
        isize::try_from(end).ok()?;
        let ptr = NonNull::new(ptr::without_provenance_mut(start))?;
        *state = AddressSpace { next: end, used };
        Some(Region { ptr, bytes, align, zeroed: true })
    }

    fn reserve_addresses(&self, capacity: usize, align: Alignment) -> Option<Reservation> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let start = align.max(self.commit_granularity()).round_up(state.next).ok()?;
        let end = start.checked_add(capacity)?;
        isize::try_from(end).ok()?;
        let ptr = NonNull::new(ptr::without_provenance_mut(start))?;
        state.next = end;
        Some(Reservation { ptr, capacity })
    }

    fn commit_granularity(&self) -> Alignment {
        self.step.max(Alignment::PLANNED)
    }

    unsafe fn commit(&self, _: &Reservation, from: usize, to: usize) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let used = state.used.checked_add((to - from) as u64).filter(|&used| used <= self.limit);
        state.used = used.unwrap_or(state.used);
        used.is_some()
    }

    unsafe fn decommit(&self, _: &Reservation, from: usize, to: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.used = state.used.saturating_sub((from - to) as u64);
    }

    unsafe fn release_addresses(&self, _: Reservation, committed: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.used = state.used.saturating_sub(committed as u64);
    }

    unsafe fn release(&self, region: Region) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.used = state.used.saturating_sub(region.bytes as u64);
    }

    fn device(&self) -> Device {
        self.device
    }

    fn access(&self) -> Access {
        Access::None
    }

    fn name(&self) -> &str {
        "null"
    }

    /// Returns `true`: there is no memory to fill.
    unsafe fn zero(&self, _: NonNull<u8>, _: usize) -> bool {
        true
    }
}
