//! Arrays of any element type in allocator memory.
//!
//! Tensors hold plain numbers. Runtimes also keep strings, handles and futures beside them; TensorFlow's
//! allocators therefore construct and drop elements of non-trivial types. [`TypedBlock`] does that with
//! Rust's guarantees: every constructed element is dropped exactly once, also if a constructor or a
//! destructor panics, and the block always returns to its allocator.
//!
//! # Why the bytes are zeroed when the block returns
//!
//! A host block's bytes are initialised while the engine holds them (`Allocator`, obligation 2), so that the
//! next user may read them. An element may have padding or uninitialised fields, and writing it makes those
//! bytes uninitialised. The bytes are therefore zeroed after the elements are dropped: one more pass over
//! memory that was written element by element.

use crate::{Allocator, AllocatorRef, Block, Error, Request, Result};
use orlop_core::{Alignment, bytes::checked_bytes};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

/// A block of `T` values that are dropped with it. It dereferences to a slice.
///
/// ```
/// use orlop_alloc::{Allocator, backing::System, engine::Direct};
///
/// let allocator = Direct::new(System::new()).into_ref();
/// let mut names = allocator.allocate_typed(3, |index| format!("layer {index}"))?;
/// names[1].push_str(", quantised");
/// assert_eq!(names.join("; "), "layer 0; layer 1, quantised; layer 2");
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[must_use = "dropping a typed block drops its elements and frees its memory"]
pub struct TypedBlock<T> {
    /// Invariants: 1. the block is host-accessible, aligned for `T`, and has at least `len * size_of::<T>()`
    /// bytes, a product that does not overflow; 2. the first `len` elements are valid, and this value drops
    /// them.
    block: Block,
    len: usize,
    elements: PhantomData<T>,
}

impl<T> TypedBlock<T> {
    /// Returns a request with the bytes of `count` elements, and at least their alignment.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyElements`] if the elements exceed the address space.
    pub fn request_for(request: &Request, count: usize) -> Result<Request> {
        let too_many = |_| Error::TooManyElements { count, element_bytes: size_of::<T>() };
        let mut request = *request;
        request.bytes = checked_bytes(count, size_of::<T>()).map_err(too_many)?;
        request.align = request.align.max(Alignment::of::<T>());
        Ok(request)
    }

    /// Constructs `count` elements in a block, in ascending order, with a constructor that can fail. At the
    /// first error, or if `make` panics, the elements constructed so far are dropped and the block returns.
    ///
    /// # Errors
    ///
    /// The error of `make`; [`Error::UnsuitableBlock`] if the block is too small or not aligned for the
    /// elements, [`Error::NotHostAccessible`], [`Error::TooManyElements`], converted to `E`.
    pub fn try_in_block<E: From<Error>>(
        block: Block,
        count: usize,
        make: impl FnMut(usize) -> Result<T, E>,
    ) -> Result<Self, E> {
        Self::with_room(block, count)?.fill(count, make)
    }

    /// Takes a block with room for `capacity` elements, none of which is constructed yet.
    fn with_room(block: Block, capacity: usize) -> Result<Self> {
        let Request { bytes, align, .. } =
            Self::request_for(&Request::new(0).align(Alignment::ONE), capacity)?;
        // Fails if the memory is not host-accessible.
        let available = block.bytes()?.len();
        let address = block.as_ptr().addr().get();
        if available < bytes || !align.is_aligned(address) {
            return Err(Error::UnsuitableBlock { address, available, bytes, align });
        }
        Ok(Self { block, len: 0, elements: PhantomData })
    }

    fn fill<E>(mut self, count: usize, mut make: impl FnMut(usize) -> Result<T, E>) -> Result<Self, E> {
        for index in 0..count {
            // If this fails or panics, dropping `self` drops the elements constructed so far and returns the
            // block.
            let element = make(index)?;
            // SAFETY: `index < count`, which `with_room` allocated room for (invariant 1).
            let place = unsafe { self.start().add(index) };
            // SAFETY: inside the block and aligned; there is no element yet that the write would overwrite.
            unsafe { place.write(element) };
            self.len = index + 1;
        }
        Ok(self)
    }

    fn start(&self) -> NonNull<T> {
        self.block.as_ptr().cast()
    }

    /// Returns the kind of memory.
    #[must_use]
    pub fn kind(&self) -> orlop_core::MemoryKind {
        self.block.kind()
    }

    /// Returns the tag of the request.
    #[must_use]
    pub fn tag(&self) -> crate::Tag {
        self.block.tag()
    }

    /// Returns the id of the allocation.
    #[must_use]
    pub fn id(&self) -> crate::AllocationId {
        self.block.id()
    }
}

impl<A: ?Sized + Allocator> AllocatorRef<A> {
    /// Allocates an array of `count` elements; `make(index)` constructs the element at `index`, in ascending
    /// order.
    ///
    /// If `make` panics, the elements constructed so far are dropped and the block returns.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyElements`] if the elements exceed the address space, [`Error::NotHostAccessible`],
    /// [`Error::OutOfMemory`].
    pub fn allocate_typed<T>(&self, count: usize, mut make: impl FnMut(usize) -> T) -> Result<TypedBlock<T>> {
        self.try_allocate_typed(&Request::new(0), count, |index| Ok::<T, Error>(make(index)))
    }

    /// As [`AllocatorRef::allocate_typed`], with a constructor that can fail, for a request with a kind, a
    /// tag and so on. Its size is replaced, and its alignment is raised to that of `T`. At the first error
    /// the elements constructed so far are dropped and the block returns.
    ///
    /// # Errors
    ///
    /// The error of `make`, and those of [`AllocatorRef::allocate_typed`] converted to `E`.
    pub fn try_allocate_typed<T, E: From<Error>>(
        &self,
        request: &Request,
        count: usize,
        make: impl FnMut(usize) -> Result<T, E>,
    ) -> Result<TypedBlock<T>, E> {
        let block = self.allocate(&TypedBlock::<T>::request_for(request, count)?)?;
        TypedBlock::try_in_block(block, count, make)
    }
}

impl<T> Deref for TypedBlock<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: invariants 1 and 2; changing an element requires `&mut self`.
        unsafe { slice::from_raw_parts(self.start().as_ptr(), self.len) }
    }
}

impl<T> DerefMut for TypedBlock<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: invariants 1 and 2, and `self` is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.start().as_ptr(), self.len) }
    }
}

/// Zeroes bytes when it is dropped, also during unwinding.
struct ZeroOnDrop {
    ptr: NonNull<u8>,
    bytes: usize,
}

impl Drop for ZeroOnDrop {
    fn drop(&mut self) {
        // SAFETY: bytes of a block that `TypedBlock::drop` holds, and all their elements have been dropped.
        unsafe { self.ptr.write_bytes(0, self.bytes) };
    }
}

impl<T> Drop for TypedBlock<T> {
    fn drop(&mut self) {
        let elements = &raw mut **self;
        let _zeroing = ZeroOnDrop { ptr: self.block.as_ptr(), bytes: self.len * size_of::<T>() };
        // SAFETY: the elements are valid and owned by this value (invariant 2), and not used afterwards. If
        // one of them panics, the others are still dropped, `_zeroing` runs, and the field `block` is
        // returned.
        unsafe { elements.drop_in_place() };
    }
}

impl<'a, T> IntoIterator for &'a TypedBlock<T> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut TypedBlock<T> {
    type Item = &'a mut T;
    type IntoIter = slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

impl<T: fmt::Debug> fmt::Debug for TypedBlock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::backing::{Null, System};
    use crate::bfc::Bfc;
    use crate::engine::Direct;
    use orlop_core::{Device, MemoryKind};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;

    fn allocator() -> AllocatorRef {
        Bfc::new(System::new()).into_ref().erase()
    }

    #[test]
    fn elements_are_made_and_dropped_once() {
        let (allocator, witness) = (allocator(), Rc::new(()));
        let block = allocator.allocate_typed(10, |_| witness.clone()).unwrap();
        assert_eq!((block.len(), Rc::strong_count(&witness)), (10, 11));
        drop(block);
        assert_eq!((Rc::strong_count(&witness), allocator.stats().live()), (1, 0));
    }

    #[test]
    fn a_panicking_constructor_leaks_nothing() {
        let (allocator, witness) = (allocator(), Rc::new(()));
        let make = |index| if index == 5 { panic!("constructor") } else { witness.clone() };
        let result = catch_unwind(AssertUnwindSafe(|| allocator.allocate_typed(10, make)));
        assert!(result.is_err());
        assert_eq!((Rc::strong_count(&witness), allocator.stats().live()), (1, 0));
    }

    #[test]
    fn a_failing_constructor_leaks_nothing_and_keeps_its_error() {
        #[derive(Debug)]
        enum Failure {
            Ours(Error),
            Theirs(usize),
        }
        impl From<Error> for Failure {
            fn from(error: Error) -> Self {
                Self::Ours(error)
            }
        }
        let (allocator, witness) = (allocator(), Rc::new(()));
        let request = Request::new(0).kind(MemoryKind::Workspace);
        let make = |index| if index == 3 { Err(Failure::Theirs(index)) } else { Ok(witness.clone()) };
        let result = allocator.try_allocate_typed(&request, 10, make);
        assert!(matches!(result, Err(Failure::Theirs(3))));
        assert_eq!((Rc::strong_count(&witness), allocator.stats().live()), (1, 0));
        let result = allocator.try_allocate_typed(&request, usize::MAX, make);
        assert!(matches!(result, Err(Failure::Ours(Error::TooManyElements { element_bytes: 8, .. }))));
    }

    #[test]
    fn a_panicking_destructor_drops_the_others_and_returns_the_block() {
        struct Bomb(Rc<()>, bool);
        impl Drop for Bomb {
            fn drop(&mut self) {
                assert!(!self.1, "destructor");
            }
        }
        let (allocator, witness) = (allocator(), Rc::new(()));
        let block = allocator.allocate_typed(4, |index| Bomb(witness.clone(), index == 1)).unwrap();
        assert!(Rc::ptr_eq(&block[0].0, &witness));
        assert!(catch_unwind(AssertUnwindSafe(|| drop(block))).is_err());
        assert_eq!((Rc::strong_count(&witness), allocator.stats().live()), (1, 0));
    }

    #[test]
    fn alignment_zero_size_and_padding() {
        #[derive(Clone, Copy)]
        #[repr(align(1024))]
        struct Wide(u8);
        let allocator = allocator();
        let wide = allocator.allocate_typed(3, |index| Wide(u8::try_from(index).unwrap_or(0))).unwrap();
        assert_eq!((wide.as_ptr().addr() % 1024, wide[2].0), (0, 2));
        drop(wide);
        // Bytes that were padding are initialised again for the next user.
        let again = allocator.allocate(&Request::new(3072)).unwrap();
        assert!(again.bytes().unwrap().iter().all(|&byte| byte == 0));
        let made = std::cell::Cell::new(0);
        let units = allocator.allocate_typed(1000, |_| made.set(made.get() + 1)).unwrap();
        assert_eq!((units.len(), made.get()), (1000, 1000));
        assert!(allocator.allocate_typed(0, |_| String::new()).unwrap().is_empty());
    }

    #[test]
    fn overflow_and_device_memory_are_refused() {
        let error = allocator().allocate_typed(usize::MAX / 2, |_| 0u64).unwrap_err();
        assert!(
            matches!(error, Error::TooManyElements { count, element_bytes: 8 } if count == usize::MAX / 2)
        );
        let device = Direct::new(Null::new(Device::cuda(1))).into_ref();
        let error = device.allocate_typed(4, |_| String::new()).unwrap_err();
        assert!(matches!(error, Error::NotHostAccessible { device } if device == Device::cuda(1)));
        assert_eq!(device.stats().live(), 0);
    }

    #[test]
    fn blocks_that_do_not_fit_are_refused() {
        let (allocator, witness) = (allocator(), Rc::new(()));
        let block = |bytes| allocator.allocate(&Request::new(bytes)).unwrap();
        let make = |_| Ok::<_, Error>(witness.clone());
        let refused = TypedBlock::try_in_block(block(7), 1, make).unwrap_err();
        assert!(matches!(refused, Error::UnsuitableBlock { available: 7, bytes: 8, .. }), "{refused}");
        let whole = block(64).share();
        // SAFETY: inside, and nothing else uses the bytes.
        let crooked = unsafe { whole.part(4, 60) };
        let refused = TypedBlock::try_in_block(crooked, 1, make).unwrap_err();
        assert!(matches!(refused, Error::UnsuitableBlock { bytes: 8, .. }), "{refused}");
        // SAFETY: as above.
        let part = unsafe { whole.part(8, 16) };
        let elements = TypedBlock::try_in_block(part, 2, make).unwrap();
        drop(whole);
        assert_eq!((elements.len(), Rc::strong_count(&witness)), (2, 3));
        drop(elements);
        assert_eq!((Rc::strong_count(&witness), allocator.stats().live()), (1, 0));
    }
}
