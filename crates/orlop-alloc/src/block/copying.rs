//! Copies between host blocks (P4).
//!
//! These need nobody but the processor. Between devices, or on a stream,
//! [`Context::copy`](crate::Context::copy) and [`Context::duplicate`](crate::Context::duplicate) ask the
//! device that can.

use crate::{Allocator, AllocatorRef, Block, Error, Request, Result};

impl Block {
    /// Overwrites this block's bytes with those of `source`, which must be as many. Both must be within the
    /// processor's reach.
    ///
    /// # Errors
    ///
    /// [`Error::SizeMismatch`], [`Error::NotHostAccessible`]; nothing has changed.
    pub fn copy_from(&mut self, source: &Self) -> Result<()> {
        if self.len() != source.len() {
            return Err(Error::SizeMismatch { source_bytes: source.len(), destination_bytes: self.len() });
        }
        let source = source.bytes()?;
        self.bytes_mut()?.copy_from_slice(source);
        Ok(())
    }

    /// A new block from `allocator` with the same bytes, kind, alignment and tag, for the same stream.
    ///
    /// ```
    /// use orlop_alloc::{backing::System, engine::Direct, Request, Tag};
    /// use orlop_core::MemoryKind;
    ///
    /// let allocator = Direct::new(System::new());
    /// let request = Request::new(100).kind(MemoryKind::Persistent).tag(Tag::new("weights"));
    /// let mut block = allocator.allocate(&request)?;
    /// block.bytes_mut()?.fill(7);
    /// let copy = block.try_clone_in(&allocator)?;
    /// assert_eq!((copy.bytes()?, copy.kind(), copy.tag()), (block.bytes()?, block.kind(), block.tag()));
    /// # Ok::<(), orlop_alloc::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotHostAccessible`] if either side is, [`Error::OutOfMemory`], and [`Error::Words`] for a
    /// kind that cannot be on the allocator's device.
    pub fn try_clone_in<A: ?Sized + Allocator>(&self, allocator: &AllocatorRef<A>) -> Result<Self> {
        let request =
            Request::new(0).align(self.align()).kind(self.kind()).tag(self.tag()).stream(self.stream());
        allocator.allocate_copy(&request, self.bytes()?)
    }
}

impl<A: ?Sized + Allocator> AllocatorRef<A> {
    /// A block with a copy of `bytes`. Their number replaces the request's.
    ///
    /// # Errors
    ///
    /// [`Error::NotHostAccessible`], [`Error::OutOfMemory`], [`Error::Words`].
    pub fn allocate_copy(&self, request: &Request, bytes: &[u8]) -> Result<Block> {
        // Every byte is about to be written: zeros would be written twice.
        let request = Request { bytes: bytes.len(), zeroed: false, ..*request };
        let mut block = self.allocate(&request)?;
        block.bytes_mut()?.copy_from_slice(bytes);
        Ok(block)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Tag;
    use crate::backing::{Null, System};
    use crate::bfc::Bfc;
    use crate::engine::Direct;
    use orlop_core::{Alignment, Device, MemoryKind, StreamId};

    #[test]
    fn a_clone_keeps_what_the_block_is() {
        let allocator = Bfc::builder(System::new()).build();
        let request = Request::new(1000)
            .kind(MemoryKind::KvCache)
            .align(Alignment::new(4096).unwrap())
            .tag(Tag::new("copying test"))
            .stream(StreamId::new(3));
        let mut block = allocator.allocate(&request).unwrap();
        for (index, byte) in block.bytes_mut().unwrap().iter_mut().enumerate() {
            *byte = index.to_le_bytes()[0];
        }
        let copy = block.try_clone_in(&allocator.clone().erase()).unwrap();
        assert_eq!(copy.bytes().unwrap(), block.bytes().unwrap());
        assert_eq!((copy.kind(), copy.tag(), copy.stream()), (block.kind(), block.tag(), block.stream()));
        assert_eq!((copy.align(), copy.as_ptr().as_ptr().addr() % 4096), (block.align(), 0));
        assert_ne!((copy.id(), copy.as_ptr()), (block.id(), block.as_ptr()));
    }

    #[test]
    fn empty_blocks_can_be_cloned_and_copied() {
        let allocator = Direct::new(System::new());
        let empty = allocator.allocate(&Request::new(0).kind(MemoryKind::Workspace)).unwrap();
        let mut copy = empty.try_clone_in(&allocator).unwrap();
        copy.copy_from(&empty).unwrap();
        assert_eq!((copy.len(), copy.kind()), (0, MemoryKind::Workspace));
    }

    #[test]
    fn sizes_must_agree_and_bytes_must_be_in_reach() {
        let (host, device) = (Direct::new(System::new()), Direct::new(Null::new(Device::cuda(0))));
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
