//! Which spans are live together.

use crate::normal::SectionSpan;

/// The number of pairs up to which lists are made: they take 32 MiB.
const MAX_PAIRS: usize = 1 << 21;

/// The number of neighbours of a span, on average, up to which lists are made. With more, each step takes so
/// long that changing an order finds lower plans in the same time.
const MAX_NEIGHBORS: usize = 256;

/// For each span, those that share a section with it.
#[derive(Debug)]
pub(crate) struct Neighbors {
    list: Vec<u32>,
    /// By span, where its part of the list begins; at the end, where the last one ends.
    begin: Vec<u32>,
}

impl Neighbors {
    /// Lists the neighbours of spans that are in order of their first section. `None` if there are too many
    /// pairs.
    pub(crate) fn new(spans: &[SectionSpan]) -> Option<Self> {
        let max_pairs = MAX_PAIRS.min(spans.len() * MAX_NEIGHBORS / 2);
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        for (one, span) in (0..).zip(spans) {
            let after = (one + 1..).zip(&spans[one as usize + 1..]);
            pairs.extend(
                after.take_while(|(_, other)| other.first < span.behind).map(|(other, _)| (one, other)),
            );
            if pairs.len() > max_pairs {
                return None;
            }
        }
        let mut begin = vec![0_u32; spans.len() + 1];
        for &(one, other) in &pairs {
            begin[one as usize + 1] += 1;
            begin[other as usize + 1] += 1;
        }
        for at in 1..begin.len() {
            begin[at] += begin[at - 1];
        }
        let mut next = begin.clone();
        let mut list = vec![0; 2 * pairs.len()];
        for (one, other) in pairs {
            for (of, neighbor) in [(one, other), (other, one)] {
                list[next[of as usize] as usize] = neighbor;
                next[of as usize] += 1;
            }
        }
        Some(Self { list, begin })
    }

    /// Returns the neighbours of a span.
    pub(crate) fn of(&self, span: usize) -> &[u32] {
        &self.list[self.begin[span] as usize..self.begin[span + 1] as usize]
    }
}
