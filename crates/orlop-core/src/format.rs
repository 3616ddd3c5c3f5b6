//! [`MemoryFormat`]: named orders of dimensions in memory.
//!
//! Convolutions want the channels innermost in memory while the sizes still read batch, channels, height,
//! width. A format only selects strides. Recognising a format from strides is ambiguous where sizes are 1;
//! the rules here are PyTorch's, because existing code depends on them.

use core::{fmt, str::FromStr};

use crate::{Error, Expected, Result, Shape, Strides, strides::next_stride};

/// A named order of dimensions in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryFormat {
    /// Row-major: the last dimension fastest.
    #[default]
    Contiguous,
    /// Four dimensions N, C, H, W, with C fastest, then W, H, N.
    ChannelsLast,
    /// Five dimensions N, C, D, H, W, with C fastest, then W, H, D, N.
    ChannelsLast3d,
    /// The order of an existing tensor.
    Preserve,
}

impl MemoryFormat {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Contiguous, Self::ChannelsLast, Self::ChannelsLast3d, Self::Preserve];

    /// Returns PyTorch's name, such as `channels_last`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Contiguous => "contiguous",
            Self::ChannelsLast => "channels_last",
            Self::ChannelsLast3d => "channels_last_3d",
            Self::Preserve => "preserve",
        }
    }

    /// Returns the strides that lay out `shape` in this format.
    ///
    /// ```
    /// use orlop_core::{MemoryFormat, Shape};
    ///
    /// let shape = Shape::new(&[8, 3, 32, 32])?;
    /// assert_eq!(MemoryFormat::ChannelsLast.strides(&shape)?, [3072, 1, 96, 3]);
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::FormatRank`] if the format is for another number of dimensions;
    /// [`Error::PreserveWithoutSource`] for [`Preserve`](Self::Preserve), for which see
    /// [`Layout::strides_in`](crate::Layout::strides_in).
    pub fn strides(self, shape: &Shape) -> Result<Strides> {
        match (self, self.channels_last_order()) {
            (Self::Preserve, _) => Err(Error::PreserveWithoutSource),
            (_, None) => Ok(Strides::contiguous(shape)),
            (_, Some(order)) if order.len() == shape.ndim() => {
                Ok(Strides::in_order(shape, order.iter().copied(), next_stride))
            }
            (_, Some(order)) => {
                Err(Error::FormatRank { format: self, needs: order.len(), ndim: shape.ndim() })
            }
        }
    }

    /// Returns the dimensions from fastest to slowest, for the channels-last formats.
    pub(crate) const fn channels_last_order(self) -> Option<&'static [usize]> {
        match self {
            Self::ChannelsLast => Some(&[1, 3, 2, 0]),
            Self::ChannelsLast3d => Some(&[1, 4, 3, 2, 0]),
            Self::Contiguous | Self::Preserve => None,
        }
    }
}

/// Returns `true` if the strides are exactly those of `order`; dimensions of size 1 are exempt.
pub(crate) fn is_laid_out_in(order: &[usize], sizes: &[usize], strides: &[usize]) -> bool {
    let mut expected: usize = 1;
    order.len() == sizes.len()
        && order.iter().all(|&dim| {
            let fits = sizes[dim] == 1 || strides[dim] == expected;
            expected = next_stride(expected, sizes[dim]);
            fits
        })
}

/// Returns `true` if the strides increase in `order`, with or without gaps. A slice of a channels-last image
/// still counts as channels-last.
pub(crate) fn is_ordered_like(order: &[usize], sizes: &[usize], strides: &[usize]) -> bool {
    if order.len() != sizes.len() || sizes.contains(&0) {
        return false;
    }
    let (channels, batch) = (1, 0);
    if strides[channels] == 0 {
        return false;
    }
    let mut min = 0;
    order.iter().all(|&dim| {
        // If only the batch dimension has more than one element, row-major strides look the same; row-major
        // wins the tie.
        let tie = dim == batch && min == strides[channels];
        let rises = strides[dim] >= min && !tie;
        min = next_stride(strides[dim], sizes[dim]);
        rises
    })
}

impl fmt::Display for MemoryFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for MemoryFormat {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|format| format.name() == s)
            .ok_or(Error::Parse { expected: Expected::MemoryFormat })
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn strides_of_each_format() {
        let volume = Shape::new(&[2, 3, 4, 5, 6]).unwrap();
        assert_eq!(MemoryFormat::ChannelsLast3d.strides(&volume).unwrap(), [360, 1, 90, 18, 3]);
        assert_eq!(MemoryFormat::Contiguous.strides(&volume).unwrap(), [360, 120, 30, 6, 1]);
        assert_eq!(
            MemoryFormat::ChannelsLast.strides(&volume).unwrap_err(),
            Error::FormatRank { format: MemoryFormat::ChannelsLast, needs: 4, ndim: 5 }
        );
        assert_eq!(MemoryFormat::Preserve.strides(&volume).unwrap_err(), Error::PreserveWithoutSource);
    }

    #[test]
    fn names_round_trip() {
        for format in MemoryFormat::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
    }
}
