//! The plain engine: every block is a region of its own.

use crate::backing::{Backing, Global, Region};
use crate::out_of_memory::Refusal;
use crate::{Allocator, AllocatorRef, OutOfMemory, RawBlock, Record, Request, Result, Usage};
use orlop_core::Device;
use std::sync::atomic::{AtomicU64, Ordering};

/// Asks the backing for every block and gives it back at once. Nothing is cached.
#[derive(Debug)]
pub struct Direct<B: Backing = Global> {
    name: Box<str>,
    backing: B,
    reserved: AtomicU64,
    regions: AtomicU64,
    peak: AtomicU64,
}

impl<B: Backing> Direct<B> {
    /// Over this backing, under its name.
    #[must_use]
    pub fn engine(backing: B) -> Self {
        let name = backing.name().into();
        let zero = || AtomicU64::new(0);
        Self { name, backing, reserved: zero(), regions: zero(), peak: zero() }
    }

    /// The same behind a handle.
    #[must_use]
    pub fn new(backing: B) -> AllocatorRef<Self> {
        AllocatorRef::new(Self::engine(backing))
    }
}

// SAFETY: a block is a whole region, with the backing's promises; it is zeroed again only if the backing did
// not promise zeros. Regions go back when their blocks do.
unsafe impl<B: Backing> Allocator for Direct<B> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        let device = self.backing.device();
        request.kind.check_on(device)?;
        let Some(region) = self.backing.reserve(request.bytes.max(1), request.align) else {
            let mut report = OutOfMemory::new(Refusal::Backing, &self.name, device, request);
            self.describe(&mut report);
            return Err(report.into());
        };
        let reserved = self.reserved.fetch_add(region.bytes as u64, Ordering::Relaxed) + region.bytes as u64;
        self.regions.fetch_add(1, Ordering::Relaxed);
        if reserved > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(reserved, Ordering::Relaxed);
        }
        if request.zeroed && !region.zeroed {
            // SAFETY: the region was just gained and nobody else knows it.
            unsafe { self.backing.zero(region.ptr, request.bytes) };
        }
        let mut record = Record::new(region.ptr, region.bytes, device, self.backing.access());
        record.assign(request);
        Ok(RawBlock::new(Box::new(record)))
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        // SAFETY: every block of this engine has a box from `allocate`.
        let block = unsafe { block.into_record() };
        self.reserved.fetch_sub(block.granted as u64, Ordering::Relaxed);
        self.regions.fetch_sub(1, Ordering::Relaxed);
        let region = Region { ptr: block.ptr, bytes: block.granted, align: block.align, zeroed: false };
        // SAFETY: the caller's promise: from `allocate`, once, and nobody uses it any more.
        unsafe { self.backing.release(region) };
        Ok(())
    }

    fn device(&self) -> Device {
        self.backing.device()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn usage(&self) -> Usage {
        Usage {
            reserved: self.reserved.load(Ordering::Relaxed),
            peak_reserved: self.peak.load(Ordering::Relaxed),
            regions: self.regions.load(Ordering::Relaxed),
            ..Usage::default()
        }
    }

    fn reset_peak(&self) {
        self.peak.store(self.reserved.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
