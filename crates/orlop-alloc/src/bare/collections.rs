//! orlop under collections that take an allocator.

use super::{allocate, deallocate, header};
use crate::{Allocator, AllocatorRef};
use allocator_api2::alloc::{AllocError, Allocator as ApiAllocator};
use std::alloc::Layout;
use std::ptr::NonNull;

/// An allocator for `allocator_api2`'s collections, and for all that take one of its kind.
///
/// ```
/// use allocator_api2::vec::Vec;
/// use orlop_alloc::bare::CollectionAllocator;
/// use orlop_alloc::{backing::Mmap, caching::Caching};
///
/// let allocator = Caching::builder(Mmap::new()).build();
/// let mut numbers = Vec::new_in(CollectionAllocator::new(allocator.clone().erase()));
/// numbers.extend(0..1000u64);
/// assert!(allocator.stats().live() >= 8000);
/// # drop(numbers);
/// # assert_eq!(allocator.stats().live(), 0);
/// ```
#[derive(Debug, Clone)]
pub struct CollectionAllocator<A: ?Sized + Allocator = dyn Allocator> {
    allocator: AllocatorRef<A>,
}

impl<A: ?Sized + Allocator> CollectionAllocator<A> {
    /// Over an allocator of memory that the processor reaches; of other memory it has nothing to give.
    #[must_use]
    pub fn new(allocator: AllocatorRef<A>) -> Self {
        Self { allocator }
    }

    fn take(&self, layout: Layout, zeroed: bool) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            let aligned = std::ptr::without_provenance_mut(layout.align());
            // An alignment is a power of two, hence not null.
            return Ok(NonNull::slice_from_raw_parts(NonNull::new(aligned).ok_or(AllocError)?, 0));
        }
        let memory = allocate(&self.allocator, layout, zeroed).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(memory, layout.size()))
    }
}

// SAFETY: memory is in a block of its own, until it comes back; clones are handles of the same allocator, which lives as
// long as one of them does, and may be moved.
unsafe impl<A: ?Sized + Allocator> ApiAllocator for CollectionAllocator<A> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.take(layout, false)
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.take(layout, true)
    }

    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        if layout.size() == 0 {
            return;
        }
        // SAFETY: the caller's promise: from `allocate`, and not given back before.
        if let Some(record) = unsafe { header(ptr) } {
            // SAFETY: as above, and this has a handle. A refusal was counted and traced; there is nobody to return it to.
            let _ = unsafe { deallocate(&self.allocator, record) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::backing::{Null, System};
    use crate::caching::Caching;
    use crate::engine::{Arena, Direct};
    use allocator_api2::boxed::Box;
    use allocator_api2::vec::Vec;
    use orlop_core::Device;

    #[test]
    fn collections_live_in_it_and_return_all() {
        let allocators: [AllocatorRef; 2] =
            [Caching::builder(System::new()).build().erase(), Direct::new(System::new()).erase()];
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
            // SAFETY: just allocated, and zeroed.
            assert!(unsafe { zeros.as_ref() }.iter().all(|&byte| byte == 0));
            // SAFETY: from there, with that layout.
            unsafe {
                CollectionAllocator::new(allocator.clone())
                    .deallocate(zeros.cast(), Layout::from_size_align(1000, 8).unwrap());
            };
            drop((rows, page));
            assert_eq!(allocator.stats().live(), 0);
            allocator.verify().unwrap();
        }
    }

    #[test]
    fn what_cannot_be_had_is_an_error() {
        let device = CollectionAllocator::new(Direct::new(Null::new(Device::cuda(0))));
        assert!(device.allocate(Layout::new::<u64>()).is_err());
        assert_eq!(device.allocator.stats().live(), 0);
        let small = CollectionAllocator::new(AllocatorRef::new(Arena::engine(System::new(), 1000)));
        assert!(small.allocate(Layout::from_size_align(isize::MAX as usize - 4096, 4096).unwrap()).is_err());
        assert!(small.allocate(Layout::from_size_align(0, 64).unwrap()).is_ok());
    }
}
