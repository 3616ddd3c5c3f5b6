//! Counters with nested scopes: what did *this phase* allocate?
//!
//! [`AllocatorRef::stats`](orlop_alloc::AllocatorRef::stats) counts over an allocator's whole life. Here a
//! program opens a scope before a phase and closes it afterwards, as in RMM's `statistics_resource_adaptor`:
//! the closed scope has the figures of the phase, and the enclosing scope continues as if there had been
//! none.
//!
//! All counters change together under one mutex, so that peaks and totals agree exactly. That is one lock per
//! event: it is for measurements.

use orlop_alloc::{Event, Observer};
use orlop_sync::Mutex;
use std::mem;

/// One figure of a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counter {
    /// The change since the beginning of the scope. Negative after frees of blocks older than the scope.
    pub current: i64,
    /// The maximum of `current`; at least zero.
    pub peak: i64,
    /// The sum of all increases.
    pub total: i64,
    /// The number of increases.
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

    /// Undoes a `subtract`.
    fn restore(&mut self, amount: i64) {
        self.current = self.current.saturating_add(amount);
    }

    /// Adds the figures of a scope inside.
    fn absorb(&mut self, inside: &Self) {
        self.peak = self.peak.max(self.current.saturating_add(inside.peak));
        self.current = self.current.saturating_add(inside.current);
        self.total = self.total.saturating_add(inside.total);
        self.count += inside.count;
    }
}

/// The figures of a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Bytes granted.
    pub granted: Counter,
    /// Requested bytes.
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

    /// Counts a block that grew by `granted` and `requested` bytes.
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
    /// The scopes around the innermost one, from the outermost. Each has its figures from before the next was
    /// opened.
    outer: Vec<Counters>,
    innermost: Counters,
}

/// Counts granted bytes, requested bytes and blocks by scope: see [the module](super) for an example.
#[derive(Debug, Default)]
pub struct Statistics {
    scopes: Mutex<Scopes>,
}

impl Statistics {
    /// Creates the counters, with the outermost scope open.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the figures of the innermost scope.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.scopes.lock().innermost
    }

    /// Returns the figures of the outermost scope, open scopes inside included.
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

    /// Returns the number of open scopes, at least one.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.scopes.lock().outer.len() + 1
    }

    /// Opens a scope, whose figures start at zero. Returns the figures of the scope around it.
    pub fn push(&self) -> Counters {
        let mut scopes = self.scopes.lock();
        let outside = mem::take(&mut scopes.innermost);
        scopes.outer.push(outside);
        outside
    }

    /// Closes the innermost scope, returns its figures and adds them to the scope around it. Returns `None`
    /// if only the outermost is open: it cannot be closed.
    pub fn pop(&self) -> Option<Counters> {
        let mut scopes = self.scopes.lock();
        let outside = scopes.outer.pop()?;
        let inside = mem::replace(&mut scopes.innermost, outside);
        scopes.innermost.absorb(&inside);
        Some(inside)
    }

    /// Runs `phase` in a scope of its own. Scopes do not belong to a thread: events of other threads are
    /// counted too.
    pub fn measure<R>(&self, phase: impl FnOnce() -> R) -> (R, Counters) {
        struct Pop<'a>(&'a Statistics);
        impl Drop for Pop<'_> {
            fn drop(&mut self) {
                // After a panic in the phase.
                let _ = self.0.pop();
            }
        }
        self.push();
        let pop = Pop(self);
        let result = phase();
        mem::forget(pop);
        // `None` if the phase closed the scope itself.
        (result, self.pop().unwrap_or_default())
    }

    /// Restarts the peaks of the innermost scope from their current values.
    pub fn reset_peaks(&self) {
        self.scopes.lock().innermost.reset_peaks();
    }
}

impl Observer for Statistics {
    fn observe(&self, event: &Event<'_>) {
        let count = |granted, requested, change| {
            self.scopes.lock().innermost.each(granted, requested, change);
        };
        match event {
            Event::Allocated { block, .. } => count(block.granted, block.requested, Counter::add),
            Event::Grown { block, granted, requested, .. } => {
                let more = block.granted.saturating_sub(*granted);
                self.scopes.lock().innermost.grow(more, block.requested.saturating_sub(*requested));
            }
            Event::Freed { block, .. } => count(block.granted, block.requested, Counter::subtract),
            Event::RawFreed { found, .. } => count(found.granted, found.requested, Counter::subtract),
            // It stays live.
            Event::FreeRefused { block: Some(found), .. } => {
                count(found.granted, found.requested, Counter::restore);
            }
            _ => {}
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use orlop_alloc::backing::System;
    use orlop_alloc::bfc::Bfc;
    use orlop_alloc::{Allocator, AllocatorRef, Request};
    use std::sync::Arc;

    fn counted(limit: usize) -> (AllocatorRef<Bfc<System>>, Arc<Statistics>) {
        let (allocator, statistics) =
            (Bfc::builder(System::new()).limit(limit).build().into_ref(), Arc::default());
        allocator.add_observer(Arc::clone(&statistics) as Arc<dyn Observer>);
        (allocator, statistics)
    }

    #[test]
    fn scopes_nest_and_add_up() {
        let (allocator, statistics) = counted(usize::MAX);
        let old = allocator.allocate(&Request::new(1000)).unwrap();
        statistics.push();
        let new = allocator.allocate(&Request::new(300)).unwrap();
        drop(old);
        assert_eq!(statistics.depth(), 2);
        let inside = statistics.pop().unwrap();
        assert_eq!(inside.granted, Counter { current: 512 - 1024, peak: 512, total: 512, count: 1 });
        assert_eq!(inside.requested, Counter { current: -700, peak: 300, total: 300, count: 1 });
        let overall = statistics.counters();
        assert_eq!(overall.granted, Counter { current: 512, peak: 1536, total: 1536, count: 2 });
        assert_eq!(overall.blocks, Counter { current: 1, peak: 2, total: 2, count: 2 });
        assert_eq!(statistics.pop(), None);
        statistics.reset_peaks();
        assert_eq!(statistics.counters().requested.peak, 300);
        drop(new);
        assert_eq!(statistics.counters().blocks.current, 0);
    }

    #[test]
    fn overall_sees_through_open_scopes_and_panics_close_theirs() {
        let (allocator, statistics) = counted(usize::MAX);
        statistics.push();
        let _block = allocator.allocate(&Request::new(256)).unwrap();
        statistics.push();
        assert_eq!(statistics.overall().granted.current, 256);
        assert_eq!(statistics.counters(), Counters::default());
        let phase = || statistics.measure(|| panic!("phase"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(phase)).is_err());
        assert_eq!(statistics.depth(), 3);
    }

    #[test]
    fn failures_change_nothing() {
        let (allocator, statistics) = counted(1024);
        assert!(allocator.allocate(&Request::new(4096)).is_err());
        assert_eq!(statistics.counters(), Counters::default());
    }
}
