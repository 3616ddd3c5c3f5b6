//! Views against their definitions: which positions of the storage each one reaches, in which order.

use orlop_core::{Layout, Reshaped, Result, Shape, broadcast_shapes};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::properties::{layouts, places};

/// Generates a layout and one of its dimensions.
fn with_dim() -> impl Strategy<Value = (Layout, usize)> {
    let some = layouts().prop_filter("a scalar", |layout| layout.ndim() > 0);
    (some, any::<Index>()).prop_map(|(layout, dim)| (layout.clone(), dim.index(layout.ndim())))
}

/// Dimension `dim`, counted from the end.
fn from_end(layout: &Layout, dim: usize) -> isize {
    isize::try_from(dim).unwrap() - isize::try_from(layout.ndim()).unwrap()
}

/// Returns the positions at each index of a dimension.
fn rows(layout: &Layout, dim: usize) -> Vec<Vec<usize>> {
    (0..layout.shape()[dim])
        .map(|index| places(&layout.select(from_end(layout, dim), index.try_into().unwrap()).unwrap()))
        .collect()
}

/// Compares the positions of a view, with dimension `dim` outermost, index by index.
fn assert_rows(view: &Layout, dim: usize, expected: &[Vec<usize>]) {
    assert_eq!(rows(view, dim), expected);
}

/// Generates factorizations of a number into sizes, factors of 1 included.
fn sizes_of(numel: usize) -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(any::<Index>(), 0..5).prop_map(move |picks| {
        let mut left = numel;
        let mut sizes = Vec::new();
        for pick in picks {
            let divisors: Vec<usize> =
                (1..=left.max(1)).filter(|divisor| left.is_multiple_of(*divisor)).collect();
            let size = divisors[pick.index(divisors.len())];
            sizes.push(size);
            left /= size;
        }
        if left != 1 {
            sizes.push(left);
        }
        sizes
    })
}

/// Generates row-major layouts, sliced and transposed a little: most of their dimensions still continue each
/// other.
fn rearranged() -> impl Strategy<Value = Layout> {
    let sizes = prop::collection::vec(prop_oneof![Just(1usize), 1usize..5], 1..6);
    (sizes, any::<[Index; 4]>(), 0isize..3).prop_map(|(sizes, [from, to, cut, swap], start)| {
        let layout = Layout::contiguous(Shape::new(&sizes).unwrap());
        let dim = |index: &Index| index.index(sizes.len()).try_into().unwrap();
        let moved = if swap.index(2) == 0 { layout.transpose(dim(&from), dim(&to)).unwrap() } else { layout };
        moved.slice(dim(&cut), Some(start.min(1)), None, 1).unwrap()
    })
}

fn with_sizes() -> impl Strategy<Value = (Layout, Vec<usize>)> {
    prop_oneof![layouts(), rearranged()].prop_flat_map(|layout| {
        let numel = layout.numel();
        (Just(layout), sizes_of(numel))
    })
}

/// Checks that incrementally updated counts equal those of a fresh count.
fn assert_counted(view: &Layout) {
    let anew = Layout::new(view.shape().clone(), view.strides().clone(), view.offset());
    assert_eq!(anew.as_ref(), Ok(view));
    assert_eq!(view.numel(), places(view).len());
}

/// Checks that every position of a view is one of its parent's.
fn assert_inside(view: &Layout, parent: &Layout) {
    assert_counted(view);
    if !view.is_empty() {
        let (inner, outer) = (view.element_range(), parent.element_range());
        assert!(outer.start <= inner.start && inner.end <= outer.end, "{view:?} in {parent:?}");
        let outer = places(parent);
        assert!(places(view).iter().all(|place| outer.contains(place)));
    }
}

proptest! {
    #[test]
    fn slices_pick_what_python_picks(
        (layout, dim) in with_dim(),
        start in prop::option::of(-6isize..6),
        end in prop::option::of(-6isize..6),
        step in 1usize..5,
    ) {
        let view = layout.slice(from_end(&layout, dim), start, end, step).unwrap();
        assert_inside(&view, &layout);
        let size = isize::try_from(layout.shape()[dim]).unwrap();
        let wrap = |bound: isize| if bound < 0 { bound + size } else { bound };
        let (start, end) = (start.map_or(0, wrap), end.map_or(size, wrap));
        let picked = (start.max(0)..end.min(size)).step_by(step);
        let all = rows(&layout, dim);
        let expected: Vec<_> = picked.map(|index| all[usize::try_from(index).unwrap()].clone()).collect();
        assert_rows(&view, dim, &expected);
    }

    #[test]
    fn indices_and_ranges((layout, dim) in with_dim(), index in -6isize..6, length in 0usize..6) {
        let size = layout.shape()[dim];
        let first = if index < 0 { size.checked_add_signed(index) } else { Some(index.unsigned_abs()) };
        let dim_from_end = from_end(&layout, dim);
        match layout.select(dim_from_end, index) {
            Ok(view) => {
                assert_inside(&view, &layout);
                let back = view.unsqueeze(dim.try_into().unwrap()).unwrap();
                prop_assert_eq!(places(&back), places(&layout.narrow(dim_from_end, index, 1).unwrap()));
            }
            Err(_) => prop_assert!(first.is_none_or(|first| first >= size)),
        }
        match layout.narrow(dim_from_end, index, length) {
            Ok(view) => {
                assert_inside(&view, &layout);
                let first = first.unwrap();
                assert_rows(&view, dim, &rows(&layout, dim)[first..first + length]);
            }
            Err(_) => prop_assert!(first.is_none_or(|first| first + length > size)),
        }
    }

    #[test]
    fn diagonals_step_along_both((layout, dim) in with_dim(), other in any::<Index>(), offset in -5isize..6) {
        let other = other.index(layout.ndim());
        let made = layout.diagonal(offset, from_end(&layout, dim), from_end(&layout, other));
        if dim == other {
            prop_assert!(made.is_err());
            return Ok(());
        }
        let view = made.unwrap();
        assert_inside(&view, &layout);
        let (rows, columns) = (layout.shape()[dim], layout.shape()[other]);
        let pairs = (0..rows).filter_map(|row| row.checked_add_signed(offset).map(|column| (row, column)));
        let expected: Vec<_> = pairs.filter(|&(_, column)| column < columns).map(|(row, column)| {
            let at = |layout: &Layout, dim: usize, index: usize| {
                layout.select(dim.try_into().unwrap(), index.try_into().unwrap()).unwrap()
            };
            // The outer dimension last, so that the number of the other stays valid.
            let mut order = [(dim, row), (other, column)];
            order.sort_by_key(|&(dim, _)| std::cmp::Reverse(dim));
            let [first, second] = order;
            places(&at(&at(&layout, first.0, first.1), second.0, second.1))
        }).collect();
        assert_rows(&view, view.ndim() - 1, &expected);
    }

    #[test]
    fn windows_slide((layout, dim) in with_dim(), size in 0usize..6, step in 0usize..4) {
        match layout.unfold(from_end(&layout, dim), size, step) {
            Ok(view) => {
                assert_inside(&view, &layout);
                for (window, expected) in (0..view.shape()[dim]).zip((0..).step_by(step)) {
                    let inside = view.select(dim.try_into().unwrap(), window.try_into().unwrap()).unwrap();
                    let narrowed = layout.narrow(dim.try_into().unwrap(), expected, size).unwrap();
                    prop_assert_eq!(rows(&inside, inside.ndim() - 1), rows(&narrowed, dim));
                }
                prop_assert!(view.shape()[dim] * step + size > layout.shape()[dim], "no window is missing");
            }
            Err(_) => prop_assert!(step == 0 || size > layout.shape()[dim]),
        }
    }

    #[test]
    fn orders_undo_each_other(
        (layout, dim) in with_dim(),
        other in any::<Index>(),
        order in Just([0, 1, 2, 3, 4, 5]).prop_shuffle(),
    ) {
        let (a, b) = (from_end(&layout, dim), from_end(&layout, other.index(layout.ndim())));
        let swapped = layout.transpose(a, b).unwrap();
        assert_counted(&swapped);
        prop_assert_eq!(rows(&swapped, other.index(layout.ndim())).len(), layout.shape()[dim]);
        prop_assert_eq!(&swapped.transpose(b, a).unwrap(), &layout);

        let moved = layout.movedim(&[a], &[b]).unwrap();
        assert_counted(&moved);
        prop_assert_eq!(rows(&moved, other.index(layout.ndim())), rows(&layout, dim));
        prop_assert_eq!(&moved.movedim(&[b], &[a]).unwrap(), &layout);

        let ndim = isize::try_from(layout.ndim()).unwrap();
        let order: Vec<isize> = order.into_iter().filter(|&dim| dim < ndim).collect();
        let position = |dim| order.iter().position(|&other| other == dim).unwrap();
        let back: Vec<isize> = (0..ndim).map(|dim| position(dim).try_into().unwrap()).collect();
        let permuted = layout.permute(&order).unwrap();
        assert_inside(&permuted, &layout);
        prop_assert_eq!(&permuted.permute(&back).unwrap(), &layout);
        let identity: Vec<isize> = (0..ndim).collect();
        prop_assert_eq!(&layout.movedim(&order, &identity).unwrap(), &permuted);
    }

    #[test]
    fn dimensions_of_size_1_come_and_go(layout in layouts(), new in any::<Index>()) {
        let new = new.index(layout.ndim() + 1).try_into().unwrap();
        let wider = layout.unsqueeze(new).unwrap();
        assert_counted(&wider);
        prop_assert_eq!(&wider.squeeze_dim(new).unwrap(), &layout);
        prop_assert_eq!(&wider.squeeze_dims(&[new]).unwrap(), &layout);
        prop_assert_eq!(&wider.squeeze_dims(&[]).unwrap(), &wider);
        let squeezed = wider.squeeze();
        assert_counted(&squeezed);
        prop_assert!(!squeezed.shape().contains(&1));
        prop_assert_eq!(places(&squeezed), places(&layout));
    }

    #[test]
    fn expanding_repeats(
        layout in layouts(),
        new in prop::collection::vec(0usize..3, 0..3),
        to in 0usize..4,
    ) {
        let kept = layout.shape().iter().map(|&size| if size == 1 { to } else { size });
        let sizes: Vec<usize> = new.iter().copied().chain(kept).collect();
        let view = layout.expand(&sizes).unwrap();
        assert_inside(&view, &layout);
        prop_assert_eq!(view.shape(), sizes.as_slice());
        prop_assert_eq!(&broadcast_shapes(layout.shape(), view.shape()).unwrap(), view.shape());
        if !view.is_empty() {
            // At index 0 of every expanded dimension.
            let first = (0..view.ndim()).try_fold(view.clone(), |view, dim| {
                let old = dim.checked_sub(new.len()).map_or(1, |dim| layout.shape()[dim]);
                if old == 1 { view.narrow(dim.try_into().unwrap(), 0, 1) } else { Ok(view) }
            });
            prop_assert_eq!(places(&first.unwrap()), places(&layout));
        }
    }

    #[test]
    fn views_keep_every_place_in_order((layout, sizes) in with_sizes()) {
        let shape = Shape::new(&sizes).unwrap();
        let strides = layout.view_strides(&shape);
        match layout.reshape(&sizes).unwrap() {
            Reshaped::View(view) => {
                assert_counted(&view);
                prop_assert_eq!(view.shape(), &shape);
                prop_assert_eq!(Some(view.strides()), strides.as_ref());
                prop_assert_eq!(places(&view), places(&layout));
                prop_assert_eq!(layout.view(&sizes).unwrap(), view);
            }
            Reshaped::Copy(copy) => {
                prop_assert!(strides.is_none() && layout.view(&sizes).is_err());
                prop_assert_eq!(&copy, &Layout::contiguous(shape));
                let is_possible = has_strides(&places(&layout), &sizes);
                prop_assert!(!is_possible, "{:?} as {:?} is possible", layout, sizes);
            }
        }
    }

    #[test]
    fn a_dimension_divided_and_made_one_again((layout, dim) in with_dim(), sizes in sizes_of(12)) {
        let size = layout.shape()[dim];
        let is_product = sizes.iter().product::<usize>() == size;
        let sizes: Vec<usize> = match size {
            0 => vec![0, 3],
            _ if is_product => sizes,
            _ => vec![1, size, 1],
        };
        let divided = layout.unflatten(from_end(&layout, dim), &sizes).unwrap();
        assert_counted(&divided);
        prop_assert_eq!(places(&divided), places(&layout));
        let last = dim + sizes.len() - 1;
        match divided.flatten(dim.try_into().unwrap(), last.try_into().unwrap()).unwrap() {
            Reshaped::View(view) => {
                prop_assert_eq!((view.shape(), places(&view)), (layout.shape(), places(&layout)));
            }
            Reshaped::Copy(_) => prop_assert!(false, "no copy is needed"),
        }
    }

    #[test]
    fn pieces_tile((layout, dim) in with_dim(), size in 1usize..6, cut in any::<Index>()) {
        let end = from_end(&layout, dim);
        let length = layout.shape()[dim];
        let assert_tiles = |pieces: Vec<Layout>| {
            pieces.iter().for_each(|piece| assert_inside(piece, &layout));
            let tiles: Vec<_> = pieces.iter().flat_map(|piece| rows(piece, dim)).collect();
            assert_eq!(tiles, rows(&layout, dim));
            pieces.iter().map(|piece| piece.shape()[dim]).collect::<Vec<_>>()
        };
        let equal = assert_tiles(layout.split(size, end).unwrap().collect());
        prop_assert_eq!(equal.len(), length.div_ceil(size).max(1));
        let chunks = assert_tiles(layout.chunk(size, end).unwrap().collect());
        prop_assert!(chunks.len() <= size && (length > 0 || chunks.len() == size));
        let cut = cut.index(length + 1);
        let listed = [cut, 0, length - cut];
        let pieces = layout.split_with_sizes(&listed, end).unwrap().collect();
        prop_assert_eq!(assert_tiles(pieces), listed.to_vec());
    }

    #[test]
    fn other_elements_lie_on_the_same_bytes(layout in layouts(), from in 0u32..5, to in 0u32..5) {
        let (from, to) = (1usize << from, 1usize << to);
        let bytes = |layout: &Layout, itemsize: usize| -> Vec<usize> {
            places(layout).into_iter().flat_map(|place| place * itemsize..(place + 1) * itemsize).collect()
        };
        if let Ok(view) = layout.view_dtype(from, to) {
            assert_counted(&view);
            prop_assert_eq!(bytes(&view, to), bytes(&layout, from));
            prop_assert_eq!(view.view_dtype(to, from).unwrap(), layout);
        }
    }

    #[test]
    fn nothing_panics(
        sizes in prop::collection::vec(prop_oneof![0i64..4, any::<i64>()], 0..7),
        strides in prop::collection::vec(prop_oneof![0i64..4, any::<i64>()], 0..7),
        offset in any::<usize>(),
        (a, b, c) in any::<(isize, isize, isize)>(),
        (dim, other) in (-8isize..8, -8isize..8),
        size in any::<usize>(),
        list in prop::collection::vec(prop_oneof![-2isize..4, any::<isize>()], 0..8),
    ) {
        let made = Shape::new(&sizes).and_then(|shape| {
            let strides = orlop_core::Strides::for_shape(&shape, &strides)?;
            Layout::new(shape, strides, offset)
        });
        let Ok(layout) = made else { return Ok(()) };
        let views: [Result<Layout>; 17] = [
            layout.slice(dim, Some(a), Some(b), size),
            layout.narrow(dim, a, size),
            layout.select(dim, a),
            layout.as_strided(&list, &list, Some(c)),
            layout.diagonal(a, dim, other),
            layout.unfold(dim, size, size),
            layout.transpose(dim, other),
            layout.permute(&list),
            layout.movedim(&list, &[a]),
            layout.squeeze_dim(dim),
            layout.squeeze_dims(&list),
            layout.unsqueeze(dim),
            layout.expand(&list),
            layout.view(&list),
            layout.unflatten(dim, &list),
            layout.view_dtype(16, 1),
            layout.view_dtype(size, 8),
        ];
        for view in views.iter().flatten() {
            let anew = Layout::new(view.shape().clone(), view.strides().clone(), view.offset());
            prop_assert_eq!(anew.as_ref(), Ok(view));
        }
        let _ = (layout.squeeze(), layout.reshape(&list), layout.flatten(dim, other));
        let splits = layout.split(size, dim).into_iter().chain(layout.chunk(size, dim));
        let pieces = splits.flat_map(|pieces| pieces.take(3));
        prop_assert!(pieces.chain(layout.split_with_sizes(&list, dim).into_iter().flatten()).count() < 20);
    }
}

/// Returns `true` if some strides give positions in this order.
fn has_strides(places: &[usize], sizes: &[usize]) -> bool {
    let mut below = places.len();
    let mut strides = Vec::new();
    for &size in sizes {
        below /= size;
        let step = if size > 1 { places[below].checked_sub(places[0]) } else { Some(0) };
        let Some(step) = step else { return false };
        strides.push(step);
    }
    let shape = Shape::new(sizes).unwrap();
    Layout::new(shape, orlop_core::Strides::new(&strides).unwrap(), places[0])
        .is_ok_and(|layout| crate::properties::places(&layout) == places)
}
