//! Strides for new tensors that keep the dimension order of an existing one.
//!
//! An operator's output should have the dimension order of its input, or the next operator reads memory out
//! of order. Strides with gaps or broadcast dimensions cannot be kept as they are; their order can.

use crate::{
    Layout, MemoryFormat, Result, Strides, dims::Dims, format::is_ordered_like, strides::next_stride,
};

impl Layout {
    /// Returns the format for the output of an operator with this input: channels-last if the strides
    /// increase in that order, gaps allowed, else contiguous.
    #[must_use]
    pub fn suggested_format(&self) -> MemoryFormat {
        [MemoryFormat::ChannelsLast, MemoryFormat::ChannelsLast3d]
            .into_iter()
            .find(|format| {
                format
                    .channels_last_order()
                    .is_some_and(|order| is_ordered_like(order, self.shape(), self.strides()))
            })
            .unwrap_or_default()
    }

    /// Returns the strides of a new tensor like this one: the same strides if they are dense, else dense
    /// strides with the same order of dimensions.
    ///
    /// The order is PyTorch's: a stable sort by stride, then by size, in which broadcast dimensions (stride
    /// 0) compare equal to all others and so keep their place.
    ///
    /// ```
    /// use orlop_core::{Layout, Shape, Strides};
    ///
    /// // Every other row of a transposed 4 × 3 matrix.
    /// let view = Layout::new(Shape::new(&[2, 4])?, Strides::new(&[2, 3])?, 0)?;
    /// assert_eq!(view.preserved_strides(), [1, 2]);
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    #[must_use]
    pub fn preserved_strides(&self) -> Strides {
        if self.is_non_overlapping_and_dense() {
            return self.strides().clone();
        }
        let mut order = Dims::zeros(self.ndim());
        let order = order.as_mut_slice();
        for (slot, dim) in order.iter_mut().zip((0..self.ndim()).rev()) {
            *slot = dim;
        }
        // An explicit insertion sort: because stride 0 equals every other stride, this is not a total order,
        // and the result depends on which pairs are compared.
        for sorted in 1..order.len() {
            let mut moving = sorted;
            for place in (0..sorted).rev() {
                match self.is_slower(order[place], order[moving]) {
                    Some(true) => {
                        order.swap(place, moving);
                        moving = place;
                    }
                    Some(false) => break,
                    None => {}
                }
            }
        }
        Strides::in_order(self.shape(), order.iter().copied(), |stride, size| {
            next_stride(stride, size.max(1))
        })
    }

    /// Returns the strides that this layout's elements have in `format`.
    ///
    /// # Errors
    /// [`Error::FormatRank`](crate::Error::FormatRank) if the format is for another number of dimensions.
    pub fn strides_in(&self, format: MemoryFormat) -> Result<Strides> {
        match format {
            MemoryFormat::Preserve => Ok(self.preserved_strides()),
            _ => format.strides(self.shape()),
        }
    }

    /// Compares two dimensions: `Some(true)` if `a` is slower than `b` in memory, `Some(false)` if not,
    /// `None` if undecided.
    fn is_slower(&self, a: usize, b: usize) -> Option<bool> {
        let (stride_a, stride_b) = (self.strides()[a], self.strides()[b]);
        match stride_a.cmp(&stride_b) {
            _ if stride_a == 0 || stride_b == 0 => None,
            core::cmp::Ordering::Equal => (self.shape()[a] > self.shape()[b]).then_some(true),
            unequal => Some(unequal.is_gt()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shape;

    fn layout(sizes: &[usize], strides: &[usize], offset: usize) -> Result<Layout> {
        Layout::new(Shape::new(sizes)?, Strides::new(strides)?, offset)
    }

    #[test]
    fn suggested_formats() {
        let suggest =
            |sizes: &[usize], strides: &[usize]| layout(sizes, strides, 0).unwrap().suggested_format();
        assert_eq!(suggest(&[2, 3, 4, 5], &[60, 1, 15, 3]), MemoryFormat::ChannelsLast);
        assert_eq!(suggest(&[2, 3, 4, 5], &[60, 20, 5, 1]), MemoryFormat::Contiguous);
        assert_eq!(suggest(&[2, 3, 2, 5], &[60, 1, 30, 3]), MemoryFormat::ChannelsLast, "a slice with gaps");
        assert_eq!(suggest(&[2, 1, 1, 1], &[1, 1, 1, 1]), MemoryFormat::Contiguous, "a tie");
        assert_eq!(suggest(&[2, 3, 4, 5, 6], &[360, 1, 90, 18, 3]), MemoryFormat::ChannelsLast3d);
    }
}
