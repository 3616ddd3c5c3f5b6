//! Returning memory: segments without a page in use, and the context's reclaim ladder.

use super::KvPool;
use crate::Result;
use orlop_context::{Context, PressureGuard};
use orlop_core::MemoryKind;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// The segments that a pool can return.
#[derive(Debug, Default)]
struct ReturnableSegments {
    /// Those whose pages are all empty.
    empty: Vec<u32>,
    /// Those that evictions can empty, with the number of their pages that are not empty.
    divided: HashMap<u32, usize>,
}

impl KvPool {
    /// Returns segments to their allocator until at least `bytes` bytes are returned, and returns their
    /// bytes. It evicts cached blocks for it. A segment stays if a sequence, a step in flight or a ticket may
    /// access one of its pages, or others were pledged its pages: the sum is then smaller. A pool without
    /// [segments](crate::KvPoolBuilder::segment) returns all or nothing.
    pub fn shrink(&mut self, bytes: u64) -> u64 {
        self.collect_drops();
        let mut returned = 0;
        let mut segments = self.returnable_segments();
        while self.sleep.is_none() && returned < bytes && self.can_spare_segment() {
            if let Some(segment) = segments.empty.pop() {
                returned += self.return_segment(segment);
            } else if !self.evict_for(&mut segments) {
                break;
            }
        }
        returned
    }

    /// Allocates segments again that were returned, until at least `bytes` bytes are there again. Returns
    /// their bytes.
    ///
    /// # Errors
    /// If an allocation fails. Segments that were allocated before stay.
    pub fn grow(&mut self, bytes: u64) -> Result<u64> {
        self.collect_drops();
        let mut gained = 0;
        for segment in 0..self.segment_count() {
            let pages = self.pages_of_segment(segment);
            if gained >= bytes || self.sleep.is_some() {
                break;
            }
            if self.blocks.pages.is_absent(pages.start) {
                self.memory.acquire(segment as usize)?;
                gained += u64::from(pages.end - pages.start) * self.geometry.large_page_bytes();
                self.blocks.pages.give_back(pages);
            }
        }
        Ok(gained)
    }

    /// Makes a shared pool a step of the context's reclaim ladder: when KV memory is short, it evicts and
    /// [returns](Self::shrink) segments, until the guard is dropped. A request that comes while the pool is
    /// locked, or from the pool itself, gets nothing.
    pub fn reclaim_on(pool: &Arc<Mutex<Self>>, context: &Context) -> PressureGuard {
        let pool = Arc::downgrade(pool);
        let shrink = move |pressure: &orlop_context::Pressure| {
            let Some(pool) = pool.upgrade() else { return 0 };
            pool.try_lock().map_or(0, |mut pool| pool.shrink(pressure.bytes))
        };
        PressureGuard::on(context, MemoryKind::KvCache, Arc::new(shrink))
    }

    /// Returns `true` if the pledges can be kept with a segment less.
    fn can_spare_segment(&mut self) -> bool {
        let pages = self.pages_of_segment(0);
        let count = u64::from(pages.end - pages.start);
        self.pages_needed.fill(0);
        self.blocks.demand(crate::pages::NO_OWNER, &self.pages_needed, &mut self.demand);
        self.blocks.pages.shortage(&self.demand).spare() >= count
    }

    fn segment_count(&self) -> u32 {
        let pages = self.pages_of_segment(0);
        self.blocks.pages.count().div_ceil(pages.end)
    }

    pub(super) fn pages_of_segment(&self, segment: u32) -> Range<u32> {
        let count = self.blocks.pages.count();
        let pages = self.memory.segment_bytes() / self.geometry.large_page_bytes();
        let pages = u32::try_from(pages).unwrap_or(count).max(1);
        segment * pages..((segment + 1).saturating_mul(pages)).min(count)
    }

    /// Lists the segments without a live page.
    fn returnable_segments(&self) -> ReturnableSegments {
        let mut segments = ReturnableSegments::default();
        for segment in 0..self.segment_count() {
            let pages = self.pages_of_segment(segment);
            if self.blocks.pages.can_be_empty(pages.clone()) {
                match pages.filter(|&large| self.blocks.pages.is_divided(large)).count() {
                    0 => segments.empty.push(segment),
                    divided => {
                        segments.divided.insert(segment, divided);
                    }
                }
            }
        }
        segments
    }

    /// Evicts once, if that can empty a segment. Returns `false` if it cannot.
    fn evict_for(&mut self, segments: &mut ReturnableSegments) -> bool {
        if segments.divided.is_empty() {
            return false;
        }
        self.blocks.pages.record_emptied();
        let is_evicted = self.index.evict(&mut self.blocks);
        let emptied = self.blocks.pages.take_emptied();
        let per_segment = self.pages_of_segment(0).end;
        for large in emptied {
            if let Entry::Occupied(mut divided) = segments.divided.entry(large / per_segment) {
                *divided.get_mut() -= 1;
                if *divided.get() == 0 {
                    segments.empty.push(divided.remove_entry().0);
                }
            }
        }
        is_evicted
    }

    fn return_segment(&mut self, segment: u32) -> u64 {
        let pages = self.pages_of_segment(segment);
        self.blocks.pages.take_away(pages.clone());
        self.memory.release(segment as usize);
        u64::from(pages.end - pages.start) * self.geometry.large_page_bytes()
    }
}
