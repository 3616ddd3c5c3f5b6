//! The bound on the number of blocks that a pool caches.

/// The bound is reconsidered every this many evictions (TensorFlow: `kCheckInterval`).
const CHECK_EVERY: u64 = 1000;

/// The number of blocks that all threads together may cache.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) blocks: usize,
    /// Capacity that is not assigned to a thread.
    pub(super) free: usize,
    pub(super) grows: bool,
    pub(super) puts: u64,
    pub(super) misses: u64,
    pub(super) evictions: u64,
}

impl Bound {
    pub(super) fn new(blocks: usize, grows: bool) -> Self {
        Self { blocks, free: blocks, grows, puts: 0, misses: 0, evictions: 0 }
    }

    /// Counts an eviction and reconsiders the bound by TensorFlow's rule: it grows by a tenth (to at least
    /// 100) if evictions exceed 0.2 % of the puts and misses exceed 0.2 % of the puts. Each put follows a
    /// request, so the number of puts stands for that of the requests.
    pub(super) fn evicted(&mut self) {
        self.evictions += 1;
        let too_small = self.evictions * 500 > self.puts && self.misses * 500 > self.puts;
        if self.grows && self.evictions.is_multiple_of(CHECK_EVERY) && too_small {
            let blocks = (self.blocks + self.blocks / 10).max(100);
            self.free += blocks - self.blocks;
            self.blocks = blocks;
        }
    }
}
