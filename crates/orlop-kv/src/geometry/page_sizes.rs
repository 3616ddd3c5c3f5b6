//! The choice of page sizes: which large page serves the blocks of all groups with the least waste.
//!
//! A large page is the least common multiple of the page sizes (Jenga, SOSP 2025). A block whose layers share
//! one page can make that multiple very large, and every sequence wastes up to one large page for each page
//! size. So a block may be split: into pages for fewer layers. The choice weighs the expected waste of a
//! sequence against the entries of its block tables.

use super::LayerGroup;
use crate::{GroupProblem, KvError, Result};

/// The pages of one group's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupPages {
    /// Pages of a block; 0 for an empty group.
    pub(crate) parts: u32,
    /// Bytes of a page.
    pub(crate) bytes: u64,
    /// The index of the page size.
    pub(crate) class: u32,
}

pub(super) struct PageSizes {
    pub(super) pages: Vec<GroupPages>,
    pub(super) classes: Vec<u64>,
    pub(super) large_page: u64,
}

/// A large page of more bytes is avoided at the cost of more parts.
const PREFERRED_LARGE_PAGE: u64 = 256 << 10;

pub(super) fn choose(groups: &[LayerGroup]) -> Result<PageSizes> {
    let overflow = || KvError::OutOfRange { what: "the bytes of a block" };
    // (the group's index, its layers, the bytes of a layer's block)
    let mut sized = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        let bytes = group.layer_block_bytes().ok_or_else(overflow)?;
        bytes.checked_mul(u64::from(group.layers)).ok_or_else(overflow)?;
        if bytes > 0 && group.layers > 0 {
            sized.push((index, group.layers, bytes));
        }
    }
    let layers_per_page = search(&sized).ok_or_else(overflow)?;
    let mut pages = vec![GroupPages { parts: 0, bytes: 0, class: 0 }; groups.len()];
    let mut classes: Vec<u64> = Vec::new();
    let mut large_page = 1;
    for (&(index, layers, bytes), &in_page) in sized.iter().zip(&layers_per_page) {
        let bytes = bytes * u64::from(in_page);
        let class = classes.iter().position(|&known| known == bytes).unwrap_or_else(|| {
            classes.push(bytes);
            classes.len() - 1
        });
        large_page = lcm(large_page, bytes).ok_or_else(overflow)?;
        let too_many =
            |_| KvError::InvalidGroup { group: groups[index].name.clone(), problem: GroupProblem::TooMany };
        let class = u32::try_from(class).map_err(too_many)?;
        pages[index] = GroupPages { parts: layers / in_page, bytes, class };
    }
    Ok(PageSizes { pages, classes, large_page })
}

/// Returns the layers of a page for each group: coordinate descent from one layer per page.
fn search(groups: &[(usize, u32, u64)]) -> Option<Vec<u32>> {
    let mut best = vec![1; groups.len()];
    let mut best_cost = cost(groups, &best)?;
    loop {
        let before = best_cost;
        for at in 0..groups.len() {
            let mut candidate = best.clone();
            for in_page in divisors(groups[at].1) {
                candidate[at] = in_page;
                // A multiple that overflows is not a candidate.
                let Some(cost) = cost(groups, &candidate) else { continue };
                if cost < best_cost {
                    (best_cost, best[at]) = (cost, in_page);
                }
            }
        }
        if best_cost == before {
            return Some(best);
        }
    }
}

/// Returns the divisors of a number, in ascending order.
fn divisors(number: u32) -> Vec<u32> {
    let small: Vec<u32> = (1..=number.isqrt()).filter(|&at| number.is_multiple_of(at)).collect();
    let large = small.iter().rev().map(|at| number / at).filter(|at| !small.contains(at));
    small.iter().copied().chain(large).collect()
}

/// The expected waste of a sequence beyond the preferred large page, then the parts, then the large page.
fn cost(groups: &[(usize, u32, u64)], layers_per_page: &[u32]) -> Option<(u64, u64, u64)> {
    let mut large = 1;
    let mut parts = 0;
    let mut classes = Vec::new();
    for (&(_, layers, bytes), &in_page) in groups.iter().zip(layers_per_page) {
        let page = bytes.checked_mul(u64::from(in_page))?;
        large = lcm(large, page)?;
        parts += u64::from(layers / in_page);
        if !classes.contains(&page) {
            classes.push(page);
        }
    }
    // Half a large page for each page size that does not fill it.
    let waste = classes.iter().filter(|&&page| page < large).map(|page| large - page);
    let waste = waste.fold(0, u64::saturating_add);
    Some((waste.max(PREFERRED_LARGE_PAGE), parts, large))
}

fn lcm(a: u64, b: u64) -> Option<u64> {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x).checked_mul(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn large(groups: &[LayerGroup]) -> (u64, Vec<u32>) {
        let sizes = choose(groups).unwrap();
        (sizes.large_page, sizes.pages.iter().map(|pages| pages.parts).collect())
    }

    #[test]
    fn equal_layers_share_pages_without_a_remainder() {
        let (bytes, parts) =
            large(&[LayerGroup::full("full", 10, 8192), LayerGroup::window("window", 52, 8192, 1024)]);
        assert_eq!((bytes, parts), (4 * 16 * 8192, vec![5, 13]), "pages of two and of four layers");
    }

    #[test]
    fn a_state_does_not_inflate_the_blocks_of_attention() {
        let (bytes, _) = large(&[LayerGroup::full("full", 4, 4096), LayerGroup::state("state", 28, 311_296)]);
        assert_eq!(bytes, 1_245_184, "19 pages of attention, or four states of a layer");
    }

    #[test]
    fn an_empty_group_costs_nothing() {
        let (bytes, parts) = large(&[LayerGroup::full("a", 4, 4096), LayerGroup::state("none", 0, 99)]);
        assert_eq!((bytes, parts), (4 * 16 * 4096, vec![1, 0]));
    }

    #[test]
    fn any_number_of_layers_has_its_divisors() {
        assert_eq!(divisors(36), [1, 2, 3, 4, 6, 9, 12, 18, 36]);
        assert_eq!(divisors(1), [1]);
        assert_eq!(divisors(u32::MAX).len(), 32);
    }

    #[test]
    fn overflow_is_an_error() {
        assert!(choose(&[LayerGroup::full("a", 1000, u64::MAX / 100)]).is_err());
    }
}
