//! An adaptor that limits the live bytes of an allocator.
//!
//! The bytes are reserved *before* the upstream is called and adjusted to the granted bytes before the block
//! is handed out. Whatever threads do at the same time, the sum of granted bytes in live blocks never exceeds
//! the limit. The price: of two requests that race for the last bytes, both may be refused although either
//! alone would have fitted.

use super::name_over;
use crate::Refusal;
use crate::{Allocator, Error, LookupResult, OutOfMemory, RawBlock, Request, Result, forward};
use orlop_core::Alignment;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// An adaptor that keeps the granted bytes of its live blocks at or below a limit.
///
/// Bytes are counted as granted, after the upstream's rounding. A refusal is [`Error::OutOfMemory`] with
/// [`Refusal::Limit`]; its `reserved` is the granted bytes of live blocks.
///
/// A block that grows in place is first charged for the next multiple of 256 bytes, and refused if that
/// exceeds the limit. If the upstream rounds up further, the granted bytes may exceed the limit by the
/// difference, because growth cannot be undone. They are counted.
///
/// ```
/// use orlop_alloc::adaptor::Limit;
/// use orlop_alloc::{Allocator, backing::System, engine::Direct, Request};
///
/// let allocator = Limit::new(Direct::new(System::new()), 1000).into_ref();
/// let first = allocator.allocate(&Request::new(600))?;
/// assert!(allocator.allocate(&Request::new(600)).is_err());
/// drop(first);
/// assert!(allocator.allocate(&Request::new(600)).is_ok());
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug)]
pub struct Limit<A> {
    inner: A,
    name: Box<str>,
    limit: AtomicUsize,
    /// Granted bytes of live blocks, and reservations of requests in progress.
    used: AtomicUsize,
    refusals: AtomicU64,
}

/// Bytes reserved from the limit, returned on drop unless kept.
struct Reservation<'a> {
    used: &'a AtomicUsize,
    bytes: usize,
}

impl Reservation<'_> {
    /// Reserves `more` bytes. The error is the number of bytes in use.
    fn grow(&mut self, limit: usize, more: usize) -> Result<(), usize> {
        // Relaxed, here and below: the count guards no other data, and its own changes have a total order.
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(more).filter(|&sum| sum <= limit)
        })?;
        self.bytes += more;
        Ok(())
    }

    fn keep(mut self) {
        self.bytes = 0;
    }

    /// Keeps the reservation, adjusted to the granted bytes.
    fn settle(mut self, needed: usize) {
        let more = needed.saturating_sub(self.bytes);
        self.used.fetch_add(more, Ordering::Relaxed);
        self.bytes = self.bytes.saturating_sub(needed);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl<A: Allocator> Limit<A> {
    /// Creates an adaptor over `inner` whose live blocks have at most `bytes` granted bytes.
    #[must_use]
    pub fn new(inner: A, bytes: usize) -> Self {
        Self {
            name: name_over("limit", &inner),
            inner,
            limit: AtomicUsize::new(bytes),
            used: AtomicUsize::new(0),
            refusals: AtomicU64::new(0),
        }
    }

    /// Returns the limit, in bytes.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. Live blocks stay; while they exceed the new limit, every request is refused.
    pub fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Returns the granted bytes in use, with those of requests in progress.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the number of requests that the limit has refused.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Returns the upstream.
    pub fn inner(&self) -> &A {
        &self.inner
    }

    #[cold]
    fn refuse(&self, request: &Request, granted: Option<usize>, limit: usize, used: usize) -> Error {
        self.refusals.fetch_add(1, Ordering::Relaxed);
        let mut report = OutOfMemory::new(Refusal::Limit, &self.name, self.inner.device(), request);
        (report.rounded, report.rounded_is_minimum) = (granted.unwrap_or(request.bytes), granted.is_none());
        report.live = used as u64;
        report.reserved = used as u64;
        report.limit = Some(limit as u64);
        report.into()
    }
}

// SAFETY: blocks are upstream's, unchanged, and go back to it; some requests are refused.
unsafe impl<A: Allocator> Allocator for Limit<A> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        let limit = self.limit();
        let mut reservation = Reservation { used: &self.used, bytes: 0 };
        if let Err(used) = reservation.grow(limit, request.bytes) {
            return Err(self.refuse(request, None, limit, used));
        }
        let block = self.inner.allocate(request)?;
        let rounded = block.granted;
        let Err(used) = reservation.grow(limit, rounded.saturating_sub(request.bytes)) else {
            reservation.keep();
            return Ok(block);
        };
        // SAFETY: it was just allocated there and no other code has its address.
        if let Err(error) = unsafe { self.inner.deallocate(block) } {
            // The upstream keeps the block, so its bytes stay counted.
            reservation.keep();
            return Err(error);
        }
        let others = used - reservation.bytes.min(used);
        Err(self.refuse(request, Some(rounded), limit, others))
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        let granted = block.granted;
        // SAFETY: guaranteed by the caller; upstream's own block.
        unsafe { self.inner.deallocate(block) }?;
        self.used.fetch_sub(granted, Ordering::Relaxed);
        Ok(())
    }

    unsafe fn grow_in_place(&self, block: &mut RawBlock, bytes: usize) -> bool {
        let granted = block.granted;
        let Ok(rounded) = Alignment::PLANNED.round_up(bytes) else { return false };
        let mut reservation = Reservation { used: &self.used, bytes: 0 };
        if reservation.grow(self.limit(), rounded.saturating_sub(granted)).is_err() {
            return false;
        }
        // SAFETY: guaranteed by the caller; upstream's own block.
        let grown = unsafe { self.inner.grow_in_place(block, bytes) };
        if grown {
            reservation.settle(block.granted.saturating_sub(granted));
        }
        grown
    }

    fn name(&self) -> &str {
        &self.name
    }

    unsafe fn deallocate_raw(&self, ptr: NonNull<u8>, requested: Option<usize>) -> Result<LookupResult> {
        // SAFETY: guaranteed by the caller; upstream's own block.
        let found = unsafe { self.inner.deallocate_raw(ptr, requested) }?;
        self.used.fetch_sub(found.granted, Ordering::Relaxed);
        Ok(found)
    }

    forward!(inner; except deallocate, deallocate_raw, grow_in_place, name);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::backing::{Null, System};
    use crate::bfc::Bfc;
    use crate::engine::Direct;
    use orlop_core::Device;
    use std::sync::atomic::AtomicUsize;

    fn report(error: Error) -> OutOfMemory {
        match error {
            Error::OutOfMemory(report) => *report,
            other => panic!("not out of memory: {other}"),
        }
    }

    #[test]
    fn counts_granted_bytes_exactly() {
        let allocator = Limit::new(Bfc::new(System::new()), 2048).into_ref();
        let block = allocator.allocate(&Request::new(1000)).unwrap();
        assert_eq!(allocator.used(), 1024);
        // 1000 bytes would fit, the 1024 granted for them do; 1025 do not.
        let second = allocator.allocate(&Request::new(1000)).unwrap();
        assert_eq!(allocator.used(), 2048);
        let refused = report(allocator.allocate(&Request::new(1)).unwrap_err());
        assert_eq!((refused.refusal, refused.live, refused.limit), (Refusal::Limit, 2048, Some(2048)));
        drop((block, second));
        assert_eq!((allocator.used(), allocator.refusals()), (0, 1));
    }

    #[test]
    fn a_grant_above_the_limit_goes_back_upstream() {
        let upstream = Bfc::new(System::new()).into_ref();
        let allocator = Limit::new(upstream.clone(), 1000).into_ref();
        let refused = report(allocator.allocate(&Request::new(1000)).unwrap_err());
        assert_eq!((refused.requested, refused.rounded, refused.reserved), (1000, 1024, 0));
        assert_eq!((allocator.used(), upstream.stats().live()), (0, 0));
        assert!(refused.hint().contains("would have fitted"), "{}", refused.hint());
    }

    #[test]
    fn raw_frees_are_counted_and_refused_ones_are_not() {
        let allocator = Limit::new(Bfc::new(System::new()), 4096).into_ref();
        let ptr = allocator.allocate(&Request::new(100)).unwrap().into_raw_ptr().unwrap();
        // SAFETY: given away just now, freed once; the second time it is refused before anything is touched.
        unsafe { allocator.free(ptr, None) }.unwrap();
        assert_eq!(allocator.used(), 0);
        // SAFETY: the engine finds no live block there and changes nothing.
        assert!(unsafe { allocator.free(ptr, None) }.is_err());
        assert_eq!(allocator.used(), 0);
    }

    #[test]
    fn an_upstream_failure_and_overflow_leave_nothing_reserved() {
        let null = Direct::new(Null::with_limit(Device::CPU, 100));
        let allocator = Limit::new(null, usize::MAX).into_ref();
        assert_eq!(report(allocator.allocate(&Request::new(101)).unwrap_err()).refusal, Refusal::Backing);
        let _block = allocator.allocate(&Request::new(10)).unwrap();
        assert_eq!(
            report(allocator.allocate(&Request::new(usize::MAX)).unwrap_err()).refusal,
            Refusal::Limit
        );
        assert_eq!(allocator.used(), 10);
        allocator.set_limit(5);
        assert!(allocator.allocate(&Request::new(1)).is_err());
    }

    #[test]
    fn threads_never_pass_the_limit_together() {
        const LIMIT: usize = 10_000;
        let allocator = Limit::new(Direct::new(System::new()).into_ref().erase(), LIMIT).into_ref();
        let held = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (allocator, held) = (&allocator, &held);
                scope.spawn(move || {
                    let rounds = if cfg!(miri) { 5 } else { 500 };
                    for round in 0..rounds {
                        let bytes = 1000 + (thread * 131 + round * 37) % 3000;
                        if let Ok(block) = allocator.allocate(&Request::new(bytes)) {
                            let now = held.fetch_add(block.capacity(), Ordering::SeqCst) + block.capacity();
                            assert!(now <= LIMIT, "{now}");
                            held.fetch_sub(block.capacity(), Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        assert_eq!(allocator.used(), 0);
    }
}
