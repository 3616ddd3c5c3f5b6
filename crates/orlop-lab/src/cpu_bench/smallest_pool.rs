//! The smallest fixed pool for a trace: a measure of fragmentation without the influence of a growth policy.
//!
//! It is found by bisection: each candidate is a pool in which the whole trace is replayed. Whether a trace
//! fits is not monotone in the size of the pool: the position of a block depends on the free memory behind
//! it, and a trace may fit into a pool and not into a slightly larger one. So the result is a size that *was
//! replayed and works* while the next smaller one does not; smaller sizes may work.

use super::{Replay, ReplayReport, TouchPattern};
use crate::{LabError, Result};
use orlop_alloc::{Allocator as _, AllocatorRef};
use orlop_trace::formats::text::Trace;

/// Candidates are multiples of this: the granularity of the engines of pools.
const STEP: usize = 256;

/// The first candidate as a multiple of the live peak. It is doubled until it works.
const FIRST_TIMES: usize = 4;

/// The largest candidate as a multiple of the live peak.
const MAX_TIMES: usize = 64;

/// A pool is enlarged by this fraction until several threads fit into it together.
const ENLARGE_FRACTION: usize = 16;

/// A pool that fits a trace, while one of 256 bytes less does not.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct SmallestPool {
    /// Its size.
    pub bytes: usize,
    /// The trace's live peak.
    pub peak_live: u64,
    /// The number of sizes tried.
    pub tried: usize,
}

impl SmallestPool {
    /// Returns the size over the live peak: 1 is perfect, and the result for an empty trace.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.peak_live == 0 { 1.0 } else { self.bytes as f64 / self.peak_live as f64 }
    }
}

/// Finds the smallest pool in which `trace` replays, by one thread. `make` creates an allocator that reserves
/// at most this number of bytes; with [`Null`](orlop_alloc::backing::Null) as backing a search needs no
/// memory.
///
/// ```
/// use orlop_alloc::backing::Null;
/// use orlop_alloc::bfc::{Bfc, BfcPolicy};
/// use orlop_alloc::Allocator;
/// use orlop_core::Device;
/// use orlop_lab::cpu_bench::smallest_pool;
/// use orlop_trace::formats::text::Trace;
///
/// // 512 bytes are free, but not contiguous.
/// let trace = Trace::parse("a,0,256\na,1,256\na,2,256\nf,0\nf,2\na,3,512\n".as_bytes())?;
/// let pool = smallest_pool(&trace, |bytes| {
///     let builder = Bfc::builder(Null::new(Device::CPU)).policy(BfcPolicy::tensorflow_fixed());
///     Ok(builder.limit(bytes).build().into_ref().erase())
/// })?;
/// assert_eq!((pool.peak_live, pool.bytes), (768, 1024));
/// # Ok::<(), orlop_lab::LabError>(())
/// ```
///
/// # Errors
///
/// [`LabError::NoPoolFits`] if 64 times the live peak is not enough; other errors than out of memory.
pub fn smallest_pool(trace: &Trace, make: impl Fn(usize) -> Result<AllocatorRef>) -> Result<SmallestPool> {
    let peak_live = trace.peak().bytes;
    let mut tried = 0;
    let mut fits = |steps: usize| {
        tried += 1;
        let allocator = make(steps.saturating_mul(STEP))?;
        match Replay::new(trace).touch(TouchPattern::None).run(&allocator) {
            Ok(_) => Ok(None),
            Err(error) if error.is_out_of_memory() => Ok(Some(allocator)),
            Err(error) => Err(error),
        }
    };
    // From here on in steps: the sum of the live bytes.
    let min = usize::try_from(peak_live).unwrap_or(usize::MAX).div_ceil(STEP).max(1);
    let mut times = FIRST_TIMES;
    let mut good = min.saturating_mul(times);
    while let Some(full) = fits(good)? {
        if times >= MAX_TIMES {
            let largest = good.saturating_mul(STEP);
            return Err(LabError::NoPoolFits { allocator: full.name().into(), largest, times });
        }
        times *= 2;
        good = min.saturating_mul(times);
    }
    let mut bad = min - 1;
    while good - bad > 1 {
        let middle = bad + (good - bad) / 2;
        if fits(middle)?.is_none() { good = middle } else { bad = middle }
    }
    Ok(SmallestPool { bytes: good * STEP, peak_live, tried })
}

/// Finds the smallest pool with allocators from `search`, then replays in a pool of that size from `make`,
/// with real memory.
///
/// With several threads the pool is that many times larger. If their interleaving needs more, it is enlarged
/// by sixteenths.
///
/// # Errors
///
/// As for [`smallest_pool`] and [`Replay::run`].
pub fn replay_in_smallest_pool(
    replay: &Replay<'_>,
    search: impl Fn(usize) -> Result<AllocatorRef>,
    make: impl Fn(usize) -> Result<AllocatorRef>,
) -> Result<(SmallestPool, ReplayReport)> {
    let pool = smallest_pool(replay.trace(), search)?;
    let threads = replay.thread_count();
    let together = pool.bytes.saturating_mul(threads);
    let more = together / ENLARGE_FRACTION;
    let mut bytes = together;
    loop {
        match replay.run(&make(bytes)?) {
            Err(error) if threads > 1 && error.is_out_of_memory() && bytes / FIRST_TIMES < together => {
                bytes = bytes.saturating_add(more).next_multiple_of(STEP);
            }
            result => return result.map(|report| (pool, report)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_alloc::backing::{Backing, Null, System};
    use orlop_alloc::bfc::{Bfc, BfcPolicy};
    use orlop_alloc::engine::Direct;
    use orlop_core::Device;

    fn fixed<B: Backing + 'static>(backing: B, bytes: usize) -> AllocatorRef {
        Bfc::builder(backing).policy(BfcPolicy::tensorflow_fixed()).limit(bytes).build().into_ref().erase()
    }

    #[expect(clippy::unnecessary_wraps, reason = "a search asks for an allocator that may fail to be made")]
    fn null(bytes: usize) -> Result<AllocatorRef> {
        Ok(fixed(Null::new(Device::CPU), bytes))
    }

    fn trace(text: &str) -> Trace {
        Trace::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn blocks_that_stack_need_no_more_than_their_sum() {
        let pool = smallest_pool(&trace("a,0,256\na,1,512\nf,1\na,2,256\n"), null).unwrap();
        assert_eq!((pool.bytes, pool.peak_live), (768, 768));
        assert!((pool.ratio() - 1.0).abs() < 1e-12);
        assert_eq!(smallest_pool(&trace("a,0,1\n"), null).unwrap().bytes, 256);
        assert_eq!(smallest_pool(&trace("a,0,0\n"), null).unwrap().bytes, 256);
    }

    #[test]
    fn small_blocks_need_many_times_their_bytes() {
        let many: String = (0..100).map(|id| format!("a,{id},8\n")).collect();
        assert_eq!(smallest_pool(&trace(&many), null).unwrap().bytes, 100 * 256);
    }

    #[test]
    fn an_allocator_without_bounds_fits_and_one_without_memory_never_does() {
        let any = |_| Ok(Direct::new(System::new()).into_ref().erase());
        assert_eq!(smallest_pool(&trace("a,0,100\na,1,1000\n"), any).unwrap().bytes, 1280);
        let error = smallest_pool(&trace("a,0,100\n"), |_| null(0)).unwrap_err();
        assert!(matches!(error, LabError::NoPoolFits { times: 64, .. }), "{error}");
    }

    #[test]
    fn threads_get_a_pool_that_holds_them_all() {
        let trace = trace("a,0,256\na,1,256\na,2,256\nf,0\nf,2\na,3,512\nf,1\nf,3\n");
        let real = |bytes| Ok(fixed(System::new(), bytes));
        let replay = Replay::new(&trace).threads(3).repeat(20);
        let (pool, report) = replay_in_smallest_pool(&replay, null, real).unwrap();
        assert_eq!((pool.bytes, report.peak_live), (1024, 3 * 768));
        assert!(report.peak_reserved >= 3 * 1024);
    }
}
