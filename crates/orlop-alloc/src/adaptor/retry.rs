//! An adaptor that calls back when memory is short, then tries again.
//!
//! Only the program can free some memory: its own caches, idle sessions. RMM's adaptor for that is
//! `failure_callback_resource_adaptor`. Here the number of attempts is bounded, so that no callback causes an
//! endless loop, and requests with `retry` off fail at once.

use crate::{Allocator, Error, OutOfMemory, RawBlock, Request, Result, forward};
use orlop_host::shield::{report as trace, shielded};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// The decision of a callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Memory was freed, or may have been: try again.
    Retry,
    /// No memory can be freed: fail.
    GiveUp,
}

type Callback = dyn Fn(&Request, u32, &OutOfMemory) -> Decision + Send + Sync;

/// An adaptor that calls back when the upstream is out of memory, and retries on [`Decision::Retry`].
///
/// The callback gets the request, the number of the attempt that failed (from 1) and its report. No lock of
/// this crate is held while it runs: it may free blocks of the same allocator, or allocate others (whose
/// failure calls it recursively). A panic counts as [`Decision::GiveUp`] and is traced. After `max_retries`
/// retries, or [`Decision::GiveUp`], the caller gets the last error.
///
/// ```
/// use orlop_alloc::adaptor::{Decision, Limit, Retry};
/// use orlop_alloc::{Allocator, backing::System, engine::Direct, Block, Request};
/// use std::sync::{Arc, Mutex};
///
/// let cache: Arc<Mutex<Vec<Block>>> = Arc::default();
/// let limited = Limit::new(Direct::new(System::new()), 1000);
/// let allocator = Retry::new(limited, 3, {
///     let cache = cache.clone();
///     move |_, _, _| {
///         let freed = cache.lock().map(|mut cache| cache.pop());
///         if matches!(freed, Ok(Some(_))) { Decision::Retry } else { Decision::GiveUp }
///     }
/// }).into_ref();
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
    /// Creates an adaptor over `inner` that retries each request at most `max_retries` times.
    #[must_use]
    pub fn new(
        inner: A,
        max_retries: u32,
        callback: impl Fn(&Request, u32, &OutOfMemory) -> Decision + Send + Sync + 'static,
    ) -> Self {
        let zero = || AtomicU64::new(0);
        Self { inner, max_retries, callback: Box::new(callback), retries: zero(), rescued: zero() }
    }

    /// Returns the number of attempts after a failure.
    #[must_use]
    pub fn retries(&self) -> u64 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that failed first and succeeded later.
    #[must_use]
    pub fn rescued(&self) -> u64 {
        self.rescued.load(Ordering::Relaxed)
    }

    /// Returns the upstream.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    #[cold]
    fn rescue(&self, request: &Request, mut report: Box<OutOfMemory>) -> Result<RawBlock> {
        for attempt in 1..=self.max_retries {
            // Adaptors above have charged the request: they must see an error, not an unwinding panic.
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

    forward!(inner);
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
        let engine = Failing::new(Direct::new(Null::new(Device::cuda(0))), []);
        let callback = {
            let log = log.clone();
            move |request: &Request, attempt: u32, report: &OutOfMemory| {
                log.lock().push((request.bytes, attempt, report.refusal));
                if attempt >= give_up_at { Decision::GiveUp } else { Decision::Retry }
            }
        };
        (Retry::new(engine, max_retries, callback).into_ref(), log)
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
