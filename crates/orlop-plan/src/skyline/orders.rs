//! The orders in which buffers are placed.

use crate::Problem;
use crate::normal::Normal;

/// A key by which buffers are ordered, the largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OrderKey {
    /// The maximum load during the buffer's lifetime.
    Load,
    /// The length of its lifetime.
    Width,
    /// The length of its lifetime times its size.
    Area,
    /// Its size.
    Size,
}

/// An order of buffers: by the first key, then by the next. Buffers with equal keys keep the order of the
/// problem.
pub type BufferOrder = [OrderKey; 3];

/// The default orders, sorted by the number of problems in `testdata/plan` on which they were best.
pub const ORDERS: [BufferOrder; 6] = [
    [OrderKey::Load, OrderKey::Width, OrderKey::Area],
    [OrderKey::Area, OrderKey::Size, OrderKey::Load],
    [OrderKey::Load, OrderKey::Area, OrderKey::Width],
    [OrderKey::Width, OrderKey::Area, OrderKey::Load],
    [OrderKey::Size, OrderKey::Width, OrderKey::Load],
    [OrderKey::Load, OrderKey::Size, OrderKey::Width],
];

/// The maximum load of any range of sections.
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
pub(super) struct Keys<'a> {
    normal: &'a Normal,
    problem: &'a Problem,
    /// By span.
    loads: Vec<u64>,
}

impl<'a> Keys<'a> {
    pub(super) fn new(problem: &'a Problem, normal: &'a Normal) -> Self {
        let max_load = MaxLoad::new(&normal.load);
        let loads = normal.spans.iter().map(|span| max_load.of(span.first..span.behind)).collect();
        Self { normal, problem, loads }
    }

    /// Returns the value of a key. Areas saturate at 64 bits.
    fn value(&self, key: OrderKey, number: usize) -> u64 {
        let span = &self.normal.spans[number];
        let buffer = &self.problem.buffers()[span.index as usize];
        let width = buffer.end - buffer.start;
        match key {
            OrderKey::Load => self.loads[number],
            OrderKey::Width => width,
            OrderKey::Area => width.saturating_mul(span.size),
            OrderKey::Size => span.size,
        }
    }

    /// Returns the indices of the spans in an order.
    pub(super) fn sorted(&self, order: &BufferOrder) -> Vec<u32> {
        let mut numbers: Vec<u32> = (0..).take(self.normal.spans.len()).collect();
        numbers.sort_by_cached_key(|&number| {
            let number = number as usize;
            (order.map(|key| std::cmp::Reverse(self.value(key, number))), self.normal.spans[number].index)
        });
        numbers
    }
}

/// Returns the rank of each span in an order.
pub(super) fn ranks(sorted: &[u32]) -> Vec<u32> {
    let mut ranks = vec![0; sorted.len()];
    for (rank, &number) in (0..).zip(sorted) {
        ranks[number as usize] = rank;
    }
    ranks
}
