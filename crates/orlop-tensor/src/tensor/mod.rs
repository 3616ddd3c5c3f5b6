//! [`Tensor`]: a handle to a view of a storage.

mod access;
mod accessor;
mod create;
mod data;
mod device;
mod display;
mod elements;
mod metadata;
mod ops;
mod packed;
#[cfg(feature = "rand")]
mod random;
mod shape;
mod unique;
mod views;

pub use self::accessor::{Accessor, AccessorMut, SubAccessor, SubAccessorMut};
pub use self::data::Nested;
pub use self::display::{DisplayTensor, PrintOptions};
pub(crate) use self::elements::Offsets;
pub use self::elements::{Elements, ElementsMut, TensorElements, TensorElementsMut};
pub use self::packed::{PackedAccessor, PackedIndex};
pub use self::shape::IntoShape;

use crate::error::{Error, Result};
use crate::shared::Shared;
use crate::storage::{Storage, TensorImpl};
use orlop_core::{DType, Device, Layout, MemoryFormat, MemoryKind, Shape, StreamId, Strides};

/// A multi-dimensional view of a storage. It is a counted handle of one pointer: cloning increments a
/// reference count and copies no data, and clones are the same tensor.
///
/// A tensor can be [undefined](Tensor::undefined): it then has one dimension of size 0, and every operation
/// that needs a value fails with [`Error::Undefined`].
///
/// # Sharing
///
/// Handles may be sent to and used from any thread. Clones and views alias, so a reference to a handle says
/// nothing about the elements. An access to the elements holds a guard (a slice, an accessor): for each byte
/// there may be any number of readers or one writer, over all handles to the storage. A conflict fails at
/// once with [`Error::Borrowed`]: there are no data races, and no access blocks.
///
/// Views are compared by the bytes from their first to their last element, so disjoint parts of a tensor can
/// be used at once, by any threads:
///
/// ```
/// use orlop_core::DType;
/// use orlop_tensor::{Error, Tensor};
///
/// let cache = Tensor::zeros([4, 8], DType::F32)?;
/// let (old, new) = (cache.narrow(0, 0, 3)?, cache.narrow(0, 3, 1)?);
/// let mut row = new.as_mut_slice::<f32>()?;
/// row.fill(old.as_slice::<f32>()?.iter().sum::<f32>() + 1.0);
/// assert!(matches!(cache.as_slice::<f32>(), Err(Error::Borrowed { .. })));
/// drop(row);
/// assert_eq!(cache.as_slice::<f32>()?[24], 1.0);
/// # Ok::<(), orlop_tensor::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Tensor {
    imp: Option<Shared<TensorImpl>>,
}

impl Tensor {
    /// Returns an undefined tensor.
    ///
    /// ```
    /// use orlop_tensor::Tensor;
    ///
    /// let nothing = Tensor::undefined();
    /// assert!(!nothing.is_defined());
    /// assert_eq!(nothing.numel(), 0);
    /// ```
    #[must_use]
    pub const fn undefined() -> Self {
        Self { imp: None }
    }

    /// Returns `true` unless the tensor is undefined.
    #[inline]
    #[must_use]
    pub const fn is_defined(&self) -> bool {
        self.imp.is_some()
    }

    #[inline]
    pub(crate) fn new(storage: Storage, layout: Layout, dtype: DType) -> Self {
        Self { imp: Some(TensorImpl::of(storage, layout, dtype)) }
    }

    /// Returns `true` if the tensor is defined and has no clones.
    #[inline]
    pub(crate) fn has_one_handle(&self) -> bool {
        self.imp.as_ref().is_some_and(Shared::is_unique)
    }

    /// Returns the shared state.
    #[inline]
    pub(crate) fn imp(&self) -> Result<&TensorImpl> {
        // `ok_or` would construct and drop an error on each call.
        match &self.imp {
            Some(imp) => Ok(imp),
            None => Err(Error::Undefined),
        }
    }

    /// Returns the metadata for this handle alone: clones keep theirs.
    pub(crate) fn metadata_mut(&mut self) -> Result<(&mut Layout, &mut DType)> {
        let imp = self.imp.as_mut().ok_or(Error::Undefined)?;
        if !imp.is_unique() {
            *imp = imp.copied();
        }
        imp.get_mut().map(TensorImpl::metadata_mut).ok_or(Error::Undefined)
    }

    /// Returns a tensor over the same storage with this layout, which is inside the storage.
    #[inline]
    pub(crate) fn with_layout(&self, layout: Layout) -> Result<Self> {
        let imp = self.imp()?;
        Ok(Self::new(imp.storage().clone(), layout, imp.dtype))
    }

    /// Returns a tensor over the same storage with a copy of this layout, changed by `change`, which keeps it
    /// inside the storage.
    #[inline(always)]
    pub(crate) fn with_changed(
        &self,
        change: impl FnOnce(&mut Layout) -> orlop_core::Result<()>,
    ) -> Result<Self> {
        let mut view = self.imp()?.copied();
        // SAFETY: just made, and there is no other handle.
        change(unsafe { view.new_mut() }.metadata_mut().0)?;
        Ok(Self { imp: Some(view) })
    }

    /// Creates a tensor over a storage.
    ///
    /// # Errors
    ///
    /// [`OutOfStorage`](orlop_core::Error::OutOfStorage) if an element is outside; [`Error::Unbound`].
    pub fn from_storage(storage: Storage, layout: Layout, dtype: DType) -> Result<Self> {
        storage.check_bytes(&layout, dtype)?;
        Ok(Self::new(storage, layout, dtype))
    }

    /// Returns the sizes, strides and storage offset, in elements.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        match &self.imp {
            Some(imp) => &imp.layout,
            None => undefined_layout(),
        }
    }

    /// Returns the sizes.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        self.layout().shape()
    }

    /// Returns the sizes as a slice.
    #[must_use]
    pub fn sizes(&self) -> &[usize] {
        self.layout().shape()
    }

    /// Returns the size of a dimension; a negative one counts from the end.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`] if the dimension is out of range.
    pub fn size(&self, dim: isize) -> Result<usize> {
        let (sizes, ndim) = (self.sizes(), self.ndim());
        let place = if dim < 0 { ndim.checked_add_signed(dim) } else { usize::try_from(dim).ok() };
        let size = place.and_then(|place| sizes.get(place).copied());
        size.ok_or_else(|| orlop_core::Error::DimOutOfRange { dim, ndim }.into())
    }

    /// Returns the strides, in elements.
    #[must_use]
    pub fn strides(&self) -> &Strides {
        self.layout().strides()
    }

    /// Returns the position of the first element in the storage, in elements.
    #[must_use]
    pub fn storage_offset(&self) -> usize {
        self.layout().offset()
    }

    /// Returns the number of dimensions.
    #[must_use]
    pub fn ndim(&self) -> usize {
        self.layout().ndim()
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn numel(&self) -> usize {
        self.layout().numel()
    }

    /// Returns `true` if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numel() == 0
    }

    /// Returns the element type; `float32` if undefined.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.imp.as_ref().map_or(DType::F32, |imp| imp.dtype)
    }

    /// Returns the bytes of an element.
    #[must_use]
    pub fn itemsize(&self) -> usize {
        self.dtype().size()
    }

    /// Returns the bytes of all elements: their number times their size. For the storage's bytes, see
    /// [`Storage::nbytes`].
    #[must_use]
    pub fn nbytes(&self) -> usize {
        // Fits, because the layout's span does.
        self.numel().saturating_mul(self.itemsize())
    }

    /// Returns the device; the CPU if undefined.
    #[must_use]
    pub fn device(&self) -> Device {
        self.imp.as_ref().map_or(Device::CPU, |imp| imp.storage().device())
    }

    /// Returns the memory kind.
    #[must_use]
    pub fn memory_kind(&self) -> MemoryKind {
        self.imp.as_ref().map_or(MemoryKind::Default, |imp| imp.storage().memory_kind())
    }

    /// Returns the storage.
    ///
    /// # Errors
    ///
    /// [`Error::Undefined`].
    pub fn storage(&self) -> Result<&Storage> {
        Ok(self.imp()?.storage())
    }

    /// Records that `stream` uses the memory, which was allocated for another stream: see
    /// [`Storage::record_stream`](crate::Storage::record_stream).
    ///
    /// # Errors
    ///
    /// [`Error::Undefined`]; those of [`Storage::record_stream`](crate::Storage::record_stream).
    pub fn record_stream(&self, stream: StreamId) -> Result<()> {
        self.storage()?.record_stream(stream)
    }

    /// Returns the number of writes to the storage, through any handle.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.imp.as_ref().map_or(0, |imp| imp.storage().version())
    }

    /// Returns `true` if the elements are row-major without gaps.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.layout().is_contiguous()
    }

    /// Returns `true` if the elements are in this format without gaps.
    #[must_use]
    pub fn is_contiguous_in(&self, format: MemoryFormat) -> bool {
        self.layout().is_contiguous_in(format)
    }

    /// Returns `true` if both are handles to the same tensor.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.imp, &other.imp) {
            (Some(mine), Some(theirs)) => mine.same_as(theirs),
            (None, None) => true,
            _ => false,
        }
    }

    /// Returns `true` if both use the same storage, so that writes to one may be visible in the other.
    #[must_use]
    pub fn is_alias_of(&self, other: &Self) -> bool {
        match (&self.imp, &other.imp) {
            (Some(mine), Some(theirs)) => mine.storage().is_alias_of(theirs.storage()),
            _ => false,
        }
    }

    /// Returns the bytes that dropping this handle now would free: see [`Storage::would_free`]. Zero while
    /// there are other handles to the tensor, and if it is undefined.
    ///
    /// ```
    /// use orlop_core::DType;
    /// use orlop_tensor::Tensor;
    ///
    /// let tensor = Tensor::zeros([256], DType::F32)?;
    /// let view = tensor.narrow(0, 0, 1)?;
    /// assert_eq!(tensor.would_free()?, 0);
    /// drop(tensor);
    /// assert!(view.would_free()? >= 1024);
    /// # Ok::<(), orlop_tensor::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Storage::would_free`].
    pub fn would_free(&self) -> Result<usize> {
        match &self.imp {
            Some(imp) if imp.is_unique() => imp.storage().would_free(),
            _ => Ok(0),
        }
    }

    /// Returns the number of handles to this tensor, which other threads may change. Views are separate
    /// tensors.
    #[must_use]
    pub fn use_count(&self) -> usize {
        self.imp.as_ref().map_or(0, Shared::count)
    }
}

/// Returns the layout of undefined tensors: one dimension of size 0.
fn undefined_layout() -> &'static Layout {
    static LAYOUT: std::sync::LazyLock<Layout> = std::sync::LazyLock::new(|| {
        Layout::contiguous(Shape::new(&[0usize]).unwrap_or_else(|_| Shape::scalar()))
    });
    &LAYOUT
}

const _: () = assert!(size_of::<Option<Tensor>>() <= 2 * size_of::<usize>());
