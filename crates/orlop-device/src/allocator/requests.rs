//! The way of a request through the locks.
//!
//! What a request needs that cached memory serves is inlined; everything else is in functions of its own, so
//! that the short way needs no space for it on the stack.

use super::pressure::Pressure;
use super::stream_mark::StreamMark;
use super::token::Token;
use super::{DeviceAllocator, Inner};
use crate::backing::{BackingError, DeviceBacking};
use crate::engine::{CacheMiss, DeviceBlock, DeviceRequest, SlowPath};
use crate::error::DeviceError;
use orlop_alloc::{Error, OutOfMemory, Refusal, Request, Result, engine_support::RawBlock};
use orlop_core::{Alignment, MemoryKind, StreamId};
use orlop_sync::MutexGuard;
use orlop_sync::atomic::Ordering;
use std::ptr::{self, NonNull};

/// The locked engine, the miss of a request, and what a slow path returned for it.
type Served<'a, B> = (MutexGuard<'a, Inner<B>>, CacheMiss, Result<DeviceBlock, DeviceError>);

/// A new block of the engine, with a record that does not describe it yet.
struct NewBlock {
    raw: RawBlock,
    block: DeviceBlock,
    start: usize,
    size: usize,
    /// The mark of its stream.
    mark: u32,
    pool: u16,
    /// Whether a thread may cache it, if all its bytes are the request's.
    may_be_cached: bool,
}

impl<B: DeviceBacking> Inner<B> {
    /// Takes a record for a new block.
    #[inline(always)]
    fn describe(&mut self, block: DeviceBlock, sized: &DeviceRequest) -> NewBlock {
        let (start, size, pool) = self.engine.extent(block);
        let raw = self.records.take(self.engine.chunks.address(), block.0);
        let may_be_cached = self.engine.may_be_cached(block);
        NewBlock { raw, block, start, size, mark: self.mark.of(sized.stream), pool, may_be_cached }
    }
}

impl<B: DeviceBacking> DeviceAllocator<B> {
    /// Serves a request.
    #[inline(always)]
    pub(super) fn serve(&self, request: &Request) -> Result<RawBlock> {
        request.kind.check_on(self.device)?;
        if let Some(block) = self.take_cached(request) {
            return block;
        }
        // `None`: the call came from `with_engine`, or from the backing.
        let Some(mut inner) = self.inner.lock_unless_held() else { return Err(self.reentrant()) };
        let slack = self.alignment(request).bytes().saturating_sub(self.aligned);
        let stream = self.device_stream(request.stream);
        let bytes = request.bytes.saturating_add(slack);
        let sized = DeviceRequest { bytes, stream, long_lived: request.kind == MemoryKind::Persistent };
        self.caches.settle_own(|turnover| inner.engine.settle(turnover));
        match inner.engine.allocate_cached(&sized) {
            Ok(block) => {
                let new = inner.describe(block, &sized);
                drop(inner);
                self.hand_out(new, request, &sized)
            }
            Err(miss) => self.serve_missed(inner, miss, request, &sized),
        }
    }

    /// Serves a request from this thread's cache.
    #[inline(always)]
    fn take_cached(&self, request: &Request) -> Option<Result<RawBlock>> {
        let is_aligned = self.alignment(request).bytes() <= self.aligned;
        // Nothing is reused once the device is lost.
        if !is_aligned || self.captures.is_capturing() || self.backing.loss().is_some() {
            return None;
        }
        let mut raw = self.caches.take(request, self.device_stream(request.stream))?;
        if request.zeroed {
            return Some(self.zero_cached(raw, request));
        }
        // SAFETY: the record is this allocator's own, and describes a block that was just allocated.
        let record = unsafe { raw.record_mut() };
        record.assign_but_stream(request);
        record.align = self.alignment(request);
        Some(Ok(raw))
    }

    /// Serves a request for zeros with a block of this thread's cache.
    #[cold]
    fn zero_cached(&self, raw: RawBlock, request: &Request) -> Result<RawBlock> {
        let (block, address, bytes) = (DeviceBlock(Token::of(&raw).index()), raw.address(), raw.granted);
        let mut raw = self.zero(raw, block, address, bytes, self.device_stream(request.stream))?;
        // SAFETY: as in `take_cached`.
        let record = unsafe { raw.record_mut() };
        record.assign_but_stream(request);
        record.align = self.alignment(request);
        Ok(raw)
    }

    /// Returns the alignment that a request needs on this device.
    #[inline(always)]
    fn alignment(&self, request: &Request) -> Alignment {
        request.align.on(self.device)
    }

    /// Makes a new block of the engine the block of a request. The engine is unlocked.
    #[inline(always)]
    fn hand_out(&self, new: NewBlock, request: &Request, sized: &DeviceRequest) -> Result<RawBlock> {
        let NewBlock { mut raw, block, start, size, mark, pool, may_be_cached } = new;
        let address =
            if sized.bytes == request.bytes { start } else { self.alignment(request).round_up(start)? };
        if request.zeroed {
            raw = self.zero(raw, block, start, size, sized.stream)?;
        }
        let Some(ptr) = NonNull::new(ptr::with_exposed_provenance_mut::<u8>(address)) else {
            // No region begins at address zero; if one did, the block would be leaked, not handed out.
            return Err(Error::ForeignPointer { address });
        };
        // SAFETY: the record is this allocator's own, and describes a block that was just allocated.
        let record = unsafe { raw.record_mut() };
        let has_stream = Token::from_bits(record.token).mark() == mark && mark != StreamMark::NONE;
        (record.ptr, record.granted) = (ptr, size - (address - start));
        record.token = Token::new(block.0, mark, pool, may_be_cached && sized.bytes == request.bytes).bits();
        record.assign_but_stream(request);
        record.align = self.alignment(request);
        if !has_stream {
            record.stream = sized.stream;
        }
        Ok(raw)
    }

    /// Unlocks the engine, and makes a new block of it the block of a request that no cached memory served.
    fn hand_out_missed(
        &self,
        mut inner: MutexGuard<'_, Inner<B>>,
        block: DeviceBlock,
        request: &Request,
        sized: &DeviceRequest,
    ) -> Result<RawBlock> {
        let new = inner.describe(block, sized);
        drop(inner);
        self.hand_out(new, request, sized)
    }

    #[cold]
    fn reentrant(&self) -> Error {
        Error::Reentrant { inside: format!("the device allocator {}", self.name).into() }
    }

    /// Serves a request that no cached memory served: on the slow path, and again as long as memory is freed
    /// elsewhere for it.
    #[cold]
    #[inline(never)]
    fn serve_missed<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner<B>>,
        mut miss: CacheMiss,
        request: &Request,
        sized: &DeviceRequest,
    ) -> Result<RawBlock> {
        let mut pressure = Pressure::default();
        // Relaxed: a hint.
        if self.has_returned.load(Ordering::Relaxed) && !matches!(miss, CacheMiss::Refused(_)) {
            drop(inner);
            inner = self.lock();
            miss = match inner.engine.allocate_again(sized, &miss) {
                Ok(block) => return self.hand_out_missed(inner, block, request, sized),
                Err(miss) => miss,
            };
        }
        loop {
            let served;
            (inner, miss, served) = self.allocate_slowly(inner, miss, sized)?;
            let error = match served {
                Ok(block) => return self.hand_out_missed(inner, block, request, sized),
                Err(error) => error,
            };
            let is_counted = inner.engine.failures.is_counted;
            drop(inner);
            if !request.retry || !self.relieve(&mut pressure, &error) {
                return Err(self.refuse(request, error));
            }
            inner = self.inner.lock();
            // Requests that fail are counted, not attempts.
            let counted = u64::from(is_counted);
            inner.engine.stats.num_ooms = inner.engine.stats.num_ooms.saturating_sub(counted);
            miss = match inner.engine.allocate_again(sized, &miss) {
                Ok(block) => return self.hand_out_missed(inner, block, request, sized),
                Err(miss) => miss,
            };
        }
    }

    /// Allocates a block for a request that no cached memory served. Takes the growth lock; if another thread
    /// has it, the engine is unlocked meanwhile, and that thread may have made room.
    fn allocate_slowly<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner<B>>,
        mut miss: CacheMiss,
        request: &DeviceRequest,
    ) -> Result<Served<'a, B>> {
        if let CacheMiss::Refused(error) = miss {
            return Ok((inner, miss, Err(error)));
        }
        let growing = match self.growth.try_lock() {
            Some(growing) => growing,
            None => {
                // The streams that have ended are retired at the next new one.
                if let CacheMiss::Crowded(_) = miss {
                    inner.engine.streams.is_crowded = false;
                    match inner.engine.allocate_again(request, &miss) {
                        Ok(block) => return Ok((inner, miss, Ok(block))),
                        Err(again) => miss = again,
                    }
                }
                drop(inner);
                // `None`: the call came from the backing.
                let growing = self.growth.lock_unless_held().ok_or_else(|| self.reentrant())?;
                inner = self.inner.lock();
                match inner.engine.allocate_again(request, &miss) {
                    Ok(block) => return Ok((inner, miss, Ok(block))),
                    Err(again) => miss = again,
                }
                growing
            }
        };
        // Blocks that threads have cached may serve it: before anything is released, moved or reserved.
        let has_drained = self.has_caches && self.close_caches(&mut inner);
        let mut block = None;
        if has_drained && !matches!(miss, CacheMiss::Crowded(_)) {
            match inner.engine.allocate_again(request, &miss) {
                Ok(again) => block = Some(Ok(again)),
                Err(again) => miss = again,
            }
        }
        let block = block.unwrap_or_else(|| SlowPath::new(&mut inner).allocate(&miss));
        self.open_caches(&inner);
        drop(growing);
        Ok((inner, miss, block))
    }

    /// Fills a new block with zeros, or frees it. No lock is held: host memory is filled by this thread.
    #[cold]
    fn zero(
        &self,
        raw: RawBlock,
        block: DeviceBlock,
        address: usize,
        bytes: usize,
        stream: StreamId,
    ) -> Result<RawBlock> {
        // SAFETY: a new block of the engine, which has no user yet.
        let zeroed = unsafe { self.backing.zero(address, bytes, stream) };
        let Err(failure) = zeroed else { return Ok(raw) };
        // `None`: the call came from `with_engine`, for a block of this thread's cache.
        if let Some(mut inner) = self.inner.lock_unless_held() {
            self.caches.settle_own(|turnover| inner.engine.settle(turnover));
            let _returned = inner.engine.noted(zeroed);
            // It cannot fail: the block is live.
            let _freed = inner.engine.free(block);
            // SAFETY: its record was just taken from this slab.
            unsafe { inner.records.give(raw) };
        } else {
            self.take_back_later(raw);
        }
        Err(match failure.error {
            BackingError::Unsupported => Error::CannotZero { device: self.device },
            _ => DeviceError::from(failure).into(),
        })
    }

    #[cold]
    fn refuse(&self, request: &Request, error: DeviceError) -> Error {
        if !matches!(error, DeviceError::OutOfMemory { .. }) {
            return error.into();
        }
        let mut report = OutOfMemory::new(Refusal::Backing, &self.name, self.device, request);
        report.align = self.alignment(request);
        report.set_caches(|| self.backing.neighbours());
        if let DeviceError::OutOfMemory {
            rounded,
            largest_free,
            reserved,
            cached,
            live,
            limit,
            addresses,
            ..
        } = error
        {
            (report.largest_free, report.free, report.live) = (largest_free, cached, live);
            (report.reserved, report.limit) = (reserved, Some(limit));
            report.rounded = usize::try_from(rounded).unwrap_or(usize::MAX);
            if self.is_limited(&error) {
                report.refusal = Refusal::Limit;
            } else if let Some(reserved) = addresses {
                report.refusal = Refusal::Addresses { reserved };
            }
        }
        Error::OutOfMemory(Box::new(report))
    }
}
