//! Parts of blocks: planned memory divides a block among buffers.

use super::records::box_record;
use super::source::MemorySource;
use crate::{Block, MemoryBlock, RawBlock, Record, StreamUses};
use orlop_core::{Alignment, StreamId};

impl MemoryBlock {
    /// Creates a block of `bytes` bytes of this one, from `offset` on, which keeps it alive. On a device, its
    /// own stream is that of the whole, and the streams that used it are passed on to the whole when it is
    /// dropped. For parts of host memory, the caller of [`MemoryBlock::acquire_for`] has to wait.
    ///
    /// # Safety
    ///
    /// 1. `offset + bytes` is at most the requested size of this block;
    /// 2. nothing else writes there while the part exists, or reads there while the part is written.
    pub unsafe fn part(&self, offset: usize, bytes: usize) -> Block {
        // SAFETY: inside the block (guaranteed by the caller).
        let ptr = unsafe { self.ptr.add(offset) };
        let of_offset = 1usize.checked_shl(offset.trailing_zeros()).map(Alignment::new);
        let align = of_offset.and_then(Result::ok).map_or(self.align, |align| align.min(self.align));
        let (requested, whole) = (bytes, Some(self.clone()));
        let (kind, tag, stream) = (self.kind, self.tag, self.stream);
        let record = Record::new(ptr, bytes, self.device, self.access);
        let source = MemorySource::Part;
        let record = Record { requested, whole, kind, tag, stream, align, source, ..record };
        if self.is_unfinished() {
            record.uses.record_unfinished();
        }
        Block::new(RawBlock::new(box_record(record)))
    }

    /// Records the use of a part that ends before the stream is done, if the allocator waits for streams.
    pub(crate) fn note_use_of_part(&self, stream: StreamId) {
        // Otherwise the part recorded none.
        drop(self.record_use(stream));
    }
}

impl Block {
    /// Removes the streams that used the block.
    ///
    /// # Safety
    ///
    /// The block's own stream waits for them ([`DeviceOps::wait_for`](crate::DeviceOps::wait_for)), or their
    /// work on the block is done.
    pub unsafe fn forget_stream_uses(&mut self) {
        if !self.raw.uses.is_unfinished() {
            // SAFETY: only the uses change.
            unsafe { self.raw.record_mut() }.uses = StreamUses::new();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::backing::System;
    use crate::engine::Direct;
    use crate::{Allocator, Request};
    use orlop_core::MemoryKind;

    #[test]
    fn a_part_keeps_the_whole_alive() {
        let allocator = Direct::new(System::new()).into_ref();
        let request = Request::new(1024).kind(MemoryKind::Workspace).align(Alignment::PLANNED);
        let whole = allocator.allocate(&request).unwrap().share();
        // SAFETY: inside, and nothing else uses the bytes.
        let [mut first, second] = [0, 320].map(|offset| unsafe { whole.part(offset, 64) });
        drop(whole);
        assert_eq!((first.align(), second.align().bytes()), (Alignment::PLANNED, 64));
        assert_eq!((second.len(), second.capacity(), second.kind()), (64, 64, MemoryKind::Workspace));
        assert!(!first.has_allocator() && !first.is_uncounted());
        first.bytes_mut().unwrap().fill(7);
        // The host's memory is not kept for streams, in parts as in the whole.
        let stream = StreamId::from_raw(3);
        assert!(first.record_stream(stream).is_err() && first.stream_uses().next().is_none());
        let first = first.into_foreign().unwrap_err();
        // SAFETY: inside of the part, and nothing else uses the bytes.
        let inner = unsafe { first.share().part(8, 8) };
        assert_eq!(inner.bytes().unwrap(), [7; 8]);
        drop(second);
        assert_eq!(allocator.stats().live(), 1024);
        drop(inner);
        assert_eq!(allocator.stats().live(), 0);
    }

    #[test]
    #[cfg_attr(any(miri, orlop_asan), ignore = "it leaks memory, as it must")]
    fn a_part_that_a_device_may_still_write_keeps_all_parts_from_the_host() {
        let allocator = Direct::new(System::new()).into_ref();
        let whole = allocator.allocate(&Request::new(1024)).unwrap().share();
        // SAFETY: inside, and nothing else uses the bytes.
        let [first, second] = [0, 512].map(|offset| unsafe { whole.part(offset, 64) }.share());
        // SAFETY: as above.
        let inner = unsafe { first.part(8, 8) };
        inner.raw().record_unfinished();
        // SAFETY: as above.
        let later = unsafe { second.part(8, 8) };
        assert!([&first, &second, &whole].iter().all(|block| block.check_host().is_err()));
        assert!(inner.bytes().is_err() && later.bytes().is_err());
        drop((first, second, whole, inner, later));
        assert_eq!(allocator.stats().live(), 1024, "leaked");
    }
}
