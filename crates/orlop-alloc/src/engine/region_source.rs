//! Regions for engines in which each block is a whole region: reserved, counted, released.
//!
//! There is no list of the regions: a new observer sees only those that are reserved or released from then
//! on.

use crate::Refusal;
use crate::backing::{Backing, Region, Shielded};
use crate::{
    Error, OutOfMemory, Record, RegionAction, RegionEvent, RegionWatch, RegionWatches, Request, Result,
    Semantics, Usage,
};
use orlop_core::{Alignment, Device, StreamId};
use orlop_sync::ColdMutex;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A backing and the totals of what is reserved from it. The totals are statistics and use relaxed accesses.
#[derive(Debug)]
pub(super) struct RegionSource<B> {
    backing: Shielded<B>,
    reserved: AtomicU64,
    peak: AtomicU64,
    regions: AtomicU64,
    /// True once an observer was added: until then `watches` is not locked.
    is_watched: AtomicBool,
    watches: ColdMutex<RegionWatches>,
}

impl<B: Backing> RegionSource<B> {
    pub(super) fn new(backing: B) -> Self {
        let zero = || AtomicU64::new(0);
        let (is_watched, watches) = (AtomicBool::new(false), ColdMutex::default());
        let backing = Shielded::new(backing);
        Self { backing, reserved: zero(), peak: zero(), regions: zero(), is_watched, watches }
    }

    pub(super) fn device(&self) -> Device {
        self.backing.device()
    }

    pub(super) fn semantics(&self) -> Semantics {
        Semantics { pinned: self.backing.is_pinned(), ..Semantics::default() }
    }

    /// Returns the bytes of the block that begins at `ptr`, if the backing can tell: a block is a whole
    /// region.
    ///
    /// # Safety
    ///
    /// A block in a region from [`RegionSource::reserve_block`] begins at `ptr`, and the region is not
    /// released during the call.
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

    /// Adds an observer's watch.
    pub(super) fn watch(&self, watch: &Arc<RegionWatch>) {
        let ended = self.watches.lock().add(watch, []);
        // The lock is released first: dropping an observer may run user code.
        drop(ended);
        // Relaxed: a region reserved at the same time may be recorded or not.
        self.is_watched.store(true, Ordering::Relaxed);
    }

    #[inline(always)]
    fn note(&self, action: RegionAction, region: &Region, stream: StreamId) {
        if self.is_watched.load(Ordering::Relaxed) {
            self.note_watched(action, region, stream);
        }
    }

    #[cold]
    fn note_watched(&self, action: RegionAction, region: &Region, stream: StreamId) {
        let event = RegionEvent::new(action, region.address(), region.bytes, self.device());
        self.watches.lock().note(event.stream(stream));
    }

    /// Reserves a region of at least `bytes` bytes for one block, zeroed if the request says so, and returns
    /// the block's record. If the backing refuses, `reclaim` releases cached memory; if it released any, the
    /// backing is called once more.
    #[cold]
    pub(super) fn reserve_block(
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
        // SAFETY: reserved above and not passed on.
        if request.zeroed && !region.zeroed && !unsafe { self.backing.zero(region.ptr, request.bytes) } {
            // SAFETY: as above, and reserved from this backing.
            unsafe { self.backing.release(region) };
            return Err(self.cannot_zero());
        }
        let bytes = region.bytes as u64;
        let reserved = self.reserved.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(reserved, Ordering::Relaxed);
        self.regions.fetch_add(1, Ordering::Relaxed);
        self.note(RegionAction::Reserved, &region, request.stream);
        let mut record =
            Box::new(Record::new(region.ptr, region.bytes, self.device(), self.backing.access()));
        record.assign(request);
        Ok(record)
    }

    /// Releases the region of a record.
    ///
    /// # Safety
    ///
    /// The record came from [`RegionSource::reserve_block`] with this alignment, its bytes are no longer in
    /// use, and its region is released once.
    pub(super) unsafe fn release(&self, record: &Record, align: Alignment) {
        self.reserved.fetch_sub(record.granted as u64, Ordering::Relaxed);
        self.regions.fetch_sub(1, Ordering::Relaxed);
        let region = Region { ptr: record.ptr, bytes: record.granted, align, zeroed: false };
        self.note(RegionAction::Released, &region, record.stream);
        // SAFETY: guaranteed by the caller.
        unsafe { self.backing.release(region) };
    }

    /// Releases the regions of several records. Returns their bytes.
    ///
    /// # Safety
    ///
    /// As for [`RegionSource::release`], for each record.
    pub(super) unsafe fn release_all(&self, records: &[Box<Record>], align: Alignment) -> u64 {
        for record in records {
            // SAFETY: guaranteed by the caller.
            unsafe { self.release(record, align) };
        }
        records.iter().map(|record| record.granted as u64).sum()
    }

    /// Prepares used memory for a request: zeroes it if the request says so. Returns `false` if the backing
    /// cannot.
    ///
    /// # Safety
    ///
    /// The record came from [`RegionSource::reserve_block`], has at least `request.bytes` bytes, and they are
    /// not in use.
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

/// Returns the alignment of cached blocks, for which requests on a device need not specify one.
pub(super) fn cached_align(device: Device) -> Alignment {
    if device.is_cpu() { Alignment::CPU } else { Alignment::PLANNED }
}

/// Implements the methods of an engine that its field `source`, a [`RegionSource`], answers.
macro_rules! answered_by_source {
    () => {
        fn device(&self) -> ::orlop_core::Device {
            self.source.device()
        }

        fn reset_peak(&self) {
            self.source.reset_peak();
        }

        fn semantics(&self) -> $crate::Semantics {
            self.source.semantics()
        }

        unsafe fn allocated_size_slow(&self, ptr: ::std::ptr::NonNull<u8>) -> Option<usize> {
            // SAFETY: guaranteed by the caller.
            unsafe { self.source.block_bytes(ptr) }
        }

        fn watch_regions(&self, watch: &::std::sync::Arc<$crate::RegionWatch>) {
            self.source.watch(watch);
        }
    };
}
pub(super) use answered_by_source;
