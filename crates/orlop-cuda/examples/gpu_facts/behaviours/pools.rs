//! Whether a request waits for memory whose free is behind pending work, or which a pool has cached.

use super::pending::Pending;
use super::{Facts, Result, answer, head, raw, row, timed};
use cudarc::driver::sys::{CUmemoryPool, CUstream};

/// Who is asked for as much memory as was freed.
#[derive(Clone, Copy)]
enum Source {
    SamePool,
    OtherPool,
    Driver,
}

/// Takes 60 % of the free memory from a pool, frees it on a stream, and asks for as much again.
pub(super) fn pools(facts: &Facts) -> Result<()> {
    let pending = Pending::new(facts, 60.0)?;
    head(&["freed memory of a pool", "threshold", "request to", "answer", "ms", "the stream after it"]);
    for (is_pending, threshold) in [(true, 0), (true, u64::MAX), (false, u64::MAX)] {
        for (name, source) in [
            ("the same pool, another stream", Source::SamePool),
            ("another pool, another stream", Source::OtherPool),
            ("`cuMemAlloc`", Source::Driver),
        ] {
            let streams = [raw::create_stream(raw::NON_BLOCKING)?, raw::create_stream(raw::NON_BLOCKING)?];
            let pools = [raw::create_pool(threshold)?, raw::create_pool(threshold)?];
            let outcome = request(&pending, is_pending, source, streams, pools);
            for pool in pools {
                raw::destroy_pool(pool)?;
            }
            for stream in streams {
                raw::destroy_stream(stream)?;
            }
            let (answer, ms, is_busy) = outcome?;
            let freed = if is_pending { "behind pending work" } else { "complete" };
            let kept = if threshold == 0 { "0" } else { "all" };
            let busy = if is_busy { "busy" } else { "idle" };
            row(freed, [kept, name, &answer, &format!("{ms:.2}"), busy]);
        }
    }
    Ok(())
}

/// Returns the answer to the request, its milliseconds, and whether the first stream was busy after it.
fn request(
    pending: &Pending,
    is_pending: bool,
    source: Source,
    [stream, other]: [CUstream; 2],
    [pool, other_pool]: [CUmemoryPool; 2],
) -> Result<(String, f64, bool)> {
    const PAGE: usize = 2 << 20;
    let bytes = raw::free_memory()? / 5 * 3 / PAGE * PAGE;
    let address = raw::allocate_from(pool, stream, bytes)?;
    raw::synchronize(stream)?;
    pending.start(stream)?;
    raw::free_on(stream, address)?;
    if !is_pending {
        raw::synchronize(stream)?;
    }
    let (ms, outcome) = timed(|| match source {
        Source::SamePool => raw::allocate_from(pool, other, bytes),
        Source::OtherPool => raw::allocate_from(other_pool, other, bytes),
        Source::Driver => raw::allocate(bytes),
    });
    let is_busy = pending.is_busy()?;
    let text = answer(&outcome);
    if let Ok(address) = outcome {
        match source {
            Source::Driver => raw::free(address)?,
            _ => raw::free_on(other, address)?,
        }
    }
    raw::synchronize(stream)?;
    raw::synchronize(other)?;
    Ok((text, ms, is_busy))
}
