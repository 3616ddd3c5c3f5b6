//! How many blocks a pool keeps.

/// Bounds are reconsidered once in so many evictions (TensorFlow: `kCheckInterval`).
const CHECK_EVERY: u64 = 1000;

/// How many blocks all threads together may keep.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) blocks: usize,
    /// Places that no thread has.
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

    /// Counts an eviction and reconsiders the bound by TensorFlow's rule: if more than 0.2 % of the puts are
    /// evictions and more than 0.2 % of the requests find nothing, it is a tenth too small (at least 100 in
    /// all). Every put was a request once.
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
