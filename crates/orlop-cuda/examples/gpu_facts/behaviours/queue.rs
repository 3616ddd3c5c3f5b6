//! How many operations a stream takes before a submission waits.

use super::pending::Pending;
use super::{Facts, Result, head, raw, row};
use cudarc::driver::sys::CUstream;
use orlop_alloc::engine_support::DeviceOps;
use orlop_alloc::{Allocator, Request};
use orlop_cuda::{CudaOps, DriverAllocator};
use std::time::Instant;

const MAX: u32 = 20_000;

/// Submits small operations until the work before them has ended.
pub(super) fn queue(facts: &Facts) -> Result<()> {
    let pending = Pending::new(facts, 200.0)?;
    let (stream, ops) = (facts.device.create_stream()?, CudaOps::new(&facts.device));
    let allocator = DriverAllocator::direct(&facts.device).into_ref();
    let block = allocator.allocate(&Request::new(1024).stream(stream.id()))?;
    let (held, address) = (stream.cudarc().cu_stream(), block.as_ptr().as_ptr().addr() as u64);
    ops.load_kernels()?;
    let fill = || raw::fill(address, 1, held);
    // SAFETY: a fill with this pattern is a launch; the block is kept until the stream was waited for.
    let launch = || Ok(unsafe { ops.fill(block.device_ptr(), &[7; 16], 1, stream.id()) }?);
    launch()?;
    stream.synchronize()?;
    let busy = raw::create_stream(raw::NON_BLOCKING)?;
    head(&[
        "operation",
        "behind",
        "first call of more than 0.3 ms",
        "of more than 5 ms",
        "submitted until the work was done (at most 20000)",
        "ms",
    ]);
    type Submit<'a> = &'a dyn Fn() -> Result<()>;
    let rows: [(&str, &str, CUstream, Submit<'_>); 4] = [
        ("`cuMemsetD8Async`", "a wait for another stream", busy, &fill),
        ("a kernel", "a wait for another stream", busy, &launch),
        ("`cuMemsetD8Async`", "copies of the same stream", held, &fill),
        ("a kernel", "copies of the same stream", held, &launch),
    ];
    for (name, behind, works, submit) in rows {
        pending.start(works)?;
        if works != held {
            pending.hold(held)?;
        }
        let (mut first_slow, mut first_blocked, mut submitted) = (None, None, 0);
        let start = Instant::now();
        while submitted < MAX && pending.is_busy()? {
            let before = Instant::now();
            submit()?;
            let ms = before.elapsed().as_secs_f64() * 1e3;
            submitted += 1;
            for (first, limit) in [(&mut first_slow, 0.3), (&mut first_blocked, 5.0)] {
                if ms > limit && first.is_none() {
                    *first = Some(format!("{submitted}: {ms:.2} ms"));
                }
            }
        }
        let ms = start.elapsed().as_secs_f64() * 1e3;
        stream.synchronize()?;
        pending.finish()?;
        let [slow, blocked] =
            [first_slow, first_blocked].map(|first| first.unwrap_or_else(|| "none".to_owned()));
        row(name, [behind.to_owned(), slow, blocked, submitted.to_string(), format!("{ms:.1}")]);
    }
    raw::destroy_stream(busy)
}
