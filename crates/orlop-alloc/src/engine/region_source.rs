//! Regions for engines in which every block is one: gained, counted, given back.
//!
//! Nobody keeps a list of them: who comes to watch is told of those that come and go from then on.

use crate::Refusal;
use crate::backing::{Backing, Region, Shielded};
use crate::{
    Error, OutOfMemory, Record, RegionAction, RegionEvent, RegionWatch, RegionWatches, Request, Result,
    Semantics, Usage,
};
use orlop_core::{Alignment, Device, StreamId};
use orlop_sync::Mutex;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A backing, and what is held from it. The counts are figures and relaxed.
#[derive(Debug)]
pub(super) struct Supply<B> {
    backing: Shielded<B>,
    reserved: AtomicU64,
    peak: AtomicU64,
    regions: AtomicU64,
    /// Whether anybody ever watched: until then nobody takes the lock.
    watched: AtomicBool,
    watches: Mutex<RegionWatches>,
}

impl<B: Backing> Supply<B> {
    pub(super) fn new(backing: B) -> Self {
        let zero = || AtomicU64::new(0);
        let (watched, watches) = (AtomicBool::new(false), Mutex::default());
        let backing = Shielded::new(backing);
        Self { backing, reserved: zero(), peak: zero(), regions: zero(), watched, watches }
    }

    pub(super) fn device(&self) -> Device {
        self.backing.device()
    }

    pub(super) fn semantics(&self) -> Semantics {
        Semantics { pinned: self.backing.is_pinned(), ..Semantics::default() }
    }

    /// Bytes of the block that begins at `ptr`, where the backing can tell: a block is a whole region.
    ///
    /// # Safety
    ///
    /// A block in a region from [`Supply::gain`] begins at `ptr`, and the region is not given back meanwhile.
    pub(super) unsafe fn block_bytes(&self, ptr: NonNull<u8>) -> Option<usize> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.backing.region_bytes(ptr) }
    }

    pub(super) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    pub(super) fn reset_peak(&self) {
        self.peak.store(self.reserved(), Ordering::Relaxed);
    }

    pub(super) fn usage(&self, metadata: usize) -> Usage {
        Usage {
            reserved: self.reserved(),
            peak_reserved: self.peak.load(Ordering::Relaxed),
            regions: self.regions.load(Ordering::Relaxed),
            deferred: 0,
            metadata: metadata as u64,
        }
    }

    /// From now on this watch is told.
    pub(super) fn watch(&self, watch: &Arc<RegionWatch>) {
        let ended = self.watches.lock().add(watch, []);
        // With the lock released: an observer's end may run anything.
        drop(ended);
        // Relaxed: a region that comes meanwhile may be told of or not.
        self.watched.store(true, Ordering::Relaxed);
    }

    #[inline(always)]
    fn note(&self, action: RegionAction, region: &Region, stream: StreamId) {
        if self.watched.load(Ordering::Relaxed) {
            self.note_watched(action, region, stream);
        }
    }

    #[cold]
    fn note_watched(&self, action: RegionAction, region: &Region, stream: StreamId) {
        let event = RegionEvent::new(action, region.address(), region.bytes, self.device());
        self.watches.lock().note(event.stream(stream));
    }

    /// The record of a block in a fresh region of at least `bytes`, zeroed as the request says. If the backing
    /// refuses, `reclaim` gives cached memory back, and if that was any the backing is asked once more.
    #[cold]
    pub(super) fn gain(
        &self,
        engine: &str,
        request: &Request,
        bytes: usize,
        align: Alignment,
        reclaim: impl FnOnce() -> u64,
    ) -> Result<Box<Record>> {
        self.backing.check_not_entered()?;
        let reserve = || self.backing.reserve(bytes, align);
        let Some(region) = reserve().or_else(|| (reclaim() > 0).then(reserve).flatten()) else {
            let mut report = OutOfMemory::new(Refusal::Backing, engine, self.device(), request);
            report.rounded = bytes;
            report.reserved = self.reserved();
            return Err(report.into());
        };
        // SAFETY: just gained; nobody else knows it.
        if request.zeroed && !region.zeroed && !unsafe { self.backing.zero(region.ptr, request.bytes) } {
            // SAFETY: as above, and gained from this backing.
            unsafe { self.backing.release(region) };
            return Err(self.cannot_zero());
        }
        let bytes = region.bytes as u64;
        let reserved = self.reserved.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(reserved, Ordering::Relaxed);
        self.regions.fetch_add(1, Ordering::Relaxed);
        self.note(RegionAction::Gained, &region, request.stream);
        let mut record =
            Box::new(Record::new(region.ptr, region.bytes, self.device(), self.backing.access()));
        record.assign(request);
        Ok(record)
    }

    /// Gives the region of a record back.
    ///
    /// # Safety
    ///
    /// The record came from [`Supply::gain`] with this alignment, nobody uses its bytes any more, and this is
    /// the one time.
    pub(super) unsafe fn lose(&self, record: &Record, align: Alignment) {
        self.reserved.fetch_sub(record.granted as u64, Ordering::Relaxed);
        self.regions.fetch_sub(1, Ordering::Relaxed);
        let region = Region { ptr: record.ptr, bytes: record.granted, align, zeroed: false };
        self.note(RegionAction::Lost, &region, record.stream);
        // SAFETY: guaranteed by the caller.
        unsafe { self.backing.release(region) };
    }

    /// Gives the regions of several records back; how many bytes that is.
    ///
    /// # Safety
    ///
    /// As for [`Supply::lose`], of each.
    pub(super) unsafe fn lose_all(&self, records: &[Box<Record>], align: Alignment) -> u64 {
        for record in records {
            // SAFETY: guaranteed by the caller.
            unsafe { self.lose(record, align) };
        }
        records.iter().map(|record| record.granted as u64).sum()
    }

    /// Makes memory that was used before what the request wants: zeros, or as it is. `false` if the backing cannot.
    ///
    /// # Safety
    ///
    /// The record came from [`Supply::gain`], holds at least `request.bytes`, and nobody uses its bytes.
    #[must_use]
    pub(super) unsafe fn prepare(&self, record: &Record, request: &Request) -> bool {
        // SAFETY: guaranteed by the caller.
        !request.zeroed || unsafe { self.backing.zero(record.ptr, request.bytes) }
    }

    #[cold]
    pub(super) fn cannot_zero(&self) -> Error {
        Error::CannotZero { device: self.device() }
    }
}
