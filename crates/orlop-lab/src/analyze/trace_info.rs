//! The description of a plain trace: sizes, lifetimes, peak.

use crate::verdict::{RunVerdict, counted, quoted};
use orlop_core::ByteSize;
use orlop_trace::formats::text::{ReplayStep, Trace};
use serde::Serialize;

/// The description of a trace. Bytes are requested bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TraceInfo {
    /// The number of allocations and frees.
    pub operations: usize,
    /// The number of allocations.
    pub allocations: usize,
    /// The number of frees.
    pub frees: usize,
    /// The number of streams.
    pub streams: usize,
    /// The sum of all allocations in bytes.
    pub allocated_bytes: u64,
    /// The peak of live bytes.
    pub peak_live_bytes: u64,
    /// The peak of live blocks.
    pub peak_live_blocks: usize,
    /// Bytes that are never freed.
    pub end_live_bytes: u64,
    /// Blocks that are never freed.
    pub end_live_blocks: usize,
    /// The median size of allocations.
    pub median_bytes: u64,
    /// The largest allocation.
    pub largest_bytes: u64,
    /// The number of different sizes.
    pub distinct_sizes: usize,
    /// Allocations by size, smallest first; empty ranges are omitted.
    pub sizes: Vec<SizeBucket>,
    /// The lifetimes of freed blocks; `None` if nothing was freed.
    pub lifetimes: Option<Lifetimes>,
}

/// Allocations of similar size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SizeBucket {
    /// The smallest size: 0, or a power of two.
    pub from_bytes: u64,
    /// The largest size: 0, or one less than twice that power.
    pub to_bytes: u64,
    /// The number of allocations.
    pub allocations: usize,
    /// The sum of their bytes.
    pub bytes: u64,
}

/// The lifetimes of freed blocks, in operations from the allocation to the free: 1 is a block that is freed
/// by the next operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Lifetimes {
    /// The shortest.
    pub min: usize,
    /// The 25th percentile.
    pub p25: usize,
    /// The median.
    pub p50: usize,
    /// The 75th percentile.
    pub p75: usize,
    /// The 90th percentile.
    pub p90: usize,
    /// The 99th percentile.
    pub p99: usize,
    /// The longest.
    pub max: usize,
}

impl TraceInfo {
    /// Judges the trace: what it holds, what it never frees, and what to do next. `file` is the trace, as
    /// commands name it.
    #[must_use]
    pub fn verdict(&self, file: &str) -> RunVerdict {
        let (peak, end) = (ByteSize(self.peak_live_bytes), ByteSize(self.end_live_bytes));
        RunVerdict::new(
            format!(
                "The program holds {peak} at its peak, and up to {} at once.",
                counted(self.peak_live_blocks, "block")
            ),
            match self.end_live_blocks {
                0 => "It frees all that it allocates.".to_owned(),
                left => format!("It never frees {end} in {}.", counted(left, "block")),
            },
            format!("orlop replay {} compares CPU allocators on it.", quoted(file)),
        )
    }

    /// Describes `trace`.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let mut sizes = Vec::new();
        let mut lifetimes = Vec::new();
        let mut born = vec![0; trace.slots()];
        for (index, step) in trace.steps().enumerate() {
            match step {
                ReplayStep::Allocate { slot, bytes, .. } => {
                    born[slot] = index;
                    sizes.push(bytes as u64);
                }
                ReplayStep::Free { slot } => lifetimes.push(index - born[slot]),
            }
        }
        sizes.sort_unstable();
        lifetimes.sort_unstable();
        Self {
            operations: trace.len(),
            allocations: sizes.len(),
            frees: lifetimes.len(),
            streams: trace.streams().len(),
            allocated_bytes: sum(&sizes),
            peak_live_bytes: trace.peak().bytes,
            peak_live_blocks: trace.peak().blocks,
            end_live_bytes: trace.live_at_end().bytes,
            end_live_blocks: trace.live_at_end().blocks,
            median_bytes: quantile(&sizes, 50).unwrap_or(0),
            largest_bytes: sizes.last().copied().unwrap_or(0),
            distinct_sizes: sizes.chunk_by(|a, b| a == b).count(),
            sizes: sizes.chunk_by(|&a, &b| class(a) == class(b)).map(bucket).collect(),
            lifetimes: Lifetimes::of(&lifetimes),
        }
    }
}

impl Lifetimes {
    fn of(sorted: &[usize]) -> Option<Self> {
        Some(Self {
            min: *sorted.first()?,
            p25: quantile(sorted, 25)?,
            p50: quantile(sorted, 50)?,
            p75: quantile(sorted, 75)?,
            p90: quantile(sorted, 90)?,
            p99: quantile(sorted, 99)?,
            max: *sorted.last()?,
        })
    }
}

/// Returns the size class: sizes with the same highest bit.
fn class(bytes: u64) -> Option<u32> {
    bytes.checked_ilog2()
}

/// Creates the bucket of sizes of one class; not empty.
fn bucket(sizes: &[u64]) -> SizeBucket {
    let (from_bytes, to_bytes) = match sizes.first().copied().and_then(class) {
        Some(log2) => (1 << log2, u64::MAX >> (u64::BITS - 1 - log2)),
        None => (0, 0),
    };
    SizeBucket { from_bytes, to_bytes, allocations: sizes.len(), bytes: sum(sizes) }
}

/// The sum over a whole trace may exceed 64 bits; then it saturates.
fn sum(sizes: &[u64]) -> u64 {
    sizes.iter().fold(0, |sum, &size| sum.saturating_add(size))
}

/// Returns the smallest value that is not less than `percent` percent of the values (nearest rank).
fn quantile<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let rank = (sorted.len() as u128 * percent as u128).div_ceil(100);
    sorted.get(usize::try_from(rank).ok()?.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_trace_is_described_exactly() {
        let text = "a,0,0\na,1,1\na,2,100\na,3,127\na,4,128\nf,4\nf,0\nf,2\na,5,128,7\n";
        let info = TraceInfo::of(&Trace::parse(text.as_bytes()).unwrap());
        assert_eq!((info.operations, info.allocations, info.frees, info.streams), (9, 6, 3, 2));
        assert_eq!((info.allocated_bytes, info.peak_live_bytes, info.peak_live_blocks), (484, 356, 5));
        assert_eq!((info.end_live_bytes, info.end_live_blocks), (256, 3));
        assert_eq!((info.median_bytes, info.largest_bytes, info.distinct_sizes), (100, 128, 5));
        let buckets: Vec<_> =
            info.sizes.iter().map(|b| (b.from_bytes, b.to_bytes, b.allocations, b.bytes)).collect();
        assert_eq!(buckets, [(0, 0, 1, 0), (1, 1, 1, 1), (64, 127, 2, 227), (128, 255, 2, 256)]);
        assert_eq!(
            info.lifetimes,
            Some(Lifetimes { min: 1, p25: 1, p50: 5, p75: 6, p90: 6, p99: 6, max: 6 })
        );
        let verdict = info.verdict("a b.csv");
        assert_eq!(verdict.finding, "The program holds 356 B at its peak, and up to 5 blocks at once.");
        assert_eq!(verdict.remedy, "It never frees 256 B in 3 blocks.");
        assert_eq!(verdict.next, "orlop replay 'a b.csv' compares CPU allocators on it.");
        let freed = TraceInfo::of(&Trace::parse(&b"a,0,8\nf,0\n"[..]).unwrap()).verdict("a");
        assert_eq!(freed.remedy, "It frees all that it allocates.");
    }

    #[test]
    fn an_empty_history_is_described() {
        let info = TraceInfo::of(&Trace::default());
        assert_eq!((info.operations, info.median_bytes, info.lifetimes), (0, 0, None));
        assert!(info.sizes.is_empty());
    }

    #[test]
    fn buckets_reach_the_largest_size() {
        let bucket = bucket(&[u64::MAX, u64::MAX]);
        assert_eq!((bucket.from_bytes, bucket.to_bytes, bucket.bytes), (1 << 63, u64::MAX, u64::MAX));
    }
}
