//! The orders in which buffers are placed.

use crate::Problem;
use crate::normal::{Normal, SectionSpan, to_index};

/// A key by which buffers are ordered, the largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum OrderKey {
    /// The maximum load during the buffer's lifetime.
    Load,
    /// The length of its lifetime.
    Width,
    /// The length of its lifetime times its size.
    Area,
    /// Its size.
    Size,
    /// Its size if it is live at the peak, otherwise 0.
    PeakSize,
    /// How early it begins.
    Start,
}

/// An order of buffers: by the first key, then by the next. Buffers with equal keys keep the order of the
/// problem.
pub(crate) type BufferOrder = [OrderKey; 3];

/// The maximum load of any range of sections.
#[derive(Debug)]
struct MaxLoad {
    /// A tree: node 1 is the root, the children of `n` are `2n` and `2n + 1`, the second half are the leaves.
    nodes: Vec<u64>,
}

impl MaxLoad {
    fn new(load: &[u64]) -> Self {
        let mut nodes = vec![0; load.len()];
        nodes.extend_from_slice(load);
        for node in (1..load.len()).rev() {
            nodes[node] = nodes[2 * node].max(nodes[2 * node + 1]);
        }
        Self { nodes }
    }

    fn of(&self, sections: std::ops::Range<u32>) -> u64 {
        let leaves = self.nodes.len() / 2;
        let (mut low, mut high) = (leaves + sections.start as usize, leaves + sections.end as usize);
        let mut max = 0;
        while low < high {
            if low % 2 == 1 {
                max = max.max(self.nodes[low]);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                max = max.max(self.nodes[high]);
            }
            low /= 2;
            high /= 2;
        }
        max
    }
}

/// The keys of every span.
#[derive(Debug)]
pub(crate) struct Keys<'a> {
    normal: &'a Normal,
    problem: &'a Problem,
    max_load: MaxLoad,
    /// The first section with the maximum load.
    peak: u32,
}

impl<'a> Keys<'a> {
    pub(crate) fn new(problem: &'a Problem, normal: &'a Normal) -> Self {
        let max_load = MaxLoad::new(&normal.load);
        let highest = normal.load.iter().copied().max();
        let peak = (0..).zip(&normal.load).find(|(_, load)| Some(**load) == highest);
        Self { normal, problem, max_load, peak: peak.map_or(0, |(section, _)| section) }
    }

    /// Returns the problem, whose buffers the spans are.
    pub(crate) fn problem(&self) -> &'a Problem {
        self.problem
    }

    /// Returns the first section with the maximum load.
    pub(crate) fn peak(&self) -> u32 {
        self.peak
    }

    /// Returns the length of a span's lifetime.
    pub(crate) fn width(&self, number: usize) -> u64 {
        let buffer = &self.problem.buffers()[self.normal.spans[number].index as usize];
        buffer.end - buffer.start
    }

    /// Returns the spans from this one on whose lifetimes begin at the same time.
    pub(crate) fn same_start(&self, number: usize) -> std::ops::Range<u32> {
        let buffer = |span: &SectionSpan| &self.problem.buffers()[span.index as usize];
        let spans = &self.normal.spans[number..];
        let start = buffer(&spans[0]).start;
        // Spans are in order of their starts.
        let same = spans.partition_point(|span| buffer(span).start == start);
        let first = to_index(number);
        first..first + to_index(same)
    }

    /// Returns the value of a key. Areas saturate at 64 bits.
    pub(crate) fn value(&self, key: OrderKey, number: usize) -> u64 {
        let span = &self.normal.spans[number];
        match key {
            OrderKey::Load => self.max_load.of(span.first..span.behind),
            OrderKey::Width => self.width(number),
            OrderKey::Area => self.width(number).saturating_mul(span.size),
            OrderKey::Size => span.size,
            OrderKey::PeakSize if span.first <= self.peak && self.peak < span.behind => span.size,
            OrderKey::PeakSize => 0,
            OrderKey::Start => u64::from(u32::MAX - span.first),
        }
    }

    /// Returns the indices of the spans in an order.
    pub(crate) fn sorted(&self, order: &BufferOrder) -> Vec<u32> {
        let mut numbers: Vec<u32> = (0..).take(self.normal.spans.len()).collect();
        numbers.sort_by_cached_key(|&number| {
            let number = number as usize;
            (order.map(|key| std::cmp::Reverse(self.value(key, number))), self.normal.spans[number].index)
        });
        numbers
    }
}

/// Returns the rank of each span in an order.
pub(crate) fn ranks(sorted: &[u32]) -> Vec<u32> {
    let mut ranks = vec![0; sorted.len()];
    for (rank, &number) in (0..).zip(sorted) {
        ranks[number as usize] = rank;
    }
    ranks
}
