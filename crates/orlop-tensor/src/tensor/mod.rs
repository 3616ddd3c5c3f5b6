//! The tensor: a handle to a view of a storage.

mod access;
mod accessor;
mod create;
mod data;
mod display;
mod elements;
mod imp;
mod metadata;
mod ops;
mod options;
#[cfg(feature = "rand")]
mod random;
mod shape;
mod views;

pub use self::access::{TensorSlice, TensorSliceMut};
pub use self::accessor::{Accessor, AccessorMut, SubAccessor, SubAccessorMut};
pub use self::data::Nested;
pub use self::display::{DisplayTensor, PrintOptions};
pub use self::elements::{Elements, ElementsMut, TensorElements, TensorElementsMut};
pub(crate) use self::imp::TensorImpl;
pub(crate) use self::ops::{copy_or_cast, pattern};
pub use self::options::TensorOptions;
pub use self::shape::IntoShape;

use crate::error::{Error, Result};
use crate::shared::Shared;
use crate::storage::Storage;
use orlop_core::{DType, Device, Layout, MemoryFormat, MemoryKind, Shape, StreamId, Strides};

/// A view of a storage: which elements, and where they lie. A counted handle of one pointer: cloning costs one reference
/// count and copies no data, and clones are the same tensor.
///
/// A tensor can be [undefined](Tensor::undefined): then it has one dimension of no elements, and everything that needs a
/// value is refused with [`Error::Undefined`].
///
/// # Sharing
///
/// Handles may be sent to and used from any thread. Clones and views alias, so no reference to a handle says anything about
/// the elements. Whoever looks at them holds a guard (a slice, an accessor) while doing so; any number may read at once,
/// or one may write, over all handles to the storage. A conflict is [`Error::Borrowed`], at once: never a data race, and
/// nobody waits.
#[derive(Clone, Default)]
pub struct Tensor {
    imp: Option<Shared<TensorImpl>>,
}

impl Tensor {
    /// No value.
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

    /// Whether there is a value.
    #[inline]
    #[must_use]
    pub const fn is_defined(&self) -> bool {
        self.imp.is_some()
    }

    #[inline]
    pub(crate) fn new(storage: Storage, layout: Layout, dtype: DType) -> Self {
        Self { imp: Some(TensorImpl::of(storage, layout, dtype)) }
    }

    /// The value.
    #[inline]
    pub(crate) fn imp(&self) -> Result<&TensorImpl> {
        // With `ok_or` an error would be made each time, and dropped.
        match &self.imp {
            Some(imp) => Ok(imp),
            None => Err(Error::Undefined),
        }
    }

    /// The metadata, for this handle alone: clones keep what they have.
    pub(crate) fn metadata_mut(&mut self) -> Result<(&mut Layout, &mut DType)> {
        let imp = self.imp.as_mut().ok_or(Error::Undefined)?;
        if !imp.is_unique() {
            *imp = imp.copied();
        }
        imp.get_mut().map(TensorImpl::metadata_mut).ok_or(Error::Undefined)
    }

    /// The same storage, looked at otherwise. The layout lies inside the storage.
    #[inline]
    pub(crate) fn with_layout(&self, layout: Layout) -> Result<Self> {
        let imp = self.imp()?;
        Ok(Self::new(imp.storage().clone(), layout, imp.dtype))
    }

    /// The same storage, looked at as `change` makes of this layout. The layout stays inside the storage.
    #[inline(always)]
    pub(crate) fn with_changed(
        &self,
        change: impl FnOnce(&mut Layout) -> orlop_core::Result<()>,
    ) -> Result<Self> {
        let mut view = self.imp()?.copied();
        // SAFETY: made just now, and no other handle was.
        change(unsafe { view.new_mut() }.metadata_mut().0)?;
        Ok(Self { imp: Some(view) })
    }

    /// A tensor over a storage.
    ///
    /// # Errors
    ///
    /// [`OutOfStorage`](orlop_core::Error::OutOfStorage) if the elements do not lie inside.
    pub fn from_storage(storage: Storage, layout: Layout, dtype: DType) -> Result<Self> {
        layout.check_within(storage.nbytes(), dtype.size())?;
        Ok(Self::new(storage, layout, dtype))
    }

    /// Sizes, strides and storage offset, in elements.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        match &self.imp {
            Some(imp) => &imp.layout,
            None => undefined_layout(),
        }
    }

    /// The sizes.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        self.layout().shape()
    }

    /// The sizes.
    #[must_use]
    pub fn sizes(&self) -> &[usize] {
        self.layout().shape()
    }

    /// The size of a dimension, counted from the end if negative.
    ///
    /// # Errors
    ///
    /// An error of the layout if there is no such dimension.
    pub fn size(&self, dim: isize) -> Result<usize> {
        let (sizes, ndim) = (self.sizes(), self.ndim());
        let place = if dim < 0 { ndim.checked_add_signed(dim) } else { usize::try_from(dim).ok() };
        let size = place.and_then(|place| sizes.get(place).copied());
        size.ok_or_else(|| orlop_core::Error::DimOutOfRange { dim, ndim }.into())
    }

    /// How far apart neighbours are along each dimension, in elements.
    #[must_use]
    pub fn strides(&self) -> &Strides {
        self.layout().strides()
    }

    /// Where in the storage the first element is, in elements.
    #[must_use]
    pub fn storage_offset(&self) -> usize {
        self.layout().offset()
    }

    /// The number of dimensions.
    #[must_use]
    pub fn ndim(&self) -> usize {
        self.layout().ndim()
    }

    /// The number of elements.
    #[must_use]
    pub fn numel(&self) -> usize {
        self.layout().numel()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numel() == 0
    }

    /// The type of the elements; `float32` if undefined.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.imp.as_ref().map_or(DType::F32, |imp| imp.dtype)
    }

    /// Bytes of an element.
    #[must_use]
    pub fn itemsize(&self) -> usize {
        self.dtype().size()
    }

    /// Bytes of all elements, each counted once wherever it lies. What the storage has: [`Storage::nbytes`].
    #[must_use]
    pub fn nbytes(&self) -> usize {
        // The layout's own sum fits.
        self.numel().saturating_mul(self.itemsize())
    }

    /// Where it is; the CPU if undefined.
    #[must_use]
    pub fn device(&self) -> Device {
        self.imp.as_ref().map_or(Device::CPU, |imp| imp.storage().device())
    }

    /// What the memory is for.
    #[must_use]
    pub fn memory_kind(&self) -> MemoryKind {
        self.imp.as_ref().map_or(MemoryKind::Default, |imp| imp.storage().memory_kind())
    }

    /// The storage.
    ///
    /// # Errors
    ///
    /// [`Error::Undefined`].
    pub fn storage(&self) -> Result<&Storage> {
        Ok(self.imp()?.storage())
    }

    /// Notes that `stream` uses the memory, which was allocated for another: see
    /// [`Storage::record_stream`](crate::Storage::record_stream).
    ///
    /// # Errors
    ///
    /// [`Error::Undefined`]; those of [`Storage::record_stream`](crate::Storage::record_stream).
    pub fn record_stream(&self, stream: StreamId) -> Result<()> {
        self.storage()?.record_stream(stream)
    }

    /// How often the storage was written, through whichever handle (P14).
    #[must_use]
    pub fn version(&self) -> u64 {
        self.imp.as_ref().map_or(0, |imp| imp.storage().version())
    }

    /// Whether the elements lie row-major and without gaps.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.layout().is_contiguous()
    }

    /// Whether they lie in this format and without gaps.
    #[must_use]
    pub fn is_contiguous_in(&self, format: MemoryFormat) -> bool {
        self.layout().is_contiguous_in(format)
    }

    /// Whether both are handles to the same tensor.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.imp, &other.imp) {
            (Some(mine), Some(theirs)) => mine.same_as(theirs),
            (None, None) => true,
            _ => false,
        }
    }

    /// Whether both look at the same storage: writes to one may show in the other.
    #[must_use]
    pub fn is_alias_of(&self, other: &Self) -> bool {
        match (&self.imp, &other.imp) {
            (Some(mine), Some(theirs)) => mine.storage().is_alias_of(theirs.storage()),
            _ => false,
        }
    }

    /// Bytes that would go back if this handle were dropped now: see [`Storage::would_free`]. Zero while there are other
    /// handles to the tensor, and if it is undefined.
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

    /// How many handles there are to this tensor, at some moment. Views are tensors of their own.
    #[must_use]
    pub fn use_count(&self) -> usize {
        self.imp.as_ref().map_or(0, Shared::count)
    }
}

/// What an undefined tensor shows: one dimension, no elements.
fn undefined_layout() -> &'static Layout {
    static LAYOUT: std::sync::LazyLock<Layout> = std::sync::LazyLock::new(|| {
        Layout::contiguous(Shape::new(&[0usize]).unwrap_or_else(|_| Shape::scalar()))
    });
    &LAYOUT
}

const _: () = assert!(size_of::<Option<Tensor>>() <= 2 * size_of::<usize>());
