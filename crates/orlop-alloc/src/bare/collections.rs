//! An allocator for collections.

use super::{BlockSource, header, offset, put_header, request};
use crate::RawBlock;
use crate::{AllocatorRef, Block, Tag};
use allocator_api2::alloc::{AllocError, Allocator as ApiAllocator};
use orlop_core::MemoryKind;
use std::alloc::Layout;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// An allocator for the collections of `allocator_api2`, and for others that take its allocators. What they
/// allocate is counted under a memory kind and a tag.
///
/// Memory is zeroed when it is freed, as a [`TypedBlock`](crate::TypedBlock)'s is: values may have padding or
/// be uninitialised, and the bytes of a block that is allocated next can be read.
///
/// ```
/// use allocator_api2::vec::Vec;
/// use orlop_alloc::bare::CollectionAllocator;
/// use orlop_alloc::{Allocator, backing::Mmap, caching::Caching};
/// use orlop_core::MemoryKind;
///
/// let allocator = Caching::new(Mmap::new()).into_ref();
/// let workspace = CollectionAllocator::new(allocator.clone().erase()).kind(MemoryKind::Workspace);
/// let mut numbers = Vec::new_in(workspace);
/// numbers.extend(0..1000u64);
/// assert!(allocator.stats().kind(MemoryKind::Workspace).live_bytes >= 8000);
/// # drop(numbers);
/// # assert_eq!(allocator.stats().live(), 0);
/// ```
#[derive(Debug, Clone)]
pub struct CollectionAllocator<S = AllocatorRef> {
    source: S,
    kind: MemoryKind,
    tag: Tag,
}

impl<S: BlockSource> CollectionAllocator<S> {
    /// Creates an allocator over `source`, for the default kind and without a tag. If its memory is not
    /// host-accessible, every allocation fails.
    #[must_use]
    pub const fn new(source: S) -> Self {
        Self { source, kind: MemoryKind::Default, tag: Tag::NONE }
    }

    /// Sets the kind that the memory is counted under.
    #[must_use]
    pub fn kind(self, kind: MemoryKind) -> Self {
        Self { kind, ..self }
    }

    /// Sets the tag that the memory is counted under.
    #[must_use]
    pub fn tag(self, tag: Tag) -> Self {
        Self { tag, ..self }
    }
}

// SAFETY: each allocation is in a block of its own until it is freed, whatever happens to the source: a block
// keeps its allocator alive, and returns to it by itself. The trait's own `allocate_zeroed` zeroes the bytes:
// a source may be anything.
unsafe impl<S: BlockSource> ApiAllocator for CollectionAllocator<S> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            let aligned = std::ptr::without_provenance_mut(layout.align());
            // An alignment is a power of two, hence not null.
            return Ok(NonNull::slice_from_raw_parts(NonNull::new(aligned).ok_or(AllocError)?, 0));
        }
        let request = request(layout, false).ok_or(AllocError)?.kind(self.kind).tag(self.tag);
        let block = self.source.allocate_block(&request).map_err(|_| AllocError)?;
        // A source may be anything.
        let fits = block.len() >= request.bytes && request.align.is_aligned(block.as_ptr().addr().get());
        if !fits || block.raw().check_host().is_err() {
            return Err(AllocError);
        }
        let block = ManuallyDrop::new(block);
        // SAFETY: the block has the size and alignment of the layout with its header.
        let memory = unsafe { put_header(block.as_ptr(), offset(layout), Some(block.raw().record())) };
        Ok(NonNull::slice_from_raw_parts(memory, layout.size()))
    }

    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        if layout.size() == 0 {
            return;
        }
        // SAFETY: guaranteed by the caller: from `allocate`, and not freed before.
        if let Some(record) = unsafe { header(ptr) } {
            // By the caller's own pointer: a `Box` that is an argument allows no other.
            // SAFETY: the memory of `layout`, which nothing uses any more.
            unsafe { ptr.write_bytes(0, layout.size()) };
            // SAFETY: the header of a block that `allocate` converted into a bare pointer. A refusal is
            // counted and logged.
            drop(Block::new(unsafe { RawBlock::from_record(record) }));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Allocator as _;
    use crate::Request;
    use crate::backing::{Null, System};
    use crate::caching::Caching;
    use crate::engine::{Arena, Direct};
    use allocator_api2::boxed::Box;
    use allocator_api2::vec::Vec;
    use orlop_core::Device;

    #[test]
    fn collections_use_it_and_return_everything() {
        let allocators: [AllocatorRef; 2] =
            [Caching::new(System::new()).into_ref().erase(), Direct::new(System::new()).into_ref().erase()];
        for allocator in allocators {
            let mut rows: Vec<Vec<u32, CollectionAllocator>, CollectionAllocator> =
                Vec::new_in(CollectionAllocator::new(allocator.clone()));
            for length in 0..100 {
                let mut row = Vec::new_in(CollectionAllocator::new(allocator.clone()));
                row.extend(0..length);
                rows.push(row);
            }
            rows.retain(|row| row.len() % 3 == 0);
            assert!(rows.iter().all(|row| row.iter().copied().eq(0..u32::try_from(row.len()).unwrap())));
            #[repr(align(4096))]
            struct Page([u8; 4096]);
            let page = Box::new_in(Page([3; 4096]), CollectionAllocator::new(allocator.clone()));
            assert_eq!((&raw const *page).addr() % 4096, 0);
            assert_eq!(page.0[4095], 3);
            let zeros: NonNull<[u8]> = CollectionAllocator::new(allocator.clone())
                .allocate_zeroed(Layout::from_size_align(1000, 8).unwrap())
                .unwrap();
            // SAFETY: allocated above, and zeroed.
            assert!(unsafe { zeros.as_ref() }.iter().all(|&byte| byte == 0));
            // SAFETY: allocated above with this layout.
            unsafe {
                CollectionAllocator::new(allocator.clone())
                    .deallocate(zeros.cast(), Layout::from_size_align(1000, 8).unwrap());
            };
            drop((rows, page));
            assert_eq!(allocator.stats().live(), 0);
            allocator.verify().unwrap();
        }
    }

    /// Returns blocks full of ones.
    struct Dirty(AllocatorRef);

    impl BlockSource for Dirty {
        fn allocate_block(&self, request: &Request) -> crate::Result<Block> {
            let mut block = self.0.allocate(&Request { zeroed: false, ..*request })?;
            block.bytes_mut()?.fill(u8::MAX);
            Ok(block)
        }
    }

    #[test]
    fn zeroed_memory_is_zero_whatever_the_source_does() {
        let source = Dirty(Direct::new(System::new()).into_ref().erase());
        let (alloc, layout) = (CollectionAllocator::new(source), Layout::new::<[u64; 8]>());
        let zeros = alloc.allocate_zeroed(layout).unwrap();
        // SAFETY: allocated above, and initialised.
        assert_eq!(unsafe { zeros.as_ref() }, [0; 64]);
        // SAFETY: allocated above with this layout.
        unsafe { alloc.deallocate(zeros.cast(), layout) };
    }

    /// Miri finds the read of uninitialised bytes.
    #[test]
    fn the_next_block_in_the_memory_of_a_collection_is_initialised() {
        let allocator = Caching::new(System::new()).into_ref();
        let collections = CollectionAllocator::new(allocator.clone());
        for _ in 0..3 {
            let unwritten = Box::new_in(std::mem::MaybeUninit::<[u8; 1000]>::uninit(), collections.clone());
            drop(unwritten);
            let mut padded = Vec::with_capacity_in(63, collections.clone());
            padded.extend([(u8::MAX, u64::MAX); 63]);
            drop(padded);
            for bytes in [1008, 1016] {
                let block = allocator.allocate(&Request::new(bytes)).unwrap();
                let bytes = block.bytes().unwrap();
                assert!(bytes[size_of::<usize>()..].iter().all(|&byte| byte == 0), "{bytes:?}");
            }
        }
    }

    #[test]
    fn unavailable_memory_is_an_error() {
        let device = CollectionAllocator::new(Direct::new(Null::new(Device::cuda(0))).into_ref());
        assert!(device.allocate(Layout::new::<u64>()).is_err());
        assert_eq!(device.source.stats().live(), 0);
        let small = CollectionAllocator::new(Arena::new(System::new(), 1000).into_ref());
        assert!(small.allocate(Layout::from_size_align(isize::MAX as usize - 4096, 4096).unwrap()).is_err());
        assert!(small.allocate(Layout::from_size_align(0, 64).unwrap()).is_ok());
    }

    /// The provenance of a box ends with its value, before which the header is.
    #[test]
    fn a_box_is_freed_by_its_own_pointer() {
        let allocator = Direct::new(System::new()).into_ref();
        let boxed = Box::new_in([1u64; 9], CollectionAllocator::new(allocator.clone()));
        let vector: Vec<u8, CollectionAllocator> = {
            let mut vector = Vec::with_capacity_in(10, CollectionAllocator::new(allocator.clone().erase()));
            vector.extend_from_slice(&[7; 10]);
            let mut vector = vector.into_boxed_slice().into_vec();
            vector.push(8);
            vector
        };
        assert_eq!((boxed[8], vector[9], vector[10]), (1, 7, 8));
        drop((boxed, vector));
        assert_eq!(allocator.stats().live(), 0);
    }

    #[test]
    fn clones_are_of_one_allocator_with_its_kind_and_tag() {
        let allocator: AllocatorRef = Caching::new(System::new()).into_ref().erase();
        let tag = Tag::new("collections");
        let workspace = CollectionAllocator::new(allocator.clone()).kind(MemoryKind::Workspace).tag(tag);
        let mut first: Vec<u8, CollectionAllocator> = Vec::with_capacity_in(1000, workspace.clone());
        first.push(1);
        // A clone of a vector has a clone of the allocator.
        let second = first.clone();
        let live = allocator.stats().kind(MemoryKind::Workspace).live_bytes;
        assert_eq!((live >= 1001, live), (true, allocator.stats().live()));
        assert_eq!(allocator.tag_uses().iter().filter(|part| part.tag == tag).count(), 1);
        // The blocks keep the allocator alive.
        drop((allocator, workspace));
        assert_eq!(first, second);
    }
}
