//! The loop nest over two layouts of one shape.
//!
//! A tensor's dimensions say how it is indexed, not how its bytes are traversed best. For traversal,
//! dimensions of size 1 are removed, the rest are ordered by the destination's stride, largest first, so that
//! writes go forward, and neighbours that continue each other on both sides are merged. Usually one or two
//! loops remain, whatever the rank. Strides are in bytes from here on, because the item sizes of the two
//! sides may differ.

use orlop_core::Layout;

/// The rank up to which the loops are stored inline.
const INLINE_DIMS: usize = 6;

/// A loop over strided memory: its number of steps, and the bytes per step on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopDim {
    /// The number of steps.
    pub size: usize,
    /// Bytes from one step to the next in the destination.
    pub dst: usize,
    /// Bytes from one step to the next in the source. Zero reads the same bytes at each step.
    pub src: usize,
}

impl LoopDim {
    /// The loop with one step.
    pub(crate) const ONCE: Self = Self { size: 1, dst: 0, src: 0 };

    /// Returns `true` if `self`, as the loop around `inner`, continues where `inner` ends, so that both can
    /// be one loop.
    const fn continues(self, inner: Self) -> bool {
        // These are spans within one allocation on either side: the products fit.
        self.dst == inner.size * inner.dst && self.src == inner.size * inner.src
    }

    /// Returns the first `size` steps of this loop.
    pub(super) const fn part(self, size: usize) -> Self {
        Self { size, ..self }
    }
}

/// Calls `work` with the loops over `dst`, items of `dst_size` bytes, and `src`, items of `src_size`,
/// outermost first. Without `src`, every step reads the same address.
///
/// Both layouts have the same shape and at least one element, and are within one allocation.
pub(crate) fn with_loops<R>(
    (dst, dst_size): (&Layout, usize),
    (src, src_size): (Option<&Layout>, usize),
    work: impl FnOnce(&mut [LoopDim]) -> R,
) -> R {
    debug_assert!(src.is_none_or(|src| src.shape() == dst.shape()), "the shapes are the same");
    debug_assert!(!dst.is_empty(), "there are elements");
    if dst.is_contiguous() && src.is_none_or(Layout::is_contiguous) {
        let src = src.map_or(0, |_| src_size);
        return work(&mut [LoopDim { size: dst.numel(), dst: dst_size, src }]);
    }
    let mut inline = [LoopDim::ONCE; INLINE_DIMS];
    let mut heap = Vec::new();
    let slots = if dst.ndim() <= INLINE_DIMS {
        &mut inline[..]
    } else {
        heap.resize(dst.ndim(), LoopDim::ONCE);
        &mut heap[..]
    };
    let src_strides = src.map_or(&[][..], |src| src.strides());
    let mut len = 0;
    for (dim, (&size, &stride)) in dst.shape().iter().zip(dst.strides().iter()).enumerate() {
        if size != 1 {
            let src_stride = src_strides.get(dim).copied().unwrap_or(0);
            insert(slots, len, LoopDim { size, dst: stride * dst_size, src: src_stride * src_size });
            len += 1;
        }
    }
    let slots = &mut slots[..len];
    let len = coalesce(slots);
    work(&mut slots[..len])
}

/// Inserts a loop into the first `len`, in the order of the destination's strides.
fn insert(slots: &mut [LoopDim], len: usize, dim: LoopDim) {
    let mut place = len;
    while place > 0 && slots[place - 1].dst < dim.dst {
        slots[place] = slots[place - 1];
        place -= 1;
    }
    slots[place] = dim;
}

/// Merges loops that continue each other, and returns the number of the remaining ones.
fn coalesce(dims: &mut [LoopDim]) -> usize {
    let mut len: usize = 0;
    for next in 0..dims.len() {
        let inner = dims[next];
        match len.checked_sub(1).map(|last| &mut dims[last]) {
            Some(last) if last.continues(inner) => *last = LoopDim { size: last.size * inner.size, ..inner },
            _ => {
                dims[len] = inner;
                len += 1;
            }
        }
    }
    len
}

/// Splits off the two loops for which a kernel is selected, and returns them after the loops around them.
///
/// The inner one is where the destination is densest. The outer one is where the source is densest, if that
/// is another loop: the copy is then a transposition. Otherwise it is the loop next to the inner one.
pub(super) fn plane(dims: &mut [LoopDim]) -> (&[LoopDim], LoopDim, LoopDim) {
    let Some((&mut inner, around)) = dims.split_last_mut() else {
        return (&[], LoopDim::ONCE, LoopDim::ONCE);
    };
    let densest =
        around.iter().enumerate().rev().filter(|(_, dim)| dim.src != 0).min_by_key(|(_, dim)| dim.src);
    if let Some((place, dim)) = densest
        && dim.src < inner.src
    {
        around[place..].rotate_left(1);
    }
    match around.split_last() {
        Some((&outer, around)) => (around, outer, inner),
        None => (&[], LoopDim::ONCE, inner),
    }
}

/// Calls `visit` with the two pointers of every step of the loops `dims`.
///
/// The pointers are computed but not dereferenced.
#[inline]
pub(super) fn walk(
    dims: &[LoopDim],
    dst: *mut u8,
    src: *const u8,
    visit: &mut impl FnMut(*mut u8, *const u8),
) {
    match dims.split_first() {
        None => visit(dst, src),
        Some((dim, [])) => {
            for step in 0..dim.size {
                visit(dst.wrapping_add(step * dim.dst), src.wrapping_add(step * dim.src));
            }
        }
        Some((dim, rest)) => {
            for step in 0..dim.size {
                walk(rest, dst.wrapping_add(step * dim.dst), src.wrapping_add(step * dim.src), visit);
            }
        }
    }
}

/// Splits the plane of `outer` and `inner` into blocks of at most `outer_block` by `inner_block` steps and
/// calls `visit` for each with its pointers and loops. Blocks are visited along `inner` first.
#[inline]
pub(super) fn blocks(
    (outer, outer_block): (LoopDim, usize),
    (inner, inner_block): (LoopDim, usize),
    dst: *mut u8,
    src: *const u8,
    mut visit: impl FnMut(*mut u8, *const u8, LoopDim, LoopDim),
) {
    for from in (0..outer.size).step_by(outer_block) {
        let outer_part = outer.part(outer_block.min(outer.size - from));
        let (dst, src) = (dst.wrapping_add(from * outer.dst), src.wrapping_add(from * outer.src));
        for from in (0..inner.size).step_by(inner_block) {
            let inner_part = inner.part(inner_block.min(inner.size - from));
            let (dst, src) = (dst.wrapping_add(from * inner.dst), src.wrapping_add(from * inner.src));
            visit(dst, src, outer_part, inner_part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_core::{Shape, Strides};

    fn layout(sizes: &[usize], strides: &[usize]) -> Layout {
        Layout::new(Shape::new(sizes).unwrap(), Strides::new(strides).unwrap(), 0).unwrap()
    }

    fn nest(sizes: &[usize], dst: &[usize], src: &[usize]) -> Vec<(usize, usize, usize)> {
        with_loops((&layout(sizes, dst), 1), (Some(&layout(sizes, src)), 1), |dims| {
            dims.iter().map(|dim| (dim.size, dim.dst, dim.src)).collect()
        })
    }

    #[test]
    fn what_continues_is_one_loop() {
        assert_eq!(nest(&[2, 3, 4], &[12, 4, 1], &[12, 4, 1]), [(24, 1, 1)]);
        assert_eq!(nest(&[2, 3, 4], &[12, 4, 1], &[20, 4, 1]), [(2, 12, 20), (12, 1, 1)]);
        assert_eq!(nest(&[2, 3, 4], &[12, 4, 1], &[0, 0, 0]), [(24, 1, 0)], "expanded");
        assert_eq!(nest(&[3, 2, 4], &[4, 12, 1], &[4, 12, 1]), [(24, 1, 1)], "permuted alike");
        assert_eq!(nest(&[1, 5, 1], &[9, 2, 7], &[1, 3, 1]), [(5, 2, 3)]);
        assert_eq!(nest(&[], &[], &[]), [(1, 1, 1)]);
        assert_eq!(nest(&[1, 1], &[3, 2], &[5, 4]), [(1, 1, 1)]);
    }

    #[test]
    fn many_dimensions() {
        let sizes = [2; 10];
        let rows = Strides::contiguous(&Shape::new(&sizes).unwrap());
        assert_eq!(nest(&sizes, &rows, &rows), [(1024, 1, 1)]);
        let columns: Vec<usize> = rows.iter().rev().copied().collect();
        let dims = nest(&sizes, &rows, &columns);
        assert_eq!(dims.len(), 10);
        assert!(dims.iter().zip(rows.iter().zip(&columns)).all(|(dim, (&dst, &src))| *dim == (2, dst, src)));
    }

    #[test]
    fn the_plane_pairs_the_dense_dimensions_of_both_sides() {
        let dim = |size, dst, src| LoopDim { size, dst, src };
        let check = |src: &[usize], around: &[LoopDim], outer, inner| {
            let (dst, src) = (layout(&[2, 3, 5], &[15, 5, 1]), layout(&[2, 3, 5], src));
            with_loops((&dst, 1), (Some(&src), 1), |dims| {
                assert_eq!(plane(dims), (around, outer, inner), "{src:?}");
            });
        };
        check(&[1, 12, 2], &[dim(3, 5, 12)], dim(2, 15, 1), dim(5, 1, 2));
        check(&[40, 10, 1], &[dim(2, 15, 40)], dim(3, 5, 10), dim(5, 1, 1));
        check(&[1, 2, 0], &[dim(2, 15, 1)], dim(3, 5, 2), dim(5, 1, 0));
    }
}
