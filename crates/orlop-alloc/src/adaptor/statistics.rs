//! Counters with nested scopes: what did *this phase* allocate?
//!
//! [`AllocatorRef::stats`](crate::AllocatorRef::stats) answers for an allocator's whole life. Here a program
//! pushes a scope before a phase and pops it after, as in RMM's `statistics_resource_adaptor`: the popped
//! figures are the phase's own, and the scope around it goes on as if there had been none.
//!
//! All counters change together under one mutex, so that peaks and totals agree exactly. That is one lock per
//! call: the adaptor is for measuring, not for serving.

use crate::{Allocator, Found, RawBlock, Request, Result};
use orlop_sync::Mutex;
use std::mem;
use std::ptr::NonNull;

/// One figure of a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counter {
    /// Now, counted from the beginning of the scope. Negative after frees of what is older than the scope.
    pub current: i64,
    /// The highest `current` was; at least zero.
    pub peak: i64,
    /// The sum of all increases.
    pub total: i64,
    /// How many increases there were.
    pub count: u64,
}

impl Counter {
    fn add(&mut self, amount: i64) {
        self.current = self.current.saturating_add(amount);
        self.peak = self.peak.max(self.current);
        self.total = self.total.saturating_add(amount);
        self.count += 1;
    }

    fn subtract(&mut self, amount: i64) {
        self.current = self.current.saturating_sub(amount);
    }

    /// Takes in what happened in a scope inside.
    fn absorb(&mut self, inside: &Self) {
        self.peak = self.peak.max(self.current.saturating_add(inside.peak));
        self.current = self.current.saturating_add(inside.current);
        self.total = self.total.saturating_add(inside.total);
        self.count += inside.count;
    }
}

/// What happened in a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Bytes granted.
    pub granted: Counter,
    /// Bytes as users asked for them.
    pub requested: Counter,
    /// Blocks.
    pub blocks: Counter,
}

impl Counters {
    fn each(&mut self, granted: usize, requested: usize, change: fn(&mut Counter, i64)) {
        change(&mut self.granted, i64::try_from(granted).unwrap_or(i64::MAX));
        change(&mut self.requested, i64::try_from(requested).unwrap_or(i64::MAX));
        change(&mut self.blocks, 1);
    }

    /// A block that became larger by so many bytes.
    fn grow(&mut self, granted: usize, requested: usize) {
        self.granted.add(i64::try_from(granted).unwrap_or(i64::MAX));
        self.requested.add(i64::try_from(requested).unwrap_or(i64::MAX));
    }

    fn absorb(&mut self, inside: &Self) {
        self.granted.absorb(&inside.granted);
        self.requested.absorb(&inside.requested);
        self.blocks.absorb(&inside.blocks);
    }

    fn reset_peaks(&mut self) {
        for counter in [&mut self.granted, &mut self.requested, &mut self.blocks] {
            counter.peak = counter.current.max(0);
        }
    }
}

#[derive(Debug, Default)]
struct Scopes {
    /// Outside, in order from the outermost. Each holds what happened before the next was pushed.
    outer: Vec<Counters>,
    innermost: Counters,
}

/// Counts what goes through, by scope (P17).
///
/// ```
/// use orlop_alloc::adaptor::Statistics;
/// use orlop_alloc::{backing::System, engine::Direct, AllocatorRef, Request};
///
/// let allocator = AllocatorRef::new(Statistics::new(Direct::engine(System::new())));
/// let kept = allocator.allocate(&Request::new(100))?;
/// let ((), phase) = allocator.measure(|| {
///     let _scratch = allocator.allocate(&Request::new(50));
/// });
/// assert_eq!((phase.requested.peak, phase.requested.current), (50, 0));
/// assert_eq!(allocator.counters().requested.peak, 150);
/// # drop(kept);
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug)]
pub struct Statistics<A> {
    inner: A,
    scopes: Mutex<Scopes>,
}

impl<A: Allocator> Statistics<A> {
    /// Over `inner`, with the outermost scope open.
    #[must_use]
    pub fn new(inner: A) -> Self {
        Self { inner, scopes: Mutex::new(Scopes::default()) }
    }

    /// The innermost scope's figures so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.scopes.lock().innermost
    }

    /// The figures of the outermost scope, everything inside it included.
    #[must_use]
    pub fn overall(&self) -> Counters {
        let scopes = self.scopes.lock();
        let mut sum = scopes.innermost;
        for outer in scopes.outer.iter().rev() {
            let inside = mem::replace(&mut sum, *outer);
            sum.absorb(&inside);
        }
        sum
    }

    /// How many scopes are open: at least one.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.scopes.lock().outer.len() + 1
    }

    /// Opens a scope: figures begin at zero. Returns those of the scope outside, so far.
    pub fn push(&self) -> Counters {
        let mut scopes = self.scopes.lock();
        let outside = mem::take(&mut scopes.innermost);
        scopes.outer.push(outside);
        outside
    }

    /// Closes the innermost scope, returns its figures and adds them to the scope outside. `None` if only
    /// the outermost is open: it cannot be closed.
    pub fn pop(&self) -> Option<Counters> {
        let mut scopes = self.scopes.lock();
        let outside = scopes.outer.pop()?;
        let inside = mem::replace(&mut scopes.innermost, outside);
        scopes.innermost.absorb(&inside);
        Some(inside)
    }

    /// Runs `phase` in a scope of its own. Scopes belong to the allocator, not to a thread: what others do
    /// meanwhile is counted too.
    pub fn measure<R>(&self, phase: impl FnOnce() -> R) -> (R, Counters) {
        struct Pop<'a, A: Allocator>(&'a Statistics<A>);
        impl<A: Allocator> Drop for Pop<'_, A> {
            fn drop(&mut self) {
                // After a panic in the phase its figures interest nobody, but the scope must go.
                let _ = self.0.pop();
            }
        }
        self.push();
        let pop = Pop(self);
        let result = phase();
        mem::forget(pop);
        // Without a scope to close, someone closed it from inside: nothing is left to report.
        (result, self.pop().unwrap_or_default())
    }

    /// Makes the innermost scope's peaks start again from now.
    pub fn reset_peaks(&self) {
        self.scopes.lock().innermost.reset_peaks();
    }

    /// What is counted.
    pub fn inner(&self) -> &A {
        &self.inner
    }
}

// SAFETY: blocks are upstream's, unchanged, and go back to it.
unsafe impl<A: Allocator> Allocator for Statistics<A> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        let block = self.inner.allocate(request)?;
        self.scopes.lock().innermost.each(block.granted, block.requested, Counter::add);
        Ok(block)
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        let (granted, requested) = (block.granted, block.requested);
        // SAFETY: the caller's promises; upstream's own block.
        unsafe { self.inner.deallocate(block) }?;
        self.scopes.lock().innermost.each(granted, requested, Counter::subtract);
        Ok(())
    }

    unsafe fn grow_in_place(&self, block: &mut RawBlock, bytes: usize) -> bool {
        let (granted, requested) = (block.granted, block.requested);
        // SAFETY: the caller's promise; upstream's own block.
        let grown = unsafe { self.inner.grow_in_place(block, bytes) };
        if grown {
            let (more, asked) =
                (block.granted.saturating_sub(granted), block.requested.saturating_sub(requested));
            self.scopes.lock().innermost.grow(more, asked);
        }
        grown
    }

    unsafe fn deallocate_raw(&self, ptr: NonNull<u8>, requested: Option<usize>) -> Result<Found> {
        // SAFETY: the caller's promises; upstream's own block.
        let found = unsafe { self.inner.deallocate_raw(ptr, requested) }?;
        self.scopes.lock().innermost.each(found.granted, found.requested, Counter::subtract);
        Ok(found)
    }

    fn reset_peak(&self) {
        self.reset_peaks();
        self.inner.reset_peak();
    }

    forward!(inner: name, device, device_memory, usage, semantics, trim, find, tracks_sizes, has_raw_deleter,
        opaque_handles, set_safe_frontier, describe, verify, watch_regions, allocated_size_slow,
        set_statistics);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::AllocatorRef;
    use crate::backing::System;
    use crate::bfc::Bfc;

    #[test]
    fn scopes_nest_and_add_up() {
        let allocator = AllocatorRef::new(Statistics::new(Bfc::builder(System::new()).build_engine()));
        let old = allocator.allocate(&Request::new(1000)).unwrap();
        allocator.push();
        let new = allocator.allocate(&Request::new(300)).unwrap();
        drop(old);
        assert_eq!(allocator.depth(), 2);
        let inside = allocator.pop().unwrap();
        assert_eq!(inside.granted, Counter { current: 512 - 1024, peak: 512, total: 512, count: 1 });
        assert_eq!(inside.requested, Counter { current: -700, peak: 300, total: 300, count: 1 });
        let overall = allocator.counters();
        assert_eq!(overall.granted, Counter { current: 512, peak: 1536, total: 1536, count: 2 });
        assert_eq!(overall.blocks, Counter { current: 1, peak: 2, total: 2, count: 2 });
        assert_eq!(allocator.pop(), None);
        allocator.reset_peaks();
        assert_eq!(allocator.counters().requested.peak, 300);
        drop(new);
        assert_eq!(allocator.counters().blocks.current, 0);
    }

    #[test]
    fn overall_sees_through_open_scopes_and_panics_close_theirs() {
        let allocator = AllocatorRef::new(Statistics::new(Bfc::builder(System::new()).build_engine()));
        allocator.push();
        let _block = allocator.allocate(&Request::new(256)).unwrap();
        allocator.push();
        assert_eq!(allocator.overall().granted.current, 256);
        assert_eq!(allocator.counters(), Counters::default());
        let phase = || allocator.measure(|| panic!("phase"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(phase)).is_err());
        assert_eq!(allocator.depth(), 3);
    }

    #[test]
    fn failures_change_nothing() {
        let engine = Bfc::builder(System::new()).limit(1024).build_engine();
        let allocator = AllocatorRef::new(Statistics::new(engine));
        assert!(allocator.allocate(&Request::new(4096)).is_err());
        assert_eq!(allocator.counters(), Counters::default());
    }
}
