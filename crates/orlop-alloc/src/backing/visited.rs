//! Visitors: called on every region gained or given back (T5), to register memory with a NIC, say.

use super::{Backing, Line, Region};
use crate::Access;
use orlop_core::{Alignment, Device};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// Whether a region came or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The region was just gained; nobody uses it yet.
    Gained,
    /// The region is about to be given back; nobody uses it any more.
    Lost,
}

/// Called with each region and its NUMA node, if known. It must not use the allocator whose region it is: that
/// holds its growth lock meanwhile.
pub type Visitor = Arc<dyn Fn(Change, &Region, Option<u32>) + Send + Sync>;

/// A backing that tells visitors. They are fixed when it is made: a region that was gained in front of a
/// visitor is lost in front of it too.
pub struct Visited<B> {
    inner: B,
    visitors: Vec<Visitor>,
}

impl<B: Backing> Visited<B> {
    /// Tells `visitors`, in this order at gain and in the reverse order at loss.
    #[must_use]
    pub fn new(inner: B, visitors: Vec<Visitor>) -> Self {
        Self { inner, visitors }
    }
}

// SAFETY: regions are the inner backing's, unchanged.
unsafe impl<B: Backing> Backing for Visited<B> {
    fn reserve(&self, bytes: usize, align: Alignment) -> Option<Region> {
        let region = self.inner.reserve(bytes, align)?;
        for visitor in &self.visitors {
            visitor(Change::Gained, &region, self.inner.node());
        }
        Some(region)
    }

    unsafe fn release(&self, region: Region) {
        for visitor in self.visitors.iter().rev() {
            visitor(Change::Lost, &region, self.inner.node());
        }
        // SAFETY: the caller's promise.
        unsafe { self.inner.release(region) };
    }

    fn line(&self, capacity: usize, align: Alignment) -> Option<Line> {
        self.inner.line(capacity, align)
    }

    fn grain(&self) -> Alignment {
        self.inner.grain()
    }

    unsafe fn extend(&self, line: &Line, from: usize, to: usize) -> bool {
        // SAFETY: the caller's promise.
        let gained = unsafe { self.inner.extend(line, from, to) };
        if gained {
            let region = piece(line, from, to);
            for visitor in &self.visitors {
                visitor(Change::Gained, &region, self.inner.node());
            }
        }
        gained
    }

    unsafe fn shorten(&self, line: &Line, from: usize, to: usize) {
        let region = piece(line, to, from);
        for visitor in self.visitors.iter().rev() {
            visitor(Change::Lost, &region, self.inner.node());
        }
        // SAFETY: the caller's promise.
        unsafe { self.inner.shorten(line, from, to) };
    }

    unsafe fn release_line(&self, line: Line, gained: usize) {
        if gained > 0 {
            let region = piece(&line, 0, gained);
            for visitor in self.visitors.iter().rev() {
                visitor(Change::Lost, &region, self.inner.node());
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.inner.release_line(line, gained) };
    }

    unsafe fn discard(&self, ptr: NonNull<u8>, bytes: usize) -> usize {
        // SAFETY: the caller's promise.
        unsafe { self.inner.discard(ptr, bytes) }
    }

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

    unsafe fn zero(&self, ptr: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.inner.zero(ptr, bytes) }
    }
}

/// The bytes of a line from `from` to `to`.
fn piece(line: &Line, from: usize, to: usize) -> Region {
    // SAFETY: inside the line.
    let ptr = unsafe { line.ptr.add(from) };
    Region { ptr, bytes: to - from, align: Alignment::ONE, zeroed: true }
}

impl<B: fmt::Debug> fmt::Debug for Visited<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visited")
            .field("inner", &self.inner)
            .field("visitors", &self.visitors.len())
            .finish_non_exhaustive()
    }
}
