//! The macro behind [`Shape`](crate::Shape) and [`Strides`](crate::Strides): newtypes over
//! [`Dims`](crate::dims::Dims) with an invariant, readable by everyone and writable only in this crate.

/// Implements the methods and traits of a newtype over [`Dims`]: it reads like a slice.
macro_rules! dims_newtype {
    ($name:ident) => {
        impl $name {
            /// Wraps values that are known to satisfy the invariant of this type.
            #[inline]
            pub(crate) const fn from_dims(dims: Dims) -> Self {
                Self(dims)
            }

            /// Returns the values for modification; the caller keeps the invariant.
            #[inline]
            pub(crate) const fn dims_mut(&mut self) -> &mut Dims {
                &mut self.0
            }

            /// Returns the values.
            #[inline]
            pub(crate) const fn dims(&self) -> &Dims {
                &self.0
            }

            /// Returns the values, outermost dimension first.
            #[inline]
            #[must_use]
            pub fn as_slice(&self) -> &[usize] {
                self.0.as_slice()
            }

            /// Returns the number of dimensions.
            #[inline]
            #[must_use]
            pub fn ndim(&self) -> usize {
                self.as_slice().len()
            }
        }

        impl core::ops::Deref for $name {
            type Target = [usize];

            #[inline]
            fn deref(&self) -> &[usize] {
                self.as_slice()
            }
        }

        impl AsRef<[usize]> for $name {
            fn as_ref(&self) -> &[usize] {
                self.as_slice()
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.as_slice() == other.as_slice()
            }
        }

        impl Eq for $name {}

        impl<const N: usize> PartialEq<[usize; N]> for $name {
            fn eq(&self, other: &[usize; N]) -> bool {
                self.as_slice() == other
            }
        }

        impl PartialEq<[usize]> for $name {
            fn eq(&self, other: &[usize]) -> bool {
                self.as_slice() == other
            }
        }

        impl core::hash::Hash for $name {
            fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
                self.as_slice().hash(state);
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                self.as_slice().fmt(f)
            }
        }

        impl core::fmt::Display for $name {
            /// Formats as `[2, 3]`.
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, "{:?}", self.as_slice())
            }
        }
    };
}

pub(crate) use dims_newtype;
