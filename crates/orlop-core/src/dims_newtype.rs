//! What [`Shape`](crate::Shape) and [`Strides`](crate::Strides) have in common: they are [`Dims`](crate::dims::Dims) that
//! keep a promise, so reading is for everybody and writing for this crate.

/// The traits that both newtypes over [`Dims`] have: a read-only slice in every way but the name.
macro_rules! dims_newtype {
    ($name:ident) => {
        impl $name {
            /// Values of which it is known that they keep this type's promises.
            #[inline]
            pub(crate) const fn from_dims(dims: Dims) -> Self {
                Self(dims)
            }

            /// The values, to be changed to others that keep this type's promises.
            #[inline]
            pub(crate) const fn dims_mut(&mut self) -> &mut Dims {
                &mut self.0
            }

            /// The values, to make others from.
            #[inline]
            pub(crate) const fn dims(&self) -> &Dims {
                &self.0
            }

            /// The values, outermost dimension first.
            #[inline]
            #[must_use]
            pub fn as_slice(&self) -> &[usize] {
                self.0.as_slice()
            }

            /// The number of dimensions.
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
            /// As in `[2, 3]`.
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, "{:?}", self.as_slice())
            }
        }
    };
}

pub(crate) use dims_newtype;
