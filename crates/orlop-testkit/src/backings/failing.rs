//! [`FailingBacking`]: fails on request.

use super::lock;
use orlop_alloc::backing::{Backing, Region, Reservation};
use orlop_alloc::forward_backing;
use orlop_core::Alignment;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

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

    unsafe fn commit(&self, reservation: &Reservation, from: usize, to: usize) -> bool {
        if lock(&self.failures.plan).refuses(to - from) {
            return false;
        }
        // SAFETY: guaranteed by the caller.
        let committed = unsafe { self.inner.commit(reservation, from, to) };
        let mut plan = lock(&self.failures.plan);
        if committed {
            plan.live += (to - from) as u64;
        } else {
            plan.refused += 1;
        }
        committed
    }

    unsafe fn decommit(&self, reservation: &Reservation, from: usize, to: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.decommit(reservation, from, to) };
        lock(&self.failures.plan).live -= (from - to) as u64;
    }

    unsafe fn release_addresses(&self, reservation: Reservation, committed: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.inner.release_addresses(reservation, committed) };
        lock(&self.failures.plan).live -= committed as u64;
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

    forward_backing!(inner; except reserve, release, commit, decommit, release_addresses, zero);
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_alloc::backing::Null;
    use orlop_core::Device;

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
}
