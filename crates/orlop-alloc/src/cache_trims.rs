//! [`CacheTrims`]: the caches of allocators that share memory, trimmed for a request that found none.

use crate::AllocatorRef;
use crate::engine_scope::EngineScope;
use crate::engine_support::guarded;
use std::vec;

/// The passes for one request: other threads can fill the caches as fast as they are trimmed.
const MAX_PASSES: usize = 8;

/// The caches that one request trims, one at a time, so that it can be tried again after each.
///
/// What an allocator gives back can land in the cache of another one, which came before it. So the passes
/// over all of them end with the first one that frees nothing. An allocator's panic counts as no memory.
#[derive(Debug)]
pub struct CacheTrims {
    /// The allocators that this pass has not trimmed.
    remaining: vec::IntoIter<AllocatorRef>,
    /// Whether memory was freed since this pass began, so that another pass may free more.
    has_freed: bool,
    passes: usize,
}

impl Default for CacheTrims {
    fn default() -> Self {
        Self { remaining: Vec::new().into_iter(), has_freed: true, passes: 0 }
    }
}

impl CacheTrims {
    /// Trims the caches of the `linked` allocators until one gives memory back. Returns `false` if none does.
    /// No lock is held; inside an engine nothing is trimmed.
    pub fn trim_next(&mut self, linked: impl Fn() -> Vec<AllocatorRef>) -> bool {
        if EngineScope::is_inside() {
            return false;
        }
        loop {
            for allocator in self.remaining.by_ref() {
                // The handle is dropped in there as well: it can be the last one.
                if guarded(move || allocator.trim(0)).is_some_and(|bytes| bytes > 0) {
                    self.has_freed = true;
                    return true;
                }
            }
            if !self.has_freed || self.passes == MAX_PASSES {
                return false;
            }
            self.has_freed = false;
            self.passes += 1;
            self.remaining = guarded(&linked).unwrap_or_default().into_iter();
        }
    }

    /// Begins another pass with the next trim: memory was freed by other means.
    pub fn restart(&mut self) {
        self.end_pass();
        self.has_freed = true;
    }

    fn end_pass(&mut self) {
        for allocator in self.remaining.by_ref() {
            let _noted = guarded(|| drop(allocator));
        }
    }
}

impl Drop for CacheTrims {
    fn drop(&mut self) {
        self.end_pass();
    }
}
