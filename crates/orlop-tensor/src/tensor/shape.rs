//! What can stand for a shape.

use crate::Result;
use orlop_core::{DimInt, Shape};

/// Something that is a shape: `[2, 3]`, a slice, a `Vec`, a [`Shape`], or `()` for that of a single number.
pub trait IntoShape {
    /// The shape.
    ///
    /// # Errors
    ///
    /// [`NegativeSize`](orlop_core::Error::NegativeSize) and [`Overflow`](orlop_core::Error::Overflow).
    fn into_shape(self) -> Result<Shape>;
}

impl<D: DimInt, const N: usize> IntoShape for [D; N] {
    #[inline]
    fn into_shape(self) -> Result<Shape> {
        Ok(Shape::new(&self)?)
    }
}

impl<D: DimInt, const N: usize> IntoShape for &[D; N] {
    #[inline]
    fn into_shape(self) -> Result<Shape> {
        Ok(Shape::new(self)?)
    }
}

impl<D: DimInt> IntoShape for &[D] {
    #[inline]
    fn into_shape(self) -> Result<Shape> {
        Ok(Shape::new(self)?)
    }
}

impl<D: DimInt> IntoShape for Vec<D> {
    fn into_shape(self) -> Result<Shape> {
        Ok(Shape::new(&self)?)
    }
}

impl<D: DimInt> IntoShape for &Vec<D> {
    fn into_shape(self) -> Result<Shape> {
        Ok(Shape::new(self)?)
    }
}

impl IntoShape for Shape {
    #[inline]
    fn into_shape(self) -> Result<Shape> {
        Ok(self)
    }
}

impl IntoShape for &Shape {
    #[inline]
    fn into_shape(self) -> Result<Shape> {
        Ok(self.clone())
    }
}

impl IntoShape for () {
    fn into_shape(self) -> Result<Shape> {
        Ok(Shape::scalar())
    }
}
