//! Waiting for others to return memory.
//!
//! When several steps share a device, "out of memory" often means "not yet": another step is about to return
//! its blocks. TensorFlow's `AllocatorRetry` therefore waits up to a deadline and tries again whenever memory
//! comes back. A request that would rather fail at once says so (`retry` off; T18).
//!
//! # No wake-up is lost
//!
//! A waiter reads the number of returns *before* its attempt and sleeps only while it is still the same; each
//! return counts itself *after* upstream has the block, under the same mutex. A return during the attempt is
//! therefore noticed. Every free takes that mutex, uncontended about 4 ns: put this adaptor where waiting is
//! wanted, not everywhere.

use crate::{Allocator, Error, LookupResult, RawBlock, Request, Result};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Waits up to a while for a block to come back before it gives up (T18).
///
/// It waits for what is returned *through it*; what is freed by another way upstream wakes nobody. The
/// deadline counts from a request's first failure.
///
/// ```
/// use orlop_alloc::adaptor::{Limit, Waiting};
/// use orlop_alloc::{backing::System, engine::Direct, AllocatorRef, Request};
/// use std::time::Duration;
///
/// let limited = Limit::new(Direct::engine(System::new()), 1000);
/// let allocator = AllocatorRef::new(Waiting::new(limited, Duration::from_secs(10)));
/// let block = allocator.allocate(&Request::new(800))?;
/// std::thread::scope(|scope| {
///     let second = scope.spawn(|| allocator.allocate(&Request::new(800)));
///     drop(block);
///     assert!(second.join().is_ok_and(|result| result.is_ok()));
/// });
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug)]
pub struct Waiting<A> {
    inner: A,
    patience: Duration,
    returns: Mutex<Returns>,
    returned: Condvar,
    waits: AtomicU64,
    timeouts: AtomicU64,
}

#[derive(Debug, Default)]
struct Returns {
    /// Moves on with each return.
    count: u64,
    /// Threads that wait now.
    waiters: usize,
}

impl<A: Allocator> Waiting<A> {
    /// Over `inner`, waiting at most `patience` per request.
    #[must_use]
    pub fn new(inner: A, patience: Duration) -> Self {
        Self {
            inner,
            patience,
            returns: Mutex::default(),
            returned: Condvar::new(),
            waits: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
        }
    }

    /// Requests that had to wait.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Requests that waited in vain.
    #[must_use]
    pub fn timeouts(&self) -> u64 {
        self.timeouts.load(Ordering::Relaxed)
    }

    /// Threads that wait now.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.returns().waiters
    }

    /// What is waited for.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    fn returns(&self) -> MutexGuard<'_, Returns> {
        self.returns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After upstream got something back.
    #[inline]
    fn wake(&self) {
        let mut returns = self.returns();
        returns.count += 1;
        if returns.waiters > 0 {
            self.returned.notify_all();
        }
    }

    #[cold]
    fn wait(&self, request: &Request) -> Result<RawBlock> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        // Without one the wait is longer than the clock can tell: for ever.
        let deadline = Instant::now().checked_add(self.patience);
        loop {
            let seen = self.returns().count;
            let overdue = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let report = match self.inner.allocate(request) {
                Err(Error::OutOfMemory(report)) => report,
                result => return result,
            };
            // The attempt after the deadline is the last, however often something comes back.
            if overdue || !self.wait_past(seen, deadline) {
                self.timeouts.fetch_add(1, Ordering::Relaxed);
                return Err(Error::OutOfMemory(report));
            }
        }
    }

    /// Waits until `returns` is no longer `seen`; false if the deadline came first.
    fn wait_past(&self, seen: u64, deadline: Option<Instant>) -> bool {
        let mut returns = self.returns();
        returns.waiters += 1;
        let mut in_time = true;
        while in_time && returns.count == seen {
            returns = match deadline {
                None => self.returned.wait(returns).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    in_time = !left.is_zero();
                    self.returned.wait_timeout(returns, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        returns.waiters -= 1;
        in_time
    }
}

// SAFETY: blocks are upstream's, unchanged, and go back to it.
unsafe impl<A: Allocator> Allocator for Waiting<A> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        match self.inner.allocate(request) {
            Err(Error::OutOfMemory(_)) if request.retry && !self.patience.is_zero() => self.wait(request),
            result => result,
        }
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        // SAFETY: the caller's promises; upstream's own block.
        unsafe { self.inner.deallocate(block) }?;
        self.wake();
        Ok(())
    }

    unsafe fn deallocate_raw(&self, ptr: NonNull<u8>, requested: Option<usize>) -> Result<LookupResult> {
        // SAFETY: the caller's promises; upstream's own block.
        let found = unsafe { self.inner.deallocate_raw(ptr, requested) }?;
        self.wake();
        Ok(found)
    }

    fn set_safe_frontier(&self, stamp: u64) {
        self.inner.set_safe_frontier(stamp);
        // Chunks that were freed with a stamp may have become usable.
        self.wake();
    }

    forward!(inner: grow_in_place, name, device, device_memory, usage, reset_peak, semantics, trim, find,
        has_tracked_sizes, has_raw_deleter, has_opaque_handles, describe, verify, watch_regions,
        allocated_size_slow, set_statistics);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::AllocatorRef;
    use crate::adaptor::Limit;
    use crate::backing::Null;
    use crate::engine::Direct;
    use orlop_core::Device;
    use std::thread;

    fn waiting(limit: usize, patience: Duration) -> AllocatorRef<Waiting<Limit<Direct<Null>>>> {
        AllocatorRef::new(Waiting::new(Limit::new(Direct::engine(Null::new(Device::CPU)), limit), patience))
    }

    #[test]
    fn a_return_wakes_the_waiter() {
        let allocator = waiting(100, Duration::from_secs(60));
        let block = allocator.allocate(&Request::new(100)).unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| allocator.allocate(&Request::new(60)).map(|block| block.len()));
            while allocator.waiters() == 0 {
                thread::yield_now();
            }
            drop(block);
            assert_eq!(waiter.join().unwrap().unwrap(), 60);
        });
        assert_eq!((allocator.waits(), allocator.timeouts(), allocator.waiters()), (1, 0, 0));
    }

    #[test]
    fn gives_up_at_the_deadline_and_at_once_if_asked() {
        let allocator = waiting(100, Duration::from_millis(20));
        let _block = allocator.allocate(&Request::new(100)).unwrap();
        let start = Instant::now();
        assert!(allocator.allocate(&Request::new(1).no_retry()).is_err());
        assert_eq!(allocator.waits(), 0);
        assert!(allocator.allocate(&Request::new(1)).unwrap_err().is_out_of_memory());
        assert!(start.elapsed() >= Duration::from_millis(20));
        assert_eq!((allocator.waits(), allocator.timeouts()), (1, 1));
        let impatient = waiting(0, Duration::ZERO);
        assert!(impatient.allocate(&Request::new(1)).is_err());
        assert_eq!(impatient.waits(), 0);
    }

    #[test]
    fn many_threads_through_a_narrow_place_all_get_through() {
        let allocator = waiting(100, Duration::MAX);
        thread::scope(|scope| {
            for thread in 0..4 {
                let allocator = &allocator;
                scope.spawn(move || {
                    let rounds = if cfg!(miri) { 5 } else { 300 };
                    for round in 0..rounds {
                        let _block = allocator.allocate(&Request::new(40 + (thread + round) % 40)).unwrap();
                    }
                });
            }
        });
        assert_eq!((allocator.timeouts(), allocator.inner().used()), (0, 0));
    }
}
