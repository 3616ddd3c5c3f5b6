//! An allocator for collections.

use super::{allocate, deallocate, header};
use crate::{Allocator, AllocatorRef};
use allocator_api2::alloc::{AllocError, Allocator as ApiAllocator};
use std::alloc::Layout;
use std::ptr::NonNull;

/// An allocator for the collections of `allocator_api2`, and for others that take its allocators.
///
/// ```
/// use allocator_api2::vec::Vec;
/// use orlop_alloc::bare::CollectionAllocator;
/// use orlop_alloc::{Allocator, backing::Mmap, caching::Caching};
///
/// let allocator = Caching::new(Mmap::new()).into_ref();
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
    /// Creates an allocator over `allocator`. If its memory is not host-accessible, every allocation fails.
    #[must_use]
    pub fn new(allocator: AllocatorRef<A>) -> Self {
        Self { allocator }
    }

    fn allocate_layout(&self, layout: Layout, zeroed: bool) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            let aligned = std::ptr::without_provenance_mut(layout.align());
            // An alignment is a power of two, hence not null.
            return Ok(NonNull::slice_from_raw_parts(NonNull::new(aligned).ok_or(AllocError)?, 0));
        }
        let memory = allocate(&self.allocator, layout, zeroed).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(memory, layout.size()))
    }
}

// SAFETY: each allocation is in a block of its own until it is freed. Clones are handles of the same
// allocator, which exists while one of them does and does not move.
unsafe impl<A: ?Sized + Allocator> ApiAllocator for CollectionAllocator<A> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.allocate_layout(layout, false)
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        self.allocate_layout(layout, true)
    }

    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: Layout) {
        if layout.size() == 0 {
            return;
        }
        // SAFETY: guaranteed by the caller: from `allocate`, and not freed before.
        if let Some(record) = unsafe { header(ptr) } {
            // SAFETY: as above, and `self` is a handle. A refusal is counted and logged; there is no way to
            // return it.
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

    #[test]
    fn unavailable_memory_is_an_error() {
        let device = CollectionAllocator::new(Direct::new(Null::new(Device::cuda(0))).into_ref());
        assert!(device.allocate(Layout::new::<u64>()).is_err());
        assert_eq!(device.allocator.stats().live(), 0);
        let small = CollectionAllocator::new(Arena::new(System::new(), 1000).into_ref());
        assert!(small.allocate(Layout::from_size_align(isize::MAX as usize - 4096, 4096).unwrap()).is_err());
        assert!(small.allocate(Layout::from_size_align(0, 64).unwrap()).is_ok());
    }
}
