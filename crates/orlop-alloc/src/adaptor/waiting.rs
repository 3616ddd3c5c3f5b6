//! An adaptor that waits for other threads to return memory.
//!
//! When several steps share a device, "out of memory" often means "not yet": another step is about to return
//! its blocks. TensorFlow's `AllocatorRetry` therefore waits up to a deadline and tries again whenever memory
//! is returned. A request with `retry` off fails at once.
//!
//! # No wake-up is lost
//!
//! A waiter reads the number of returns *before* its attempt and sleeps only while the number stays the same.
//! A return increments the number *after* the upstream has the block, under the same mutex. A return during
//! the attempt is therefore noticed. Every free takes that mutex, about 4 ns uncontended: use this adaptor
//! only where waiting is wanted.

use crate::{Allocator, Error, LookupResult, RawBlock, Request, Result, forward};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An adaptor that waits up to a given time for a block to be returned before a request fails.
///
/// Only blocks returned *through this adaptor* end a wait; a free through another handle of the upstream does
/// not. The deadline counts from a request's first failure.
///
/// ```
/// use orlop_alloc::adaptor::{Limit, Waiting};
/// use orlop_alloc::{Allocator, backing::System, engine::Direct, Request};
/// use std::time::Duration;
///
/// let limited = Limit::new(Direct::new(System::new()), 1000);
/// let allocator = Waiting::new(limited, Duration::from_secs(10)).into_ref();
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
    /// The number of returns.
    count: u64,
    /// The number of threads that wait now.
    waiters: usize,
}

impl<A: Allocator> Waiting<A> {
    /// Creates an adaptor over `inner` that waits at most `patience` per request.
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

    /// Returns the number of requests that had to wait.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that waited and failed.
    #[must_use]
    pub fn timeouts(&self) -> u64 {
        self.timeouts.load(Ordering::Relaxed)
    }

    /// Returns the number of threads that wait now.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.returns().waiters
    }

    /// Returns the upstream.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    fn returns(&self) -> MutexGuard<'_, Returns> {
        self.returns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a return and wakes all waiters. Call it after the upstream has the block.
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
        // `None`: the deadline is beyond the range of the clock, so the wait has no end.
        let deadline = Instant::now().checked_add(self.patience);
        loop {
            let seen = self.returns().count;
            let overdue = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let report = match self.inner.allocate(request) {
                Err(Error::OutOfMemory(report)) => report,
                result => return result,
            };
            // The attempt after the deadline is the last, even if blocks are returned all the time.
            if overdue || !self.wait_past(seen, deadline) {
                self.timeouts.fetch_add(1, Ordering::Relaxed);
                return Err(Error::OutOfMemory(report));
            }
        }
    }

    /// Waits until `returns` differs from `seen`. Returns `false` if the deadline passes first.
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
        // SAFETY: guaranteed by the caller; upstream's own block.
        unsafe { self.inner.deallocate(block) }?;
        self.wake();
        Ok(())
    }

    unsafe fn deallocate_raw(&self, ptr: NonNull<u8>, requested: Option<usize>) -> Result<LookupResult> {
        // SAFETY: guaranteed by the caller; upstream's own block.
        let found = unsafe { self.inner.deallocate_raw(ptr, requested) }?;
        self.wake();
        Ok(found)
    }

    fn set_safe_frontier(&self, stamp: u64) {
        self.inner.set_safe_frontier(stamp);
        // Chunks that were freed with a stamp may now be usable.
        self.wake();
    }

    forward!(inner; except deallocate, deallocate_raw, set_safe_frontier);
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
        Waiting::new(Limit::new(Direct::new(Null::new(Device::CPU)), limit), patience).into_ref()
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
