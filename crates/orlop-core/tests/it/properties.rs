//! Layouts against their definitions, by enumeration of every element.

use std::collections::BTreeSet;

use orlop_core::{Layout, Overlap, Shape, Strides};
use proptest::prelude::*;

/// Generates small layouts: dense, gappy, broadcast, overlapping, empty, and with more dimensions than fit
/// inline.
pub(crate) fn layouts() -> impl Strategy<Value = Layout> {
    let dims = prop::collection::vec((0usize..5, prop_oneof![0usize..8, 0usize..40]), 0..7);
    (dims, 0usize..10).prop_map(|(dims, offset)| {
        let (sizes, strides): (Vec<_>, Vec<_>) = dims.into_iter().unzip();
        Layout::new(Shape::new(&sizes).unwrap(), Strides::new(&strides).unwrap(), offset).unwrap()
    })
}

/// Returns the position of every element, in logical order.
pub(crate) fn places(layout: &Layout) -> Vec<usize> {
    let mut places = vec![layout.offset()];
    for (&size, &stride) in layout.shape().iter().zip(layout.strides().iter()) {
        places = places.iter().flat_map(|place| (0..size).map(move |index| place + index * stride)).collect();
    }
    places
}

proptest! {
    #[test]
    fn reach_is_that_of_the_elements(layout in layouts()) {
        let places = places(&layout);
        prop_assert_eq!(layout.numel(), places.len());
        let range = layout.element_range();
        match (places.iter().min(), places.iter().max()) {
            (Some(&min), Some(&max)) => prop_assert_eq!(range, min..max + 1),
            _ => prop_assert!(range.is_empty()),
        }
    }

    #[test]
    fn overlap_is_decided_and_right(layout in layouts()) {
        let places = places(&layout);
        let distinct: BTreeSet<_> = places.iter().collect();
        let truth = if distinct.len() == places.len() { Overlap::No } else { Overlap::Yes };
        prop_assert_eq!(layout.internal_overlap(), truth);
        let quick = layout.has_internal_overlap();
        prop_assert!(quick == truth || quick == Overlap::TooHard);
    }

    #[test]
    fn contiguous_and_dense_are_what_they_say(layout in layouts()) {
        let places = places(&layout);
        let in_a_row = places.windows(2).all(|pair| pair[1] == pair[0] + 1);
        prop_assert_eq!(layout.is_contiguous(), in_a_row);
        let distinct: BTreeSet<_> = places.iter().collect();
        let is_distinct = distinct.len() == places.len();
        let fills_range = is_distinct && distinct.len() == layout.element_range().len();
        prop_assert_eq!(layout.is_non_overlapping_and_dense(), fills_range);
    }

    #[test]
    fn preserved_strides_are_dense(layout in layouts()) {
        let preserved = Layout::new(layout.shape().clone(), layout.preserved_strides(), 0).unwrap();
        prop_assert!(preserved.is_non_overlapping_and_dense());
        prop_assert_eq!(preserved.preserved_strides(), preserved.strides().clone());
    }

    #[test]
    fn no_sizes_or_strides_panic(
        sizes in prop::collection::vec(any::<i64>(), 0..7),
        strides in prop::collection::vec(any::<i64>(), 0..7),
        offset in any::<usize>(),
    ) {
        let made = Shape::new(&sizes).and_then(|shape| {
            let strides = Strides::for_shape(&shape, &strides)?;
            Layout::new(shape, strides, offset)
        });
        if let Ok(layout) = made {
            let _ = (layout.byte_range(16), layout.internal_overlap(), layout.preserved_strides());
        }
    }
}
