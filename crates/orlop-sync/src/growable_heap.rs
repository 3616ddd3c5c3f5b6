//! A central heap that threads allocate from, and that grows when no free chunk fits.
//!
//! Growing calls the operating system or a driver: microseconds to milliseconds. Holding the heap's lock
//! meanwhile would block every thread that only returns a block (PyTorch's allocator does so across
//! `cudaMalloc`). So growth has a lock of its own, taken *before* the heap's:
//!
//! 1. search the heap under its lock; if a chunk fits, done;
//! 2. take the growth lock, then search again: a thread that grew the heap in the meantime has probably left
//!    enough;
//! 3. if still nothing fits, determine the size under the heap's lock, release that lock, obtain the region,
//!    take the lock again, and add the region and take the chunk in the same critical section, so that no
//!    other thread can take the memory first.
//!
//! Threads that find the heap empty at the same moment thus add one region, not one each, while other threads
//! allocate and free.
//!
//! # Ordering
//!
//! Two mutexes and no atomics. The only lock order is growth → heap: no thread waits for the growth lock
//! while it holds the heap's.

use crate::primitives::{ColdMutex, ColdMutexGuard, Mutex, MutexGuard};

/// The heap inside a [`GrowableHeap`]. The methods run under the heap's lock and must be short.
pub trait CentralHeap {
    /// A request for a chunk.
    type Request<'a>;
    /// A chunk that the heap hands out.
    type Chunk;
    /// What growth adds to the heap: a region, or nothing if growth freed chunks inside the heap instead.
    type Region;

    /// Takes a chunk that fits `request`, or returns `None` if there is none.
    fn take(&mut self, request: &Self::Request<'_>) -> Option<Self::Chunk>;

    /// Adds a region that growth obtained.
    fn add(&mut self, region: Self::Region);
}

/// A way to obtain regions for a [`CentralHeap`]. It runs under the growth lock only, so it may be slow; it
/// may lock the heap briefly.
pub trait HeapGrowth<C: CentralHeap> {
    /// The reason why no region can be obtained.
    type Error;

    /// Obtains a region for `request`, or frees chunks inside the heap. It is called again while the request
    /// does not fit.
    ///
    /// # Errors
    ///
    /// If no more memory can be obtained.
    fn grow(&mut self, heap: &Mutex<C>, request: &C::Request<'_>) -> Result<C::Region, Self::Error>;
}

/// A [`CentralHeap`] with its two locks.
#[derive(Debug)]
pub struct GrowableHeap<C> {
    heap: Mutex<C>,
    growth: ColdMutex<()>,
}

impl<C: CentralHeap> GrowableHeap<C> {
    /// Wraps `heap` in its locks.
    pub fn new(heap: C) -> Self {
        Self { heap: Mutex::new(heap), growth: ColdMutex::new(()) }
    }

    /// Locks the heap. The caller must not wait for anything else while it holds the guard.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, C> {
        self.heap.lock()
    }

    /// Takes a chunk for `request`. The heap grows if none fits.
    ///
    /// # Errors
    ///
    /// The error of `growth` if no more memory can be obtained.
    #[inline]
    pub fn take_or_grow<G: HeapGrowth<C>>(
        &self,
        request: &C::Request<'_>,
        growth: &mut G,
    ) -> Result<C::Chunk, G::Error> {
        // A statement of its own: the guard must be dropped before growth begins.
        let found = self.lock().take(request);
        match found {
            Some(chunk) => Ok(chunk),
            None => self.grow(request, growth),
        }
    }

    #[cold]
    fn grow<G: HeapGrowth<C>>(&self, request: &C::Request<'_>, growth: &mut G) -> Result<C::Chunk, G::Error> {
        let _growing = self.growth.lock();
        if let Some(chunk) = self.lock().take(request) {
            return Ok(chunk);
        }
        loop {
            let region = growth.grow(&self.heap, request)?;
            let mut heap = self.lock();
            heap.add(region);
            if let Some(chunk) = heap.take(request) {
                return Ok(chunk);
            }
        }
    }

    /// Locks growth: no thread grows the heap until the guard is dropped.
    pub fn stop_growing(&self) -> ColdMutexGuard<'_, ()> {
        self.growth.lock()
    }

    /// Locks growth as [`GrowableHeap::stop_growing`] does, if that is possible at once.
    pub fn try_stop_growing(&self) -> Option<ColdMutexGuard<'_, ()>> {
        self.growth.try_lock()
    }

    /// Returns `true` if this thread has locked growth.
    #[cfg(not(loom))]
    pub fn is_growing_here(&self) -> bool {
        self.growth.is_held()
    }

    /// Runs `f` under the growth lock, for example to release regions.
    pub fn while_not_growing<R>(&self, f: impl FnOnce(&Mutex<C>) -> R) -> R {
        let _growing = self.stop_growing();
        f(&self.heap)
    }
}
