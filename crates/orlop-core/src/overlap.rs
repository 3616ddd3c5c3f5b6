//! [`Overlap`]: whether two elements of a layout share a storage position.
//!
//! Writing in place through such a view is an error, because the result depends on the order of the writes.
//! PyTorch's quick test may answer "too hard"; there is also an exact test. Two indices share a position if
//! their difference `d`, not all zero and each component smaller than its size, satisfies `Σ dᵢ·strideᵢ = 0`.
//! Such bounded linear equations are hard in general but easy for strides that occur in practice: the search
//! goes from the largest stride down, and the reach of the smaller strides leaves few choices at each step
//! (NumPy's `shares_memory` does the same).

use crate::{Layout, dims::Dims};

/// The result of an overlap test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overlap {
    /// Every element has its own position.
    No,
    /// Two elements share a position.
    Yes,
    /// Not decided within the effort allowed.
    TooHard,
}

/// The number of steps after which [`Layout::internal_overlap`] gives up: enough for every view in
/// `testdata/torch-views`.
const MAX_STEPS: u32 = 1 << 14;

impl Layout {
    /// Runs PyTorch's quick test: `No` for dense layouts, `Yes` for broadcast ones, `TooHard` for all others.
    ///
    /// ```
    /// use orlop_core::{Layout, Overlap, Shape, Strides};
    ///
    /// let rows = Layout::new(Shape::new(&[3, 4])?, Strides::new(&[8, 1])?, 0)?;
    /// assert_eq!(rows.has_internal_overlap(), Overlap::TooHard);
    /// assert_eq!(rows.internal_overlap(), Overlap::No);
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    #[must_use]
    pub fn has_internal_overlap(&self) -> Overlap {
        if self.is_non_overlapping_and_dense() {
            Overlap::No
        } else if self.is_broadcast() {
            Overlap::Yes
        } else {
            Overlap::TooHard
        }
    }

    /// Returns `true` if a dimension of size 2 or more has stride 0, as `expand` makes them.
    #[must_use]
    pub fn is_broadcast(&self) -> bool {
        self.dims().any(|(size, stride)| size > 1 && stride == 0)
    }

    /// Runs the exact test. It returns `TooHard` only for contrived strides, when a bounded search ends
    /// without an answer.
    #[must_use]
    pub fn internal_overlap(&self) -> Overlap {
        if self.is_contiguous() {
            return Overlap::No;
        }
        // More elements than positions, or a stride of 0.
        if self.numel() > self.span() || self.is_broadcast() {
            return Overlap::Yes;
        }
        let extended = || (0..self.ndim()).filter(|&dim| self.shape()[dim] > 1);
        let mut by_stride = Dims::zeros(extended().count());
        let by_stride = by_stride.as_mut_slice();
        by_stride.iter_mut().zip(extended()).for_each(|(slot, dim)| *slot = dim);
        by_stride.sort_unstable_by_key(|&dim| self.strides()[dim]);
        if self.is_nested(by_stride) {
            return Overlap::No;
        }
        let mut search = OverlapSearch { layout: self, by_stride, steps_left: MAX_STEPS };
        let reach = search.reach();
        search.closes(by_stride.len(), 0, false, reach)
    }

    /// Returns `true` if each stride is larger than the reach of the smaller ones, which rules out overlap.
    fn is_nested(&self, by_stride: &[usize]) -> bool {
        let mut reach: usize = 0;
        by_stride.iter().all(|&dim| {
            let (size, stride) = (self.shape()[dim], self.strides()[dim]);
            let steps_over = stride > reach;
            // Sums within the layout's own span, which fits.
            reach = reach.saturating_add((size - 1).saturating_mul(stride));
            steps_over
        })
    }
}

/// The search for two indices with the same storage position.
struct OverlapSearch<'a> {
    layout: &'a Layout,
    /// Dimensions of size 2 or more, smallest stride first.
    by_stride: &'a [usize],
    steps_left: u32,
}

impl OverlapSearch<'_> {
    /// Returns whether the smallest `dims` dimensions can bring `distance` back to 0. `reach` is the largest
    /// distance they can cover. `moved` is `true` if a larger dimension has a non-zero difference: if none
    /// has, an all-zero difference is no answer, and by symmetry only forward steps need to be searched.
    fn closes(&mut self, dims: usize, distance: i128, moved: bool, reach: i128) -> Overlap {
        let Some(&dim) = dims.checked_sub(1).and_then(|largest| self.by_stride.get(largest)) else {
            return if distance == 0 && moved { Overlap::Yes } else { Overlap::No };
        };
        // Reaches and distances stay within the layout's span: their sums need 65 bits, not 128.
        let (max, stride) = self.step_of(dim);
        let rest = reach - max * stride;
        // Only steps whose remainder the other dimensions can cover.
        let back = if moved { (rest + distance).div_euclid(stride).min(max) } else { 0 };
        let forward = (rest - distance).div_euclid(stride).min(max);
        for step in -back..=forward {
            let Some(steps_left) = self.steps_left.checked_sub(1) else { return Overlap::TooHard };
            self.steps_left = steps_left;
            match self.closes(dims - 1, distance + step * stride, moved || step != 0, rest) {
                Overlap::No => {}
                decided => return decided,
            }
        }
        Overlap::No
    }

    /// Returns the largest difference of indices along `dim`, and its stride.
    fn step_of(&self, dim: usize) -> (i128, i128) {
        let wide = |value: usize| i128::try_from(value).unwrap_or(i128::MAX);
        (wide(self.layout.shape()[dim] - 1), wide(self.layout.strides()[dim]))
    }

    /// Returns the reach of all dimensions.
    fn reach(&self) -> i128 {
        self.by_stride.iter().map(|&dim| self.step_of(dim)).map(|(max, stride)| max * stride).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Shape, Strides};

    fn layout(sizes: &[usize], strides: &[usize]) -> Layout {
        Layout::new(Shape::new(sizes).unwrap(), Strides::new(strides).unwrap(), 0).unwrap()
    }

    #[test]
    fn known_cases() {
        assert_eq!(layout(&[3, 4], &[1, 3]).internal_overlap(), Overlap::No);
        assert_eq!(layout(&[3, 0], &[0, 0]).internal_overlap(), Overlap::No);
        assert_eq!(layout(&[5, 3], &[1, 1]).internal_overlap(), Overlap::Yes, "unfold with step 1");
        assert_eq!(layout(&[3, 2], &[2, 3]).internal_overlap(), Overlap::No, "interleaved, yet apart");
        assert_eq!(layout(&[4, 3], &[2, 3]).internal_overlap(), Overlap::Yes, "3 · 2 = 2 · 3");
        assert_eq!(layout(&[3, 4], &[0, 1]).has_internal_overlap(), Overlap::Yes);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes long, in safe code")]
    fn the_search_ends() {
        // Large, nearly equal strides leave every combination of steps open.
        let strides: [usize; 12] = core::array::from_fn(|dim| (1 << 54) + (7 << (4 * dim)) + dim);
        assert_eq!(layout(&[20; 12], &strides).internal_overlap(), Overlap::TooHard);
    }
}
