//! [`StridedLoops`]: the loops of an operation over strided memory, as devices take them.
//!
//! A backend should not see tensors: dimensions of size 1, dimensions that continue each other, and the order
//! in which a user indexes them say nothing about memory. So the loops are computed once, here: ordered by
//! the destination's strides, merged, in bytes. Most operations have one to three.

use crate::kernels::LoopDim;
use crate::kernels::nest::with_loops;
use orlop_core::{Layout, Result};

/// The loops of an operation over strided memory, outermost first: at each step, each side has an element at
/// the sum of its offsets.
///
/// There are as many loops as the memory needs. A device whose calls take a limited number processes the rest
/// on the host, with [`StridedLoops::try_for_each_part`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StridedLoops<'a>(&'a [LoopDim]);

impl<'a> StridedLoops<'a> {
    /// Calls `work` with the loops over the elements of `to` and `from`, each a layout and the bytes of an
    /// element. `from` is broadcast to the shape of `to`; without it, the offsets of the source are zero.
    /// Offsets are counted from the first element of each side, not from where the layouts' offsets count.
    ///
    /// ```
    /// use orlop_host::{LoopDim, StridedLoops};
    /// use orlop_core::{Layout, Shape};
    ///
    /// let rows = Layout::contiguous(Shape::new(&[4, 3])?);
    /// let columns = Layout::contiguous(Shape::new(&[3, 4])?).transpose(0, 1)?;
    /// StridedLoops::with((&rows, 4), Some((&columns, 4)), |loops| {
    ///     assert_eq!(loops.dims()[0], LoopDim { size: 4, dst: 12, src: 4 });
    ///     assert_eq!(loops.dims()[1], LoopDim { size: 3, dst: 4, src: 16 });
    /// })?;
    /// // Dimensions that continue each other are one loop, and a run of bytes for a copy.
    /// let run = StridedLoops::with((&rows, 4), Some((&rows, 4)), |loops| loops.with_run(4).0)?;
    /// assert_eq!(run, 48);
    /// # Ok::<(), orlop_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the shapes do not broadcast, or a side spans more bytes than the address space has.
    pub fn with<R>(
        to: (&Layout, usize),
        from: Option<(&Layout, usize)>,
        work: impl FnOnce(StridedLoops<'_>) -> R,
    ) -> Result<R> {
        to.0.byte_range(to.1)?;
        let source = from.map(|(layout, _)| layout.broadcast_to(to.0.shape())).transpose()?;
        let source_size = from.map_or(0, |(_, size)| size);
        if let Some(layout) = &source {
            layout.byte_range(source_size)?;
        }
        if to.0.is_empty() {
            return Ok(work(StridedLoops(&[LoopDim { size: 0, dst: 0, src: 0 }])));
        }
        Ok(with_loops(to, (source.as_ref(), source_size), |dims| work(StridedLoops(dims))))
    }

    /// Returns no loops: one step.
    #[must_use]
    pub const fn once() -> Self {
        Self(&[])
    }

    /// Returns the loops, outermost first.
    #[must_use]
    pub const fn dims(self) -> &'a [LoopDim] {
        self.0
    }

    /// Returns the number of steps of all loops.
    #[must_use]
    pub fn steps(self) -> usize {
        // The elements of a layout, whose count was checked.
        self.0.iter().map(|dim| dim.size).product()
    }

    /// Folds the innermost loop into a run if items of `item` bytes are adjacent along it on both sides.
    /// Returns the bytes of a run and the loops around it.
    #[must_use]
    pub fn with_run(self, item: usize) -> (usize, Self) {
        match self.0 {
            [outer @ .., run] if run.dst == item && run.src == item => (item * run.size, Self(outer)),
            _ => (item, self),
        }
    }

    /// Calls `part` for every step of the outer loops with its offsets in the destination and in the source,
    /// in bytes, and the innermost `max` loops.
    ///
    /// # Errors
    ///
    /// The first error of `part`, which ends the iteration.
    pub fn try_for_each_part<E>(
        self,
        max: usize,
        mut part: impl FnMut(usize, usize, Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let (outer, inner) = self.0.split_at(self.0.len().saturating_sub(max));
        each_step(outer, 0, 0, &mut |dst, src| part(dst, src, Self(inner)))
    }
}

fn each_step<E>(
    dims: &[LoopDim],
    dst: usize,
    src: usize,
    visit: &mut impl FnMut(usize, usize) -> Result<(), E>,
) -> Result<(), E> {
    let Some((dim, inner)) = dims.split_first() else { return visit(dst, src) };
    // Offsets inside the spans of the layouts, which were checked.
    (0..dim.size).try_for_each(|step| each_step(inner, dst + step * dim.dst, src + step * dim.src, visit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_core::{Shape, Strides, bytes::MAX_BYTES};

    fn layout(sizes: &[usize], strides: &[usize]) -> Layout {
        Layout::new(Shape::new(sizes).unwrap(), Strides::new(strides).unwrap(), 0).unwrap()
    }

    #[test]
    fn parts_cover_every_step_once() {
        let (to, from) = (layout(&[2, 3, 5], &[100, 20, 2]), layout(&[2, 3, 5], &[1, 2, 6]));
        for max in 0..5 {
            let mut seen = Vec::new();
            let collect = |loops: StridedLoops<'_>| {
                loops.try_for_each_part(max, |dst, src, inner| {
                    assert!(inner.dims().len() <= max);
                    each_step(inner.dims(), dst, src, &mut |dst, src| {
                        seen.push((dst, src));
                        Ok::<(), ()>(())
                    })
                })
            };
            StridedLoops::with((&to, 4), Some((&from, 2)), collect).unwrap().unwrap();
            let expected = (0..2).flat_map(|a| (0..3).flat_map(move |b| (0..5).map(move |c| (a, b, c))));
            let expected: Vec<_> =
                expected.map(|(a, b, c)| (400 * a + 80 * b + 8 * c, 2 * a + 4 * b + 12 * c)).collect();
            assert_eq!(seen, expected, "{max}");
        }
    }

    #[test]
    fn an_error_ends_the_iteration() {
        let to = layout(&[4, 4], &[8, 1]);
        let mut calls = 0;
        let stop = |loops: StridedLoops<'_>| {
            loops.try_for_each_part(1, |_, _, _| {
                calls += 1;
                if calls == 2 { Err(calls) } else { Ok(()) }
            })
        };
        assert_eq!(StridedLoops::with((&to, 1), None, stop).unwrap(), Err(2));
        assert_eq!(calls, 2);
    }

    #[test]
    fn sizes_are_checked() {
        let (large, small) = (layout(&[2], &[MAX_BYTES / 2]), layout(&[2], &[1]));
        assert!(StridedLoops::with((&large, 1), None, |_| ()).is_ok());
        assert!(StridedLoops::with((&large, 4), None, |_| ()).is_err());
        assert!(StridedLoops::with((&small, 4), Some((&large, 4)), |_| ()).is_err());
        assert!(StridedLoops::with((&small, 4), Some((&layout(&[3], &[1]), 4)), |_| ()).is_err());
        let none = |loops: StridedLoops<'_>| {
            assert_eq!(loops.steps(), 0);
            loops.try_for_each_part(0, |_, _, _| Err(()))
        };
        StridedLoops::with((&layout(&[0, 3], &[3, 1]), 4), None, none).unwrap().unwrap();
        let one = |loops: StridedLoops<'_>| {
            let (run, outer) = loops.with_run(4);
            assert_eq!((loops.steps(), run, outer.steps()), (1, 4, 1));
        };
        StridedLoops::with((&layout(&[1], &[9]), 4), None, one).unwrap();
    }
}
