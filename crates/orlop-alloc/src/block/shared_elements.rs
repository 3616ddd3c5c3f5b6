//! Elements with several owners: ranges of a [`TypedBlock`] that keep it alive.

use crate::{AllocationId, Tag, TypedBlock};
use orlop_core::MemoryKind;
use std::fmt;
use std::ops::{Deref, Range};
use std::slice;
use std::sync::Arc;

/// A counted handle to a range of the elements of a [`TypedBlock`]. It dereferences to a slice. The elements
/// are dropped, all of them, and the block returns, with the last handle.
///
/// ```
/// use orlop_alloc::{Allocator, backing::System, engine::Direct};
///
/// let allocator = Direct::new(System::new()).into_ref();
/// let names = allocator.allocate_typed(4, |index| format!("layer {index}"))?.share();
/// let last = names.get_range(2..4).ok_or("four names")?;
/// drop(names);
/// assert_eq!(last.join(", "), "layer 2, layer 3");
/// drop(last);
/// assert_eq!(allocator.stats().live(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SharedElements<T> {
    block: Arc<TypedBlock<T>>,
    /// Inside the block.
    range: Range<usize>,
}

impl<T> TypedBlock<T> {
    /// Converts the block into a handle to all of its elements.
    pub fn share(self) -> SharedElements<T> {
        let range = 0..self.len();
        SharedElements { block: Arc::new(self), range }
    }
}

impl<T> SharedElements<T> {
    /// Returns a handle to these elements of this one. `None` if they are not inside.
    #[must_use]
    pub fn get_range(&self, range: Range<usize>) -> Option<Self> {
        // Also refuses a range that ends before it starts.
        self.get(range.clone())?;
        let place = self.range.start + range.start..self.range.start + range.end;
        Some(Self { block: Arc::clone(&self.block), range: place })
    }

    /// Returns `true` if this is the only handle to any elements of the block.
    #[must_use]
    pub fn is_unique(&mut self) -> bool {
        Arc::get_mut(&mut self.block).is_some()
    }

    /// Returns the elements for changes, if this is the only handle to any elements of the block.
    #[must_use]
    pub fn get_mut(&mut self) -> Option<&mut [T]> {
        Arc::get_mut(&mut self.block)?.get_mut(self.range.clone())
    }

    /// Returns the block with all elements, also those outside of the range, if this is the only handle.
    ///
    /// # Errors
    ///
    /// The handle itself if there are others.
    pub fn try_into_block(self) -> Result<TypedBlock<T>, Self> {
        let Self { block, range } = self;
        Arc::try_unwrap(block).map_err(|block| Self { block, range })
    }

    /// Returns the kind of memory.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.block.kind()
    }

    /// Returns the tag of the request.
    #[must_use]
    pub fn tag(&self) -> Tag {
        self.block.tag()
    }

    /// Returns the id of the allocation.
    #[must_use]
    pub fn id(&self) -> AllocationId {
        self.block.id()
    }
}

impl<T> Deref for SharedElements<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.block.get(self.range.clone()).unwrap_or_default()
    }
}

impl<T> Clone for SharedElements<T> {
    fn clone(&self) -> Self {
        Self { block: Arc::clone(&self.block), range: self.range.clone() }
    }
}

impl<'a, T> IntoIterator for &'a SharedElements<T> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: fmt::Debug> fmt::Debug for SharedElements<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::backing::System;
    use crate::engine::Direct;
    use crate::{Allocator, Request};
    use orlop_core::MemoryKind;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn ranges_keep_the_elements() {
        let (allocator, witness) = (Direct::new(System::new()).into_ref(), Arc::new(()));
        let request = Request::new(0).kind(MemoryKind::KvCache);
        let make = |index: usize| Ok::<_, crate::Error>((index, Arc::clone(&witness)));
        let all = allocator.try_allocate_typed(&request, 10, make).unwrap().share();
        assert_eq!(allocator.stats().kind(MemoryKind::KvCache).live_blocks(), 1);
        let mut part = all.get_range(2..8).unwrap();
        let inner = part.get_range(1..2).unwrap();
        assert_eq!((inner[0].0, inner.len(), part.kind()), (3, 1, MemoryKind::KvCache));
        assert!(part.get_range(0..7).is_none() && part.get_range(7..7).is_none());
        #[expect(clippy::reversed_empty_ranges, reason = "a range that is refused")]
        let reversed = part.get_range(3..2);
        assert!(reversed.is_none() && part.get_range(6..6).is_some_and(|none| none.is_empty()));
        assert!(part.get_mut().is_none() && !part.is_unique());
        let part = part.try_into_block().unwrap_err();
        drop((all, inner));
        assert_eq!(Arc::strong_count(&witness), 11);
        let mut part = part;
        let clone = part.clone();
        assert!(!part.is_unique());
        drop(clone);
        part.get_mut().unwrap()[0].0 = 77;
        let block = part.try_into_block().unwrap();
        assert_eq!((block.len(), block[2].0), (10, 77));
        drop(block);
        assert_eq!((Arc::strong_count(&witness), allocator.stats().live()), (1, 0));
    }

    /// The last owner, on whichever thread, drops each element once, also if a destructor panics.
    #[test]
    fn the_last_owner_drops_all_elements() {
        struct Counted<'a>(&'a AtomicUsize, bool);
        impl Drop for Counted<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
                assert!(!self.1, "destructor");
            }
        }
        let allocator = Direct::new(System::new()).into_ref();
        for panics in [false, true] {
            let dropped = AtomicUsize::new(0);
            let make = |index| Counted(&dropped, panics && index == 3);
            let all = allocator.allocate_typed(8, make).unwrap().share();
            std::thread::scope(|scope| {
                for start in 0..4 {
                    let part = all.get_range(start..start + 4).unwrap();
                    scope.spawn(move || catch_unwind(AssertUnwindSafe(|| drop(part))).is_err());
                }
                let _ = catch_unwind(AssertUnwindSafe(|| drop(all)));
            });
            assert_eq!((dropped.load(Ordering::Relaxed), allocator.stats().live()), (8, 0));
        }
    }
}
