//! Reordering dimensions, and adding and removing dimensions of size 1.
//!
//! The elements stay the same, and so do their number and span. Reordering may change contiguity; dimensions
//! of size 1 do not.

use crate::{
    Error, Layout, Result,
    dims::Dims,
    strides::next_stride,
    views::{distinct_dims, wrap_dim},
};

impl Layout {
    /// Swaps two dimensions.
    ///
    /// `[.., a, .., b, ..]` becomes `[.., b, .., a, ..]`; a scalar stays one.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape};
    ///
    /// let columns = Layout::contiguous(Shape::new(&[2, 3])?).transpose(0, -1)?;
    /// assert_eq!((columns.shape().as_slice(), columns.strides().as_slice()), (&[3, 2][..], &[1, 3][..]));
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DimOutOfRange`].
    #[inline]
    pub fn transpose(&self, dim0: isize, dim1: isize) -> Result<Self> {
        let mut swapped = self.clone();
        swapped.transpose_in_place(dim0, dim1)?;
        Ok(swapped)
    }

    /// Applies [`transpose`](Self::transpose) in place.
    ///
    /// # Errors
    /// Those of [`transpose`](Self::transpose); `self` is then unchanged.
    #[inline(always)]
    pub fn transpose_in_place(&mut self, dim0: isize, dim1: isize) -> Result<()> {
        self.swap_dims(dim0, dim1)
    }

    /// Reorders the dimensions: dimension `i` of the result is dimension `dims[i]`.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape};
    ///
    /// let image = Layout::contiguous(Shape::new(&[8, 3, 32, 30])?);
    /// let channels_last = image.permute(&[0, 2, 3, 1])?;
    /// assert_eq!(channels_last.shape(), &[8, 32, 30, 3]);
    /// assert_eq!(channels_last.strides(), &[2880, 30, 1, 960]);
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DimListLength`], [`Error::DimOutOfRange`], [`Error::RepeatedDim`].
    #[inline]
    pub fn permute(&self, dims: &[isize]) -> Result<Self> {
        let mut permuted = self.clone();
        permuted.permute_in_place(dims)?;
        Ok(permuted)
    }

    /// Applies [`permute`](Self::permute) in place.
    ///
    /// # Errors
    /// Those of [`permute`](Self::permute); `self` is then unchanged.
    #[inline(always)]
    pub fn permute_in_place(&mut self, dims: &[isize]) -> Result<()> {
        let ndim = self.ndim();
        if dims.len() != ndim {
            return Err(Error::DimListLength { given: dims.len(), needed: ndim });
        }
        self.order_dims(&distinct_dims(dims, ndim)?);
        Ok(())
    }

    /// Transposes a matrix; vectors and scalars stay as they are.
    ///
    /// `[a, b]` becomes `[b, a]`.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape};
    ///
    /// assert_eq!(Layout::contiguous(Shape::new(&[2, 3])?).t()?.shape(), &[3, 2]);
    /// assert!(Layout::contiguous(Shape::new(&[2, 3, 4])?).t().is_err());
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::TooManyDims`] for more than two dimensions.
    #[inline]
    pub fn t(&self) -> Result<Self> {
        let mut transposed = self.clone();
        transposed.t_in_place()?;
        Ok(transposed)
    }

    /// Applies [`t`](Self::t) in place.
    ///
    /// # Errors
    /// Those of [`t`](Self::t); `self` is then unchanged.
    #[inline(always)]
    pub fn t_in_place(&mut self) -> Result<()> {
        match self.ndim() {
            0 | 1 => Ok(()),
            2 => self.swap_dims(0, 1),
            ndim => Err(Error::TooManyDims { ndim, max: 2 }),
        }
    }

    /// Moves each dimension of `source` to the index at the same place in `destination`; the others keep
    /// their order.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape};
    ///
    /// let image = Layout::contiguous(Shape::new(&[8, 3, 32, 30])?);
    /// assert_eq!(image.movedim(&[1], &[-1])?.shape(), &[8, 32, 30, 3]);
    /// assert_eq!(image.movedim(&[0, 1], &[1, 0])?.shape(), &[3, 8, 32, 30]);
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DimListLength`] if the lists differ in length, [`Error::DimOutOfRange`],
    /// [`Error::RepeatedDim`] within one list.
    pub fn movedim(&self, source: &[isize], destination: &[isize]) -> Result<Self> {
        let mut moved = self.clone();
        moved.movedim_in_place(source, destination)?;
        Ok(moved)
    }

    /// Applies [`movedim`](Self::movedim) in place.
    ///
    /// # Errors
    /// Those of [`movedim`](Self::movedim); `self` is then unchanged.
    pub fn movedim_in_place(&mut self, source: &[isize], destination: &[isize]) -> Result<()> {
        let ndim = self.ndim();
        if source.len() != destination.len() {
            return Err(Error::DimListLength { given: destination.len(), needed: source.len() });
        }
        let (moved, places) = (distinct_dims(source, ndim)?, distinct_dims(destination, ndim)?);
        if ndim == 0 {
            return Ok(());
        }
        let (moved, places) = (moved.as_slice(), places.as_slice());
        let mut staying = (0..ndim).filter(|dim| !moved.contains(dim));
        let order = Dims::from_fn(ndim, |place| match places.iter().position(|&taken| taken == place) {
            Some(pair) => moved[pair],
            // As many dimensions stay as positions are left.
            None => staying.next().unwrap_or_default(),
        });
        self.order_dims(&order);
        Ok(())
    }

    /// Removes all dimensions of size 1.
    ///
    /// `[1, a, 1, b]` becomes `[a, b]`.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape};
    ///
    /// assert_eq!(Layout::contiguous(Shape::new(&[1, 2, 1, 3])?).squeeze().shape(), &[2, 3]);
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    #[must_use]
    pub fn squeeze(&self) -> Self {
        let mut squeezed = self.clone();
        squeezed.squeeze_in_place();
        squeezed
    }

    /// Applies [`squeeze`](Self::squeeze) in place.
    pub fn squeeze_in_place(&mut self) {
        self.squeeze_all(|_| true);
    }

    /// Removes this dimension if its size is 1.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape};
    ///
    /// let layout = Layout::contiguous(Shape::new(&[1, 2, 1, 3])?);
    /// assert_eq!(layout.squeeze_dim(-2)?.shape(), &[1, 2, 3]);
    /// assert_eq!(layout.squeeze_dim(1)?, layout);
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DimOutOfRange`].
    #[inline]
    pub fn squeeze_dim(&self, dim: isize) -> Result<Self> {
        let mut squeezed = self.clone();
        squeezed.squeeze_dim_in_place(dim)?;
        Ok(squeezed)
    }

    /// Applies [`squeeze_dim`](Self::squeeze_dim) in place.
    ///
    /// # Errors
    /// Those of [`squeeze_dim`](Self::squeeze_dim); `self` is then unchanged.
    #[inline(always)]
    pub fn squeeze_dim_in_place(&mut self, dim: isize) -> Result<()> {
        let dim = wrap_dim(dim, self.ndim())?;
        if self.shape().get(dim) == Some(&1) {
            self.remove_dim(dim);
        }
        Ok(())
    }

    /// Removes those of the listed dimensions whose size is 1. An empty list changes nothing.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape};
    ///
    /// let layout = Layout::contiguous(Shape::new(&[1, 2, 1, 3])?);
    /// assert_eq!(layout.squeeze_dims(&[0, 1])?.shape(), &[2, 1, 3]);
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DimOutOfRange`], [`Error::RepeatedDim`].
    pub fn squeeze_dims(&self, dims: &[isize]) -> Result<Self> {
        let mut squeezed = self.clone();
        squeezed.squeeze_dims_in_place(dims)?;
        Ok(squeezed)
    }

    /// Applies [`squeeze_dims`](Self::squeeze_dims) in place.
    ///
    /// # Errors
    /// Those of [`squeeze_dims`](Self::squeeze_dims); `self` is then unchanged.
    pub fn squeeze_dims_in_place(&mut self, dims: &[isize]) -> Result<()> {
        let named = distinct_dims(dims, self.ndim())?;
        self.squeeze_all(|dim| named.as_slice().contains(&dim));
        Ok(())
    }

    /// Inserts a dimension of size 1 before dimension `dim`; -1 makes it the last.
    ///
    /// `[a, b]` becomes `[a, 1, b]` for 1 and for -2.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape};
    ///
    /// let row = Layout::contiguous(Shape::new(&[3])?);
    /// assert_eq!(row.unsqueeze(0)?.strides(), &[3, 1]);
    /// assert_eq!(row.unsqueeze(-1)?.strides(), &[1, 1]);
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::DimOutOfRange`], in which the new dimension counts.
    #[inline]
    pub fn unsqueeze(&self, dim: isize) -> Result<Self> {
        let mut unsqueezed = self.clone();
        unsqueezed.unsqueeze_in_place(dim)?;
        Ok(unsqueezed)
    }

    /// Applies [`unsqueeze`](Self::unsqueeze) in place.
    ///
    /// # Errors
    /// Those of [`unsqueeze`](Self::unsqueeze); `self` is then unchanged.
    #[inline(always)]
    pub fn unsqueeze_in_place(&mut self, dim: isize) -> Result<()> {
        let new = wrap_dim(dim, self.ndim() + 1)?;
        // The stride that continues the next dimension, as PyTorch sets it; it has no effect.
        let stride = match (self.shape().get(new), self.strides().get(new)) {
            (Some(&size), Some(&stride)) => next_stride(stride, size),
            _ => 1,
        };
        self.insert_dim(new, stride);
        Ok(())
    }

    /// Removes the dimensions of size 1 for which `meant` returns `true`.
    #[inline(always)]
    fn squeeze_all(&mut self, meant: impl Fn(usize) -> bool) {
        for dim in (0..self.ndim()).rev() {
            if self.shape()[dim] == 1 && meant(dim) {
                self.remove_dim(dim);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Shape, Strides, bytes::MAX_BYTES};

    fn layout(sizes: &[usize]) -> Layout {
        Layout::contiguous(Shape::new(sizes).unwrap())
    }

    #[test]
    fn contiguity_is_found_again() {
        let matrix = layout(&[2, 3]);
        let columns = matrix.t().unwrap();
        assert!(!columns.is_contiguous());
        assert_eq!(columns.t().unwrap(), matrix);
        assert!(layout(&[1, 3]).t().unwrap().is_contiguous());
        assert!(layout(&[0, 3]).t().unwrap().is_contiguous());
    }

    #[test]
    fn scalars_allow_what_moves_nothing() {
        let scalar = layout(&[]);
        assert_eq!(scalar.transpose(0, -1), Ok(scalar.clone()));
        assert_eq!(scalar.permute(&[]), Ok(scalar.clone()));
        assert_eq!(scalar.t(), Ok(scalar.clone()));
        assert_eq!(scalar.movedim(&[0], &[-1]), Ok(scalar.clone()));
        assert_eq!(scalar.squeeze_dim(-1), Ok(scalar.clone()));
        assert_eq!(scalar.squeeze_dims(&[0]), Ok(scalar.clone()));
        assert_eq!(scalar.unsqueeze(-1), Ok(layout(&[1])));
        assert!(scalar.transpose(0, 1).is_err());
        assert!(scalar.permute(&[0]).is_err());
        assert!(scalar.unsqueeze(1).is_err());
    }

    #[test]
    fn lists_of_dimensions() {
        let cube = layout(&[2, 3, 4]);
        assert_eq!(cube.permute(&[0, 1]), Err(Error::DimListLength { given: 2, needed: 3 }));
        assert_eq!(cube.permute(&[0, 1, -2]), Err(Error::RepeatedDim { dim: 1 }));
        assert_eq!(cube.movedim(&[0, 1], &[0]), Err(Error::DimListLength { given: 1, needed: 2 }));
        assert_eq!(cube.movedim(&[0, 1], &[1, 1]), Err(Error::RepeatedDim { dim: 1 }));
        assert_eq!(cube.movedim(&[-1, 0], &[0, 1]).unwrap().shape(), &[4, 2, 3]);
        assert_eq!(cube.squeeze_dims(&[0, -3]), Err(Error::RepeatedDim { dim: 0 }));
    }

    #[test]
    fn many_dimensions() {
        let many = layout(&[2, 1, 3, 1, 2, 1, 2]);
        assert_eq!(many.squeeze(), layout(&[2, 3, 2, 2]));
        assert_eq!(many.transpose(0, -1).unwrap().transpose(-1, 0).unwrap(), many);
        let five = layout(&[2, 3, 2, 3, 2]);
        assert_eq!(five.unsqueeze(5).unwrap(), layout(&[2, 3, 2, 3, 2, 1]));
        assert_eq!(five.unsqueeze(0).unwrap().squeeze_dim(0).unwrap(), five);
        assert_eq!(five.view(&[1, 2, 3, 2, -1, 2]).unwrap().select(0, 0).unwrap(), five);
        assert_eq!(five.expand(&[1, 1, 2, 3, -1, 3, 2]).unwrap().squeeze(), five);
        assert_eq!(many.permute(&[6, 5, 4, 3, 2, 1, 0]).unwrap().strides(), &[1, 2, 2, 4, 4, 12, 12]);
    }

    #[test]
    fn a_new_stride_stays_in_range() {
        let far =
            Layout::new(Shape::new(&[2, 0]).unwrap(), Strides::new(&[MAX_BYTES, 1]).unwrap(), 0).unwrap();
        assert_eq!(far.unsqueeze(0).unwrap().strides(), &[MAX_BYTES, MAX_BYTES, 1]);
    }
}
