//! [`IntoShape`]: the types that convert to a shape.

use crate::Result;
use orlop_core::{DimInt, Shape};

/// A type that converts to a shape: `[2, 3]`, a slice, a `Vec`, a [`Shape`], or `()` for a scalar.
pub trait IntoShape {
    /// Converts to a shape.
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
