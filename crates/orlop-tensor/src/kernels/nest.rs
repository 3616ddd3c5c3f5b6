//! The loop nest over two layouts of one shape.
//!
//! A tensor's dimensions say how it is indexed; how its bytes are best walked is another matter. The loops here know
//! only the second: dimensions of size 1 are gone, the rest are ordered by the destination's stride, largest first, so
//! that writes go forward, and neighbours that continue each other on both sides are one. What is left is usually one
//! or two loops, whatever the rank was. Strides are in bytes from here on, since the sides may differ in item size.

use orlop_core::Layout;

/// Rank up to which the loops are kept without the heap.
const INLINE_DIMS: usize = 6;

/// One loop: how often, and how many bytes each step leads on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dim {
    pub(super) size: usize,
    pub(super) dst: usize,
    pub(super) src: usize,
}

impl Dim {
    /// The loop that runs once.
    pub(super) const ONCE: Self = Self { size: 1, dst: 0, src: 0 };

    /// Whether `self`, as the loop around `inner`, goes on where `inner` ends: the two are one loop.
    const fn continues(self, inner: Self) -> bool {
        // Bytes within one allocation on either side: the products fit.
        self.dst == inner.size * inner.dst && self.src == inner.size * inner.src
    }

    /// So many steps of this loop, from wherever the pointers are.
    pub(super) const fn part(self, size: usize) -> Self {
        Self { size, ..self }
    }
}

/// Calls `work` with the loops over `dst`, items of `dst_size` bytes, and `src`, items of `src_size`, outermost first.
/// Without `src` every element comes from the same place.
///
/// Both layouts have the same shape and at least one element, and reach no further than one allocation does.
pub(super) fn with_loops<R>(
    (dst, dst_size): (&Layout, usize),
    (src, src_size): (Option<&Layout>, usize),
    work: impl FnOnce(&mut [Dim]) -> R,
) -> R {
    debug_assert!(src.is_none_or(|src| src.shape() == dst.shape()), "the shapes are the same");
    debug_assert!(!dst.is_empty(), "there are elements");
    if dst.is_contiguous() && src.is_none_or(Layout::is_contiguous) {
        let src = src.map_or(0, |_| src_size);
        return work(&mut [Dim { size: dst.numel(), dst: dst_size, src }]);
    }
    let mut inline = [Dim::ONCE; INLINE_DIMS];
    let mut heap = Vec::new();
    let slots = if dst.ndim() <= INLINE_DIMS {
        &mut inline[..]
    } else {
        heap.resize(dst.ndim(), Dim::ONCE);
        &mut heap[..]
    };
    let src_strides = src.map_or(&[][..], |src| src.strides());
    let mut len = 0;
    for (dim, (&size, &stride)) in dst.shape().iter().zip(dst.strides().iter()).enumerate() {
        if size != 1 {
            let src_stride = src_strides.get(dim).copied().unwrap_or(0);
            insert(slots, len, Dim { size, dst: stride * dst_size, src: src_stride * src_size });
            len += 1;
        }
    }
    let slots = &mut slots[..len];
    let len = coalesce(slots);
    work(&mut slots[..len])
}

/// Adds a loop to the `len` that are there, at its place in the order of the destination's strides.
fn insert(slots: &mut [Dim], len: usize, dim: Dim) {
    let mut place = len;
    while place > 0 && slots[place - 1].dst < dim.dst {
        slots[place] = slots[place - 1];
        place -= 1;
    }
    slots[place] = dim;
}

/// Makes one loop of those that are, and says how many are left.
fn coalesce(dims: &mut [Dim]) -> usize {
    let mut len: usize = 0;
    for next in 0..dims.len() {
        let inner = dims[next];
        match len.checked_sub(1).map(|last| &mut dims[last]) {
            Some(last) if last.continues(inner) => *last = Dim { size: last.size * inner.size, ..inner },
            _ => {
                dims[len] = inner;
                len += 1;
            }
        }
    }
    len
}

/// The two loops that are worth a kernel of their own, taken from `dims`, and the loops around them: those left.
///
/// The inner one is where the destination is densest. The outer one is where the source is densest, if that is another
/// loop: between the two the copy is a transposition. Else it is the loop that is next to the inner one.
pub(super) fn plane(dims: &mut [Dim]) -> (&[Dim], Dim, Dim) {
    let Some((&mut inner, around)) = dims.split_last_mut() else { return (&[], Dim::ONCE, Dim::ONCE) };
    let densest =
        around.iter().enumerate().rev().filter(|(_, dim)| dim.src != 0).min_by_key(|(_, dim)| dim.src);
    if let Some((place, dim)) = densest
        && dim.src < inner.src
    {
        around[place..].rotate_left(1);
    }
    match around.split_last() {
        Some((&outer, around)) => (around, outer, inner),
        None => (&[], Dim::ONCE, inner),
    }
}

/// Calls `visit` with the two pointers of every step of the loops `dims`.
///
/// The pointers are computed without being followed: what they point at is between the caller and `visit`.
#[inline]
pub(super) fn walk(dims: &[Dim], dst: *mut u8, src: *const u8, visit: &mut impl FnMut(*mut u8, *const u8)) {
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

/// Cuts the plane of `outer` and `inner` into blocks of at most `outer_block` by `inner_block` steps and calls `visit`
/// for each with its pointers and loops. Blocks that are neighbours along `inner` follow each other.
#[inline]
pub(super) fn blocks(
    (outer, outer_block): (Dim, usize),
    (inner, inner_block): (Dim, usize),
    dst: *mut u8,
    src: *const u8,
    mut visit: impl FnMut(*mut u8, *const u8, Dim, Dim),
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
        let dim = |size, dst, src| Dim { size, dst, src };
        let check = |src: &[usize], around: &[Dim], outer, inner| {
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
