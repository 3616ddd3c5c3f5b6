//! Blocks with the bytes of another block, or of a slice.

use crate::{Allocator, AllocatorRef, Block, Request, Result};

impl Block {
    /// Allocates a block from `allocator` with the same bytes, kind, alignment, tag and stream.
    ///
    /// ```
    /// use orlop_alloc::{Allocator, backing::System, engine::Direct, Request, Tag};
    /// use orlop_core::MemoryKind;
    ///
    /// let allocator = Direct::new(System::new()).into_ref();
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
    /// [`NotHostAccessible`](crate::Error::NotHostAccessible) if either block is not accessible from the
    /// host, [`OutOfMemory`](crate::Error::OutOfMemory), and [`InvalidRequest`](crate::Error::InvalidRequest)
    /// for a kind that the allocator's device does not support.
    pub fn try_clone_in<A: ?Sized + Allocator>(&self, allocator: &AllocatorRef<A>) -> Result<Self> {
        let request =
            Request::new(0).align(self.align()).kind(self.kind()).tag(self.tag()).stream(self.stream());
        allocator.allocate_copy(&request, self.bytes()?)
    }
}

impl<A: ?Sized + Allocator> AllocatorRef<A> {
    /// Allocates a block and copies `bytes` into it. The length of `bytes` replaces the request's size.
    ///
    /// # Errors
    ///
    /// [`NotHostAccessible`](crate::Error::NotHostAccessible), [`OutOfMemory`](crate::Error::OutOfMemory),
    /// [`InvalidRequest`](crate::Error::InvalidRequest).
    pub fn allocate_copy(&self, request: &Request, bytes: &[u8]) -> Result<Block> {
        // Every byte is overwritten below, so zeroing would be a second write.
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
    use crate::backing::System;
    use crate::bfc::Bfc;
    use crate::engine::Direct;
    use orlop_core::{Alignment, MemoryKind, StreamId};

    #[test]
    fn a_clone_keeps_what_the_block_is() {
        let allocator = Bfc::new(System::new()).into_ref();
        let request = Request::new(1000)
            .kind(MemoryKind::KvCache)
            .align(Alignment::new(4096).unwrap())
            .tag(Tag::new("copying test"))
            .stream(StreamId::from_raw(3));
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
        let allocator = Direct::new(System::new()).into_ref();
        let empty = allocator.allocate(&Request::new(0).kind(MemoryKind::Workspace)).unwrap();
        let mut copy = empty.try_clone_in(&allocator).unwrap();
        copy.copy_from(&empty).unwrap();
        assert_eq!((copy.len(), copy.kind()), (0, MemoryKind::Workspace));
    }
}
