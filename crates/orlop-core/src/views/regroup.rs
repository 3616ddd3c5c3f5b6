//! Regrouping: the same elements in the same order under other sizes.
//!
//! Dimensions that continue each other in memory form one run of elements, however they are divided. A view
//! can divide a run in another way but cannot cross the end of one; `reshape` then copies. The strides of the
//! result are PyTorch's, counted from the innermost stride of each run.

use crate::{
    DimInt, Error, Layout, Quantity, Result, Shape, Strides, bytes, dims::Dims, strides::next_stride,
    views::wrap_dim,
};

/// The result of [`Layout::reshape`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reshaped {
    /// The strides allow a view of the same storage.
    View(Layout),
    /// A copy is needed: its layout, row-major at the start of a new storage.
    Copy(Layout),
}

impl Reshaped {
    /// Returns the layout of the view or of the copy.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        match self {
            Self::View(layout) | Self::Copy(layout) => layout,
        }
    }
}

impl Shape {
    /// Returns the shape of these sizes for `numel` elements, where one size may be -1 and is inferred.
    ///
    /// ```
    /// use orlop_core::Shape;
    ///
    /// assert_eq!(Shape::infer(&[2, -1, 3], 24)?, [2, 4, 3]);
    /// assert!(Shape::infer(&[2, -1, 3], 25).is_err());
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NumelMismatch`], [`Error::InferredTwice`], [`Error::InferredBesideZero`],
    /// [`Error::NegativeSize`] for sizes less than -1, [`Error::Overflow`] if the product of the sizes, or
    /// `numel`, does not fit.
    #[inline]
    pub fn infer<D: DimInt>(sizes: &[D], numel: usize) -> Result<Self> {
        let mut inferred = None;
        let mut dims = Dims::try_from_fn(sizes.len(), |dim| match (sizes[dim].to_i64(), inferred) {
            (Some(-1), Some(first)) => Err(Error::InferredTwice { first, second: dim }),
            (Some(-1), None) => {
                inferred = Some(dim);
                Ok(1)
            }
            _ => Self::size(sizes[dim], dim),
        })?;
        let product = bytes::numel(dims.padded())?;
        if numel > bytes::MAX_BYTES {
            return Err(Error::Overflow { quantity: Quantity::ElementCount });
        }
        match (inferred, numel.checked_rem(product)) {
            (None, _) if product == numel => {}
            (Some(dim), None) if numel == 0 => return Err(Error::InferredBesideZero { dim }),
            (Some(dim), Some(0)) => dims.set(dim, numel / product),
            _ => return Err(Error::NumelMismatch { product, numel }),
        }
        Ok(Self::from_dims(dims))
    }
}

impl Layout {
    /// Returns a view of the same elements with other sizes, of which one may be -1 and is inferred.
    ///
    /// `[a, b·c]` becomes `[a·b, c]` for the sizes `[a·b, c]` and for `[-1, c]`, if the dimensions continue
    /// each other.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape};
    ///
    /// let rows = Layout::contiguous(Shape::new(&[4, 6])?);
    /// assert_eq!(rows.view(&[2, 2, -1])?.strides(), &[12, 6, 1]);
    /// assert!(rows.t()?.view(&[24]).is_err());
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Shape::infer`]; [`Error::NotViewable`] if the sizes need a copy.
    #[inline]
    pub fn view<D: DimInt>(&self, sizes: &[D]) -> Result<Self> {
        let mut viewed = self.clone();
        viewed.view_in_place(sizes)?;
        Ok(viewed)
    }

    /// Applies [`view`](Self::view) in place.
    ///
    /// # Errors
    /// Those of [`view`](Self::view); `self` is then unchanged.
    #[inline(always)]
    pub fn view_in_place<D: DimInt>(&mut self, sizes: &[D]) -> Result<()> {
        self.set_shape(Shape::infer(sizes, self.numel())?)
    }

    /// Returns [`view`](Self::view) if the strides allow it, else the layout of the copy to make.
    ///
    /// ```
    /// use orlop_core::{Layout, Reshaped, Shape};
    ///
    /// let rows = Layout::contiguous(Shape::new(&[4, 6])?);
    /// assert!(matches!(rows.reshape(&[-1])?, Reshaped::View(_)));
    /// assert_eq!(rows.t()?.reshape(&[-1])?, Reshaped::Copy(Layout::contiguous(Shape::new(&[24])?)));
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Shape::infer`].
    pub fn reshape<D: DimInt>(&self, sizes: &[D]) -> Result<Reshaped> {
        Ok(self.reshape_to(Shape::infer(sizes, self.numel())?))
    }

    /// Returns the strides of a view with this shape, or `None` if the shape has another number of elements
    /// or needs a copy.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape};
    ///
    /// let columns = Layout::contiguous(Shape::new(&[4, 6])?).t()?;
    /// assert!(columns.view_strides(&Shape::new(&[24])?).is_none());
    /// assert_eq!(columns.view_strides(&Shape::new(&[3, 2, 4])?).unwrap(), [2, 1, 6]);
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    #[must_use]
    pub fn view_strides(&self, shape: &Shape) -> Option<Strides> {
        if shape.numel() == self.numel() { self.run_strides(shape).ok() } else { None }
    }

    /// Merges the dimensions from `start` to `end`, both included; a scalar becomes `[1]`.
    ///
    /// `[a, b, c, d]` becomes `[a, b·c, d]` from 1 to 2.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape};
    ///
    /// let images = Layout::contiguous(Shape::new(&[8, 3, 32, 30])?);
    /// assert_eq!(images.flatten(1, -1)?.layout().shape(), &[8, 2880]);
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DimOutOfRange`], [`Error::DimOrder`]; [`Error::Overflow`] where there are no elements and the
    /// joint size does not fit.
    #[inline]
    pub fn flatten(&self, start: isize, end: isize) -> Result<Reshaped> {
        Ok(match self.flat_shape(start, end)? {
            Some(shape) => self.reshape_to(shape),
            None => Reshaped::View(self.clone()),
        })
    }

    /// Applies [`flatten`](Self::flatten) in place.
    ///
    /// # Errors
    /// Those of [`flatten`](Self::flatten); [`Error::NotViewable`] if a copy of the elements is needed.
    /// `self` is then unchanged.
    #[inline(always)]
    pub fn flatten_in_place(&mut self, start: isize, end: isize) -> Result<()> {
        match self.flat_shape(start, end)? {
            Some(shape) => self.set_shape(shape),
            None => Ok(()),
        }
    }

    /// Returns the shape with the dimensions from `start` to `end` merged, or `None` if they are one
    /// dimension.
    #[inline(always)]
    fn flat_shape(&self, start: isize, end: isize) -> Result<Option<Shape>> {
        let ndim = self.ndim();
        let (start, end) = (wrap_dim(start, ndim)?, wrap_dim(end, ndim)?);
        if start > end {
            return Err(Error::DimOrder { start, end });
        }
        if start == end && ndim > 0 {
            return Ok(None);
        }
        let joint = bytes::numel(self.shape().get(start..=end).unwrap_or_default())?;
        let sizes = Dims::from_fn(ndim.max(1) - (end - start), |dim| match dim {
            _ if dim < start => self.shape()[dim],
            _ if dim == start => joint,
            _ => self.shape()[dim + (end - start)],
        });
        bytes::numel(sizes.padded())?;
        Ok(Some(Shape::from_dims(sizes)))
    }

    /// Splits a dimension into several whose sizes multiply to its own; one may be -1.
    ///
    /// `[a, b·c, d]` becomes `[a, b, c, d]`. It is always a view.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape};
    ///
    /// let heads = Layout::contiguous(Shape::new(&[8, 10, 64])?).unflatten(-1, &[4, -1])?;
    /// assert_eq!(heads.shape(), &[8, 10, 4, 16]);
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoDimensions`] for a scalar, [`Error::DimOutOfRange`], [`Error::NoSizes`], and as
    /// [`Shape::infer`].
    pub fn unflatten<D: DimInt>(&self, dim: isize, sizes: &[D]) -> Result<Self> {
        let mut unflattened = self.clone();
        unflattened.unflatten_in_place(dim, sizes)?;
        Ok(unflattened)
    }

    /// Applies [`unflatten`](Self::unflatten) in place.
    ///
    /// # Errors
    /// Those of [`unflatten`](Self::unflatten); `self` is then unchanged.
    pub fn unflatten_in_place<D: DimInt>(&mut self, dim: isize, sizes: &[D]) -> Result<()> {
        let dim = self.existing_dim(dim)?;
        if sizes.is_empty() {
            return Err(Error::NoSizes);
        }
        let parts = Shape::infer(sizes, self.shape()[dim])?;
        let (before, after) = (&self.shape()[..dim], &self.shape()[dim + 1..]);
        let mut all = before.iter().chain(parts.iter()).chain(after).copied();
        // The iterator has exactly this number of values.
        let sizes = Dims::from_fn(self.ndim() - 1 + parts.ndim(), |_| all.next().unwrap_or_default());
        self.view_in_place(sizes.as_slice())
    }

    /// Returns a view with this shape, of the same number of elements, or the layout of the copy.
    fn reshape_to(&self, shape: Shape) -> Reshaped {
        match self.run_strides(&shape) {
            Ok(strides) => Reshaped::View(self.regrouped(shape, strides)),
            Err(_) => Reshaped::Copy(Self::contiguous(shape)),
        }
    }

    /// Sets a shape with the same number of elements.
    #[inline(always)]
    fn set_shape(&mut self, shape: Shape) -> Result<()> {
        if !self.is_one_run() {
            return self.set_shape_of_runs(shape);
        }
        let strides = Strides::contiguous(&shape);
        self.set_dims(shape, strides);
        Ok(())
    }

    /// [`set_shape`](Self::set_shape) for layouts that are not one run. It takes the shape by value, so that
    /// the caller's copy can stay in registers.
    #[cold]
    #[inline(never)]
    fn set_shape_of_runs(&mut self, shape: Shape) -> Result<()> {
        let strides = self.run_strides(&shape).map_err(|dim| Error::NotViewable { dim })?;
        self.set_dims(shape, strides);
        Ok(())
    }

    /// Returns `true` if the elements are one run of stride 1: contiguous, and the innermost dimension is not
    /// of size 1 with another stride.
    #[inline]
    fn is_one_run(&self) -> bool {
        self.is_contiguous() && !self.is_empty() && self.strides().last().is_none_or(|&stride| stride == 1)
    }

    /// Returns the strides of a shape with the same number of elements. The error is the dimension, 1 or
    /// higher, at which a run ends inside a dimension of the new shape.
    fn run_strides(&self, shape: &Shape) -> core::result::Result<Strides, usize> {
        // Without elements any strides would do; PyTorch keeps those of an unchanged shape.
        if self.is_empty() && self.shape() == shape {
            return Ok(self.strides().clone());
        }
        if self.is_empty() || self.is_one_run() {
            return Ok(Strides::contiguous(shape));
        }
        let mut strides = Dims::zeros(shape.ndim());
        let mut places = strides.as_mut_slice().iter_mut().zip(shape.iter()).rev().peekable();
        // The first dimension of the run, its innermost stride, and its number of elements so far.
        let mut run: Option<(usize, usize)> = None;
        for dim in (0..self.ndim()).rev() {
            let (base, outside) = run.unwrap_or((self.strides()[dim], 1));
            let elements = outside * self.shape()[dim];
            let continued = dim.checked_sub(1).is_some_and(|outer| {
                self.shape()[outer] == 1 || self.strides()[outer] == next_stride(base, elements)
            });
            if continued {
                run = Some((base, elements));
                continue;
            }
            run = None;
            let mut filled = 1;
            while let Some((stride, &size)) = places.next_if(|&(_, &size)| filled < elements || size == 1) {
                *stride = next_stride(base, filled);
                filled = filled.saturating_mul(size);
            }
            if filled != elements {
                return Err(dim);
            }
        }
        Ok(Strides::from_dims(strides))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(sizes: &[usize], strides: &[usize]) -> Layout {
        Layout::new(Shape::new(sizes).unwrap(), Strides::new(strides).unwrap(), 0).unwrap()
    }

    #[test]
    fn inferred_sizes() {
        assert_eq!(Shape::infer(&[-1], 0).unwrap(), [0]);
        assert_eq!(Shape::infer(&[3, -1], 0).unwrap(), [3, 0]);
        assert_eq!(Shape::infer(&[0; 0], 1).unwrap(), []);
        assert_eq!(Shape::infer(&[0, 5], 0).unwrap(), [0, 5]);
        assert_eq!(Shape::infer(&[0, -1], 0), Err(Error::InferredBesideZero { dim: 1 }));
        assert_eq!(Shape::infer(&[0, -1], 4), Err(Error::NumelMismatch { product: 0, numel: 4 }));
        assert_eq!(Shape::infer(&[-1, 2, -1], 4), Err(Error::InferredTwice { first: 0, second: 2 }));
        assert_eq!(Shape::infer(&[2, -2], 4), Err(Error::NegativeSize { dim: 1, size: -2 }));
        assert_eq!(Shape::infer(&[3], 4), Err(Error::NumelMismatch { product: 3, numel: 4 }));
        let overflow = Error::Overflow { quantity: Quantity::ElementCount };
        assert_eq!(Shape::infer(&[i64::MAX, 2, -1], 4), Err(overflow));
        assert_eq!(Shape::infer(&[-1], usize::MAX), Err(overflow));
    }

    #[test]
    fn a_stride_that_means_nothing_is_kept_where_it_ends_a_run() {
        let column = layout(&[3, 1], &[1, 5]);
        assert!(column.is_contiguous());
        assert_eq!(column.view(&[3, 1, 1]).unwrap().strides(), &[1, 5, 5]);
        assert_eq!(column.view(&[1, 3]).unwrap().strides(), &[3, 1]);
    }

    #[test]
    fn views_stay_within_runs() {
        let gappy = layout(&[2, 3, 4], &[24, 4, 1]);
        assert_eq!(gappy.view(&[2, 12]).unwrap().strides(), &[24, 1]);
        assert_eq!(gappy.view(&[1, 2, 1, 6, 2]).unwrap().strides(), &[48, 24, 12, 2, 1]);
        assert_eq!(gappy.view(&[24]), Err(Error::NotViewable { dim: 1 }));
        assert_eq!(gappy.view(&[4, 6]).unwrap_err(), Error::NotViewable { dim: 1 });
        assert_eq!(layout(&[3, 2], &[0, 1]).view(&[6]), Err(Error::NotViewable { dim: 1 }));
        assert_eq!(layout(&[3, 2], &[0, 0]).view(&[6]).unwrap().strides(), &[0]);
    }

    #[test]
    fn without_elements() {
        let empty = layout(&[0, 6, 1], &[7, 9, 5]);
        assert_eq!(empty.view(&[0, 6, 1]).unwrap(), empty);
        assert_eq!(empty.view(&[6, 0, 2]).unwrap().strides(), &[2, 2, 1]);
        assert_eq!(empty.flatten(1, 2).unwrap(), Reshaped::View(layout(&[0, 6], &[6, 1])));
        let huge = layout(&[0, bytes::MAX_BYTES, 2], &[1, 1, 1]);
        assert_eq!(huge.flatten(1, 2), Err(Error::Overflow { quantity: Quantity::ElementCount }));
    }

    #[test]
    fn flattening() {
        let scalar = layout(&[], &[]);
        assert_eq!(scalar.flatten(0, -1).unwrap(), Reshaped::View(layout(&[1], &[1])));
        let columns = layout(&[6, 4], &[1, 6]);
        assert_eq!(columns.flatten(1, 1).unwrap(), Reshaped::View(columns.clone()));
        assert_eq!(columns.flatten(0, 1).unwrap(), Reshaped::Copy(layout(&[24], &[1])));
        assert_eq!(columns.flatten(-1, 0), Err(Error::DimOrder { start: 1, end: 0 }));
    }

    #[test]
    fn unflattening() {
        let columns = layout(&[6, 4], &[1, 6]);
        assert_eq!(columns.unflatten(0, &[2, 3]).unwrap(), layout(&[2, 3, 4], &[3, 1, 6]));
        assert_eq!(columns.unflatten(0, &[0; 0]), Err(Error::NoSizes));
        assert_eq!(columns.unflatten(0, &[4, -1]), Err(Error::NumelMismatch { product: 4, numel: 6 }));
        assert_eq!(layout(&[], &[]).unflatten(0, &[1]), Err(Error::NoDimensions));
        assert_eq!(layout(&[0, 6], &[6, 1]).unflatten(1, &[-1, 2]).unwrap().shape(), &[0, 3, 2]);
    }
}
