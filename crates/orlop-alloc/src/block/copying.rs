//! Copies between blocks: by the processor, or by the operations of a device.
//!
//! `Context::copy` and `Context::duplicate` of `orlop-context` choose the operations.

use crate::{Block, DeviceOps, DevicePtr, Error, RawBlock, Record, Result};
use orlop_core::StreamId;
use orlop_host::shield::report;
use std::mem;

/// From this number of bytes on, pinned memory is read in place: more than backends keep in buffers, so that
/// the host would wait for the stream anyway.
const READ_IN_PLACE: usize = 2 << 20;

/// Bytes of one block that are copied to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyRange {
    /// The first byte in the destination.
    pub to: usize,
    /// The first byte in the source.
    pub from: usize,
    /// The number of bytes.
    pub bytes: usize,
}

/// Blocks that a device may be using: those of submitted work that their allocators do not keep until it is
/// done. Dropping this keeps them for good, as the end is then unknown: waiting failed, or operations
/// panicked.
#[must_use = "the host waits in `finish`"]
pub(super) struct InFlight<'a> {
    destination: Option<&'a Record>,
    source: Option<&'a Record>,
}

impl<'a> InFlight<'a> {
    /// Creates the guard of a block, before work on it is submitted.
    pub(super) fn new(destination: &'a Block) -> Self {
        Self { destination: Some(destination.raw()), source: None }
    }

    /// Removes the destination, which the caller keeps.
    pub(super) fn without_destination(mut self) -> Self {
        self.destination = None;
        self
    }

    /// Waits for the submitted work, unless the memory of all its blocks is kept by their allocators. After
    /// an error a part may have been submitted.
    pub(super) fn finish(self, ops: &dyn DeviceOps, stream: StreamId, submitted: Result<()>) -> Result<()> {
        self.finish_by(|| ops.synchronize(stream), submitted)
    }

    /// As [`Self::finish`], with a function that waits for the submitted work.
    pub(super) fn finish_by(self, wait: impl FnOnce() -> Result<()>, submitted: Result<()>) -> Result<()> {
        if self.destination.is_none() && self.source.is_none() {
            return submitted;
        }
        let waited = wait();
        if waited.is_ok() {
            mem::forget(self);
        }
        submitted.and(waited)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.destination.into_iter().chain(self.source).for_each(Record::record_unfinished);
    }
}

impl Block {
    /// Overwrites this block's bytes with those of `source`, which must have the same length. Both blocks
    /// must be accessible from the host.
    ///
    /// # Errors
    ///
    /// [`Error::SizeMismatch`], [`Error::NotHostAccessible`]; the block is unchanged.
    pub fn copy_from(&mut self, source: &Self) -> Result<()> {
        if self.len() != source.len() {
            return Err(Error::SizeMismatch { source_bytes: source.len(), destination_bytes: self.len() });
        }
        let source = source.bytes()?;
        self.bytes_mut()?.copy_from_slice(source);
        Ok(())
    }

    /// Overwrites this block's bytes with those of `source`, which must have the same length, by `ops` on
    /// `stream`, which waits for the work that the blocks' own streams and all that used them were given so
    /// far.
    ///
    /// The host waits only if it has to: for a copy to host memory or from 2 MiB of pinned memory or more,
    /// which the device reads where it is, and for blocks whose allocators do not wait for streams. Otherwise
    /// the copy may not be done when this returns; both blocks can be dropped, and a source in host memory
    /// can be changed.
    ///
    /// If the wait fails, or `ops` panics, the device may still use the blocks that are not kept by their
    /// allocators: the host cannot access them any more, and dropping them leaks their memory.
    ///
    /// # Errors
    ///
    /// [`Error::SizeMismatch`], [`Error::NotHostAccessible`] for a block without accessible bytes,
    /// [`Error::WrongOperations`] if `ops` are of neither block's device, or the host's and one block is not,
    /// [`Error::NoCopyPath`], and errors of the backend.
    pub fn copy_by(&mut self, ops: &dyn DeviceOps, source: &Self, stream: StreamId) -> Result<()> {
        if self.len() != source.len() {
            return Err(Error::SizeMismatch { source_bytes: source.len(), destination_bytes: self.len() });
        }
        self.copy_ranges_by(ops, source, &[CopyRange { to: 0, from: 0, bytes: source.len() }], stream)
    }

    /// Copies ranges of `source` into this block, in this order, as [`Block::copy_by`] does.
    ///
    /// # Errors
    ///
    /// [`Error::OutsideBlock`] for a range that is not inside its block: nothing is then copied. Otherwise
    /// as for [`Block::copy_by`].
    pub fn copy_ranges_by(
        &mut self,
        ops: &dyn DeviceOps,
        source: &Self,
        ranges: &[CopyRange],
        stream: StreamId,
    ) -> Result<()> {
        // SAFETY: both blocks are borrowed until `finish` has waited, or keeps them.
        let (submitted, in_flight) = unsafe { self.submit_ranges(ops, source, ranges, stream) }?;
        in_flight.finish(ops, stream, submitted)
    }

    /// Submits copies of ranges of `source` to this block, at least in part, which may not be done when this
    /// returns.
    ///
    /// # Safety
    ///
    /// Until the stream was synchronized, nothing accesses this block, and neither block is returned to its
    /// allocator, unless that keeps it; nothing writes to a source that is not kept.
    pub(super) unsafe fn submit_ranges<'a>(
        &'a mut self,
        ops: &dyn DeviceOps,
        source: &'a Self,
        ranges: &[CopyRange],
        stream: StreamId,
    ) -> Result<(Result<()>, InFlight<'a>)> {
        for range in ranges {
            source.check_inside(range.from, range.bytes)?;
            self.check_inside(range.to, range.bytes)?;
        }
        source.raw().check_reachable()?;
        self.check_worker(ops, source)?;
        let is_kept = self.is_kept_for(ops, stream)?;
        let is_read_in_place = !self.device().is_cpu() && source.is_read_in_place();
        // Other sources in host memory have been read when the call returns.
        let is_source_kept = match source.device().is_cpu() {
            true => !is_read_in_place,
            false => source.is_kept_for(ops, stream)?,
        };
        let from = if is_read_in_place { DevicePtr::kept(source.as_ptr()) } else { source.device_ptr() };
        let in_flight = InFlight {
            destination: (!is_kept).then_some(self.raw()),
            source: (!is_source_kept).then_some(source.raw()),
        };
        let submitted = ranges.iter().filter(|range| range.bytes > 0).try_for_each(|range| {
            // SAFETY: inside this block, as checked above.
            let to = unsafe { self.device_ptr().add(range.to) };
            // SAFETY: inside the source, as checked above.
            let from = unsafe { from.add(range.from) };
            // SAFETY: ranges of two different blocks: valid, disjoint, and used by nothing else until the
            // stream was synchronized (guaranteed by the caller), or kept by their allocators.
            unsafe { ops.copy(to, from, range.bytes, stream) }
        });
        Ok((submitted, in_flight))
    }

    /// Copies ranges of this block to other places in it, in this order, by `ops` on `stream`. The stream and
    /// the host wait as for [`Block::copy_by`].
    ///
    /// # Errors
    ///
    /// [`Error::OutsideBlock`] for a range that is not inside the block, [`Error::OverlappingCopy`] for one
    /// that overlaps the place it is copied to: nothing is then copied. Otherwise as for [`Block::zero_by`].
    pub fn copy_within_by(
        &mut self,
        ops: &dyn DeviceOps,
        ranges: &[CopyRange],
        stream: StreamId,
    ) -> Result<()> {
        for &CopyRange { to, from, bytes } in ranges {
            self.check_inside(from, bytes)?;
            self.check_inside(to, bytes)?;
            if bytes > from.abs_diff(to) {
                return Err(Error::OverlappingCopy { from, to, bytes });
            }
        }
        ops.check_on(self.device())?;
        let in_flight = self.in_flight_for(ops, stream)?;
        let submitted = ranges.iter().filter(|range| range.bytes > 0).try_for_each(|range| {
            // SAFETY: inside this block, as checked above.
            let to = unsafe { self.device_ptr().add(range.to) };
            // SAFETY: as above.
            let from = unsafe { self.device_ptr().add(range.from) };
            // SAFETY: disjoint ranges of a block that is borrowed exclusively until the stream was
            // synchronized, or kept: by its allocator, or as unfinished.
            unsafe { ops.copy(to, from, range.bytes, stream) }
        });
        in_flight.finish(ops, stream, submitted)
    }

    /// Zeroes this block's bytes by `ops` on `stream`. The stream and the host wait as for
    /// [`Block::copy_by`].
    ///
    /// # Errors
    ///
    /// [`Error::WrongOperations`] if `ops` are another device's, [`Error::NotHostAccessible`] for a block
    /// without accessible bytes, and errors of the backend.
    pub fn zero_by(&mut self, ops: &dyn DeviceOps, stream: StreamId) -> Result<()> {
        ops.check_on(self.device())?;
        let in_flight = self.in_flight_for(ops, stream)?;
        // SAFETY: the block's own bytes, borrowed exclusively until the stream was synchronized, or kept: by
        // their allocator, or as unfinished.
        let submitted = unsafe { ops.zero(self.device_ptr(), self.len(), stream) };
        in_flight.finish(ops, stream, submitted)
    }

    /// Returns an error unless the range is inside this block.
    fn check_inside(&self, offset: usize, bytes: usize) -> Result<()> {
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= self.len());
        if is_inside { Ok(()) } else { Err(Error::OutsideBlock { offset, bytes, len: self.len() }) }
    }

    /// Returns an error unless `ops` can copy between the two blocks: they are those of one of the devices,
    /// and the host's only if that is the device of both.
    fn check_worker(&self, ops: &dyn DeviceOps, source: &Self) -> Result<()> {
        let [to, from] = [self, source].map(Self::device);
        let is_peer = !to.is_cpu() && !from.is_cpu() && ops.device() == from;
        ops.check_on(if to.is_cpu() || is_peer { from } else { to })
    }

    /// Returns `true` if the host need not wait for work of `stream` on this block: it cannot access it, and
    /// its allocator defers its reuse.
    fn is_kept_for(&self, ops: &dyn DeviceOps, stream: StreamId) -> Result<bool> {
        self.raw.check_reachable()?;
        Ok(!self.device().is_cpu() && self.raw.acquire_in_order(ops, stream)?)
    }

    /// Creates the guard of work of `stream` on this block.
    fn in_flight_for(&self, ops: &dyn DeviceOps, stream: StreamId) -> Result<InFlight<'_>> {
        let is_kept = self.is_kept_for(ops, stream)?;
        let in_flight = InFlight::new(self);
        Ok(if is_kept { in_flight.without_destination() } else { in_flight })
    }

    /// Returns `true` for a source that the device reads where it is, while the host waits: pinned memory,
    /// unless it is so small that a copy of it is ready sooner.
    fn is_read_in_place(&self) -> bool {
        self.len() >= READ_IN_PLACE && self.raw.is_pinned()
    }
}

/// Leaks a block that a device may still use, since waiting for the device failed.
#[cold]
pub(crate) fn leak_unfinished(raw: RawBlock) {
    report(|| {
        let (bytes, device) = (raw.granted, raw.device);
        tracing::error!(bytes, %device, "a block leaked: its device may still use it");
    });
    // Dropping a raw block returns nothing.
}

#[cfg(all(test, not(loom)))]
pub(super) mod tests {
    use super::*;
    use crate::backing::{Null, System};
    use crate::caching::Caching;
    use crate::engine::Direct;
    use crate::{Access, Allocator, HostOps, Request};
    use orlop_core::{Device, StreamId};
    use std::ptr::NonNull;

    /// Operations that take effect at once, on a device that cannot be waited for.
    #[derive(Debug)]
    pub(in crate::block) struct LostOps;

    // SAFETY: nothing runs in a stream.
    unsafe impl DeviceOps for LostOps {
        fn device(&self) -> Device {
            Device::CPU
        }

        unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize, stream: StreamId) -> Result<()> {
            // SAFETY: guaranteed by the caller.
            unsafe { HostOps.copy(to, from, bytes, stream) }
        }

        unsafe fn fill(&self, to: DevicePtr, pattern: &[u8], count: usize, stream: StreamId) -> Result<()> {
            // SAFETY: guaranteed by the caller.
            unsafe { HostOps.fill(to, pattern, count, stream) }
        }

        fn synchronize(&self, stream: StreamId) -> Result<()> {
            Err(Error::StreamsNotHonoured { device: Device::CPU, stream })
        }
    }

    #[test]
    #[cfg_attr(any(miri, orlop_asan), ignore = "it leaks memory, as it must")]
    fn a_block_that_the_device_may_still_write_is_never_reused() {
        let (host, other) = (Caching::new(System::new()).into_ref(), Direct::new(System::new()).into_ref());
        let allocate = |bytes| [1, 2].map(|_| host.allocate(&Request::new(bytes)).unwrap());
        for bytes in [100, 5 << 20] {
            let [mut zeroed, mut target] = allocate(bytes);
            let addresses = [&zeroed, &target].map(Block::as_ptr);
            let source = other.allocate(&Request::new(bytes)).unwrap();
            let stream = StreamId::from_raw(7);
            assert!(zeroed.zero_by(&LostOps, stream).is_err());
            assert!(target.copy_by(&LostOps, &source, stream).is_err());
            assert!(matches!(target.bytes(), Err(Error::NotHostAccessible { .. })), "it may change");
            assert_eq!(zeroed.stream_uses().count(), 0, "no stream of the user's");
            source.bytes().unwrap();
            let live = host.stats().live();
            drop((zeroed, target));
            assert_eq!((host.stats().live(), host.stats().refused_frees), (live, 0), "leaked");
            for _ in 0..4 {
                assert!(allocate(bytes).iter().all(|block| !addresses.contains(&block.as_ptr())));
            }
        }
    }

    #[test]
    #[cfg_attr(any(miri, orlop_asan), ignore = "it leaks memory, as it must")]
    fn foreign_memory_that_the_device_may_still_write_is_not_freed() {
        let mut bytes = [0_u8; 64];
        let mut record = Record::new(NonNull::from(&mut bytes).cast(), 64, Device::CPU, Access::Host);
        record.requested = 64;
        let deleter = crate::Deleter::from_closure(|_| panic!("it is in use"));
        // SAFETY: the bytes outlive the block.
        let mut block = unsafe { Block::foreign(record, deleter) };
        assert!(block.zero_by(&LostOps, StreamId::from_raw(7)).is_err());
        drop(block.into_foreign().unwrap_err());
    }

    #[test]
    fn ranges_are_copied_in_order_and_stay_inside() {
        let host = Direct::new(System::new()).into_ref();
        let source = host.allocate_copy(&Request::new(0), &[1, 2, 3, 4, 5, 6]).unwrap();
        let mut target = host.allocate_copy(&Request::new(0), &[0; 5]).unwrap();
        let range = |to, from, bytes| CopyRange { to, from, bytes };
        let mut copy =
            |ranges: &[CopyRange]| target.copy_ranges_by(&HostOps, &source, ranges, StreamId::HOST).err();
        for outside in [range(4, 0, 2), range(0, 5, 2), range(0, usize::MAX, 2), range(6, 0, 0)] {
            let error = copy(&[range(0, 0, 1), outside]);
            assert!(matches!(error, Some(Error::OutsideBlock { .. })), "{outside:?}: {error:?}");
        }
        assert!(copy(&[range(3, 0, 2), range(0, 4, 2), range(1, 2, 1), range(5, 6, 0)]).is_none());
        assert_eq!(target.bytes().unwrap(), [5, 3, 0, 1, 2]);
    }

    #[test]
    fn ranges_are_copied_inside_a_block_unless_they_overlap() {
        let host = Direct::new(System::new()).into_ref();
        let mut block = host.allocate_copy(&Request::new(0), &[1, 2, 3, 4, 5, 6]).unwrap();
        let range = |to, from, bytes| CopyRange { to, from, bytes };
        let mut copy = |ranges: &[CopyRange]| block.copy_within_by(&HostOps, ranges, StreamId::HOST).err();
        for (to, from, bytes) in [(1, 0, 2), (0, 3, 4), (0, 1, 2)] {
            let error = copy(&[range(0, 5, 1), range(to, from, bytes)]);
            let is_refused =
                matches!(error, Some(Error::OverlappingCopy { .. } | Error::OutsideBlock { .. }));
            assert!(is_refused, "{to}, {from}, {bytes}: {error:?}");
        }
        assert!(copy(&[range(0, 3, 3), range(5, 0, 1), range(2, 2, 0)]).is_none());
        assert_eq!(block.bytes().unwrap(), [4, 5, 6, 4, 5, 4]);
    }

    #[test]
    fn sizes_must_agree_and_bytes_must_be_in_reach() {
        let (host, device) =
            (Direct::new(System::new()).into_ref(), Direct::new(Null::new(Device::cuda(0))).into_ref());
        let mut small = host.allocate(&Request::new(10)).unwrap();
        let large = host.allocate_copy(&Request::new(0), &[5; 20]).unwrap();
        let error = small.copy_from(&large).unwrap_err();
        assert!(matches!(error, Error::SizeMismatch { source_bytes: 20, destination_bytes: 10 }));
        let mut remote = device.allocate(&Request::new(20)).unwrap();
        assert!(matches!(remote.copy_from(&large), Err(Error::NotHostAccessible { .. })));
        assert!(matches!(remote.try_clone_in(&host), Err(Error::NotHostAccessible { .. })));
        assert!(matches!(large.try_clone_in(&device), Err(Error::NotHostAccessible { .. })));
        assert_eq!(device.stats().live(), remote.capacity() as u64);
        let mut same = host.allocate(&Request::new(20)).unwrap();
        same.copy_from(&large).unwrap();
        assert_eq!(same.bytes().unwrap(), [5; 20]);
    }
}
