//! Selecting and fetching the elements to print.
//!
//! A large tensor prints the edges of its dimensions, and only these are fetched: from devices by small
//! reads, so that printing a tensor of gigabytes moves kilobytes.

use super::options::PrintOptions;
use crate::error::Result;
use crate::tensor::Tensor;
use orlop_core::{Convert as _, Layout, Scalar, dispatch};

/// The printed part of a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShownDim {
    /// The size of the dimension.
    pub(super) size: usize,
    /// The number of items at each end, if not all are printed.
    pub(super) edge: Option<usize>,
}

impl ShownDim {
    /// Returns the number of printed elements of the dimension.
    pub(super) fn count(self) -> usize {
        self.edge.map_or(self.size, |edge| 2 * edge)
    }
}

/// The largest number of printed elements, whatever the number of dimensions; more only if the threshold is
/// higher.
const MAX_ITEMS: usize = 1 << 16;

/// The largest span of one read from a device, in bytes.
const MAX_READ: usize = 1 << 16;

/// Returns the printed part of each dimension; `None` if that is too much, as for twenty dimensions of size
/// two.
pub(super) fn shown(sizes: &[usize], numel: usize, options: &PrintOptions) -> Option<Vec<ShownDim>> {
    if numel <= options.threshold {
        return Some(sizes.iter().map(|&size| ShownDim { size, edge: None }).collect());
    }
    // With many dimensions, fewer items at each end.
    (1..=options.edge_items).rev().find_map(|edge| {
        let cut = |&size: &usize| ShownDim { size, edge: (size.div_ceil(2) > edge).then_some(edge) };
        let shown: Vec<ShownDim> = sizes.iter().map(cut).collect();
        let count = shown.iter().try_fold(1usize, |count, dim| count.checked_mul(dim.count()))?;
        (count <= MAX_ITEMS.max(options.threshold)).then_some(shown)
    })
}

/// Returns the printed elements, in order. Writes fail meanwhile.
pub(super) fn gather(tensor: &Tensor, shown: &[ShownDim]) -> Result<Vec<Scalar>> {
    let imp = tensor.imp()?;
    let _guard = imp.read()?;
    // Before anything is allocated for the sizes.
    imp.layout.check_within(imp.storage().nbytes(), imp.dtype.size())?;
    let mut elements = Vec::new();
    edges(tensor, shown, &mut elements)?;
    Ok(elements)
}

fn edges(tensor: &Tensor, shown: &[ShownDim], elements: &mut Vec<Scalar>) -> Result<()> {
    let Some((first, rest)) = shown.split_first().filter(|_| shown.iter().any(|dim| dim.edge.is_some()))
    else {
        return fetch(tensor, elements);
    };
    if let ([], Some(edge)) = (rest, first.edge) {
        fetch(&tensor.narrow(0, 0, edge)?, elements)?;
        return fetch(&tensor.narrow(0, -signed(edge), edge)?, elements);
    }
    let indices = match first.edge {
        Some(edge) => (0..signed(edge)).chain(-signed(edge)..0),
        None => (0..signed(first.size)).chain(0..0),
    };
    for index in indices {
        edges(&tensor.select(0, index)?, rest, elements)?;
    }
    Ok(())
}

/// Fetches all elements, in one read, or in several if one would span much else.
fn fetch(tensor: &Tensor, elements: &mut Vec<Scalar>) -> Result<()> {
    let layout = tensor.layout();
    let reach = layout.byte_range(tensor.itemsize())?.len();
    if !tensor.device().is_cpu() && reach > MAX_READ && layout.numel() > 1 {
        return parts(tensor, layout, elements);
    }
    dispatch!(tensor.dtype(), T => elements.extend(tensor.to_vec::<T>()?.into_iter().map(T::to_scalar)));
    Ok(())
}

fn parts(tensor: &Tensor, layout: &Layout, elements: &mut Vec<Scalar>) -> Result<()> {
    let size = layout.shape().first().copied().unwrap_or(0);
    (0..signed(size)).try_for_each(|index| fetch(&tensor.select(0, index)?, elements))
}

/// Converts to an index. Sizes are at most `isize::MAX` (`Shape`), except in tensors without elements, which
/// are not fetched.
fn signed(size: usize) -> isize {
    isize::try_from(size).unwrap_or(isize::MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn counts(sizes: &[usize]) -> Option<Vec<usize>> {
        let numel = sizes.iter().product();
        let shown = shown(sizes, numel, &PrintOptions::new())?;
        Some(shown.into_iter().map(ShownDim::count).collect())
    }

    #[test]
    fn edges_above_the_threshold() {
        assert_eq!(counts(&[10, 100]), Some(vec![10, 100]));
        assert_eq!(counts(&[6, 7, 100]), Some(vec![6, 6, 6]));
        assert_eq!(counts(&[1001]), Some(vec![6]));
    }

    #[test]
    fn many_dimensions_show_less() {
        assert_eq!(counts(&[10; 6]), Some(vec![6; 6]));
        assert_eq!(counts(&[10; 8]), Some(vec![4; 8]));
        assert_eq!(counts(&[10; 12]), Some(vec![2; 12]));
        assert_eq!(counts(&[2; 20]), None);
    }
}
