//! Asking somebody to make room, then trying again.
//!
//! Memory often sits where only the program can free it: a cache of its own, an idle session. RMM calls the
//! adaptor for that `failure_callback_resource_adaptor`. Here the number of attempts is bounded, so that a
//! hopeful callback cannot loop for ever, and requests that would rather fail fast (`retry` off) are left
//! alone.

use crate::shield::{report as trace, shielded};
use crate::{Allocator, Error, OutOfMemory, RawBlock, Request, Result};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a callback decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Something was freed, or may have been: try again.
    Retry,
    /// Nothing helps: fail.
    GiveUp,
}

type Callback = dyn Fn(&Request, u32, &OutOfMemory) -> Decision + Send + Sync;

/// Calls back when upstream is out of memory, and retries if told to.
///
/// The callback gets the request, the number of the attempt that just failed (from 1) and its report. It runs
/// without any lock of this crate held and may free blocks of the same allocator, or allocate others (whose failure calls
/// it again, below itself). A panic counts as [`Decision::GiveUp`], and is traced. After
/// `max_retries` retries, or [`Decision::GiveUp`], the last error is the caller's.
///
/// ```
/// use orlop_alloc::adaptor::{Decision, Limit, Retry};
/// use orlop_alloc::{backing::System, engine::Direct, AllocatorRef, Block, Request};
/// use std::sync::{Arc, Mutex};
///
/// let cache: Arc<Mutex<Vec<Block>>> = Arc::default();
/// let limited = Limit::new(Direct::engine(System::new()), 1000);
/// let allocator = AllocatorRef::new(Retry::new(limited, 3, {
///     let cache = cache.clone();
///     move |_, _, _| {
///         let freed = cache.lock().map(|mut cache| cache.pop());
///         if matches!(freed, Ok(Some(_))) { Decision::Retry } else { Decision::GiveUp }
///     }
/// }));
/// let old = allocator.allocate(&Request::new(800))?;
/// if let Ok(mut cache) = cache.lock() {
///     cache.push(old);
/// }
/// let _new = allocator.allocate(&Request::new(800))?;
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
pub struct Retry<A> {
    inner: A,
    max_retries: u32,
    callback: Box<Callback>,
    retries: AtomicU64,
    rescued: AtomicU64,
}

impl<A: Allocator> Retry<A> {
    /// Over `inner`, with at most `max_retries` further attempts per request.
    #[must_use]
    pub fn new(
        inner: A,
        max_retries: u32,
        callback: impl Fn(&Request, u32, &OutOfMemory) -> Decision + Send + Sync + 'static,
    ) -> Self {
        let zero = || AtomicU64::new(0);
        Self { inner, max_retries, callback: Box::new(callback), retries: zero(), rescued: zero() }
    }

    /// Attempts made after a failure.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Requests that failed first and succeeded later.
    #[must_use]
    pub fn rescued(&self) -> u64 {
        self.rescued.load(Ordering::Relaxed)
    }

    /// What is tried again.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    #[cold]
    fn rescue(&self, request: &Request, mut report: Box<OutOfMemory>) -> Result<RawBlock> {
        for attempt in 1..=self.max_retries {
            // Accounts above have charged the request: they are to see it fail, not to be unwound.
            match shielded(|| (self.callback)(request, attempt, &report)) {
                Some(Decision::Retry) => {}
                Some(Decision::GiveUp) => break,
                None => {
                    trace(|| tracing::error!(allocator = self.inner.name(), "a retry callback panicked"));
                    break;
                }
            }
            self.retries.fetch_add(1, Ordering::Relaxed);
            match self.inner.allocate(request) {
                Ok(block) => {
                    self.rescued.fetch_add(1, Ordering::Relaxed);
                    return Ok(block);
                }
                Err(Error::OutOfMemory(again)) => report = again,
                Err(other) => return Err(other),
            }
        }
        Err(Error::OutOfMemory(report))
    }
}

// SAFETY: blocks are upstream's, unchanged, and go back to it.
unsafe impl<A: Allocator> Allocator for Retry<A> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        match self.inner.allocate(request) {
            Err(Error::OutOfMemory(report)) if request.retry => self.rescue(request, report),
            result => result,
        }
    }

    forward!(inner: deallocate, deallocate_raw, grow_in_place, name, device, device_memory, usage, reset_peak,
        semantics, trim, find, has_tracked_sizes, has_raw_deleter, has_opaque_handles, set_safe_frontier,
        describe, verify, watch_regions, allocated_size_slow, set_statistics);
}

impl<A: fmt::Debug> fmt::Debug for Retry<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("inner", &self.inner)
            .field("max_retries", &self.max_retries)
            .field("retries", &self.retries)
            .field("rescued", &self.rescued)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::AllocatorRef;
    use crate::Refusal;
    use crate::adaptor::Failing;
    use crate::backing::Null;
    use crate::engine::Direct;
    use orlop_core::{Device, MemoryKind};
    use orlop_sync::Mutex;
    use std::sync::Arc;

    type Log = Arc<Mutex<Vec<(usize, u32, Refusal)>>>;

    fn retrying(max_retries: u32, give_up_at: u32) -> (AllocatorRef<Retry<Failing<Direct<Null>>>>, Log) {
        let log = Log::default();
        let engine = Failing::new(Direct::engine(Null::new(Device::cuda(0))), []);
        let callback = {
            let log = log.clone();
            move |request: &Request, attempt: u32, report: &OutOfMemory| {
                log.lock().push((request.bytes, attempt, report.refusal));
                if attempt >= give_up_at { Decision::GiveUp } else { Decision::Retry }
            }
        };
        (AllocatorRef::new(Retry::new(engine, max_retries, callback)), log)
    }

    #[test]
    fn retries_until_it_works() {
        let (allocator, log) = retrying(5, u32::MAX);
        allocator.inner().fail_next(2);
        assert!(allocator.allocate(&Request::new(9)).is_ok());
        assert_eq!(*log.lock(), [(9, 1, Refusal::Injected), (9, 2, Refusal::Injected)]);
        assert_eq!((allocator.retries(), allocator.rescued()), (2, 1));
    }

    #[test]
    fn attempts_are_bounded_and_the_callback_can_give_up() {
        let (allocator, log) = retrying(3, u32::MAX);
        allocator.inner().fail_next(u64::MAX);
        assert!(allocator.allocate(&Request::new(9)).unwrap_err().is_out_of_memory());
        assert_eq!((allocator.inner().calls(), log.lock().len()), (4, 3));
        let (allocator, log) = retrying(3, 1);
        allocator.inner().fail_next(u64::MAX);
        assert!(allocator.allocate(&Request::new(9)).is_err());
        assert_eq!((allocator.inner().calls(), log.lock().len()), (1, 1));
    }

    #[test]
    fn only_for_out_of_memory_and_only_if_wanted() {
        let (allocator, log) = retrying(3, u32::MAX);
        allocator.inner().fail_next(1);
        assert!(allocator.allocate(&Request::new(9).no_retry()).is_err());
        assert!(allocator.allocate(&Request::new(9).kind(MemoryKind::HostPinned)).is_err());
        assert!(log.lock().is_empty());
    }
}
