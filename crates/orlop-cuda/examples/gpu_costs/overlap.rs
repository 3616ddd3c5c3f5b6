//! Whether copies overlap with work: batches come on a stream of their own, and are used on another.

use super::{Costs, Result, head, ns_each, row};
use orlop_alloc::engine_support::{DeviceOps, DevicePtr};
use orlop_alloc::{Allocator, Request};
use orlop_core::ByteSize;
use orlop_cuda::{CudaOps, PinnedAllocator, caching_allocator_with};
use orlop_device::{Policy, TorchConf};

const MIB: usize = 1 << 20;

/// Milliseconds of a step that takes a batch to the device and works on it for about as long, and what the
/// allocator reserved. The host runs ahead by `ahead` steps.
pub(super) fn overlap(costs: &Costs) -> Result<()> {
    let batch = costs.or_quick(64 * MIB, MIB);
    let work = costs.or_quick(1536 * MIB, MIB);
    let steps = costs.or_quick(200, 8);
    let unlimited = |mut policy: Policy, steal| {
        policy.extensions.limit_run_ahead = false;
        policy.extensions.steal = steal;
        policy
    };
    let policies = [
        ("`Policy::orlop`", Policy::orlop()),
        ("the same, `limit_run_ahead` off", unlimited(Policy::orlop(), true)),
        ("the same, `steal` off, too", unlimited(Policy::orlop(), false)),
        ("`Policy::torch`", Policy::torch(&TorchConf::default())),
    ];
    let (side, main) = (costs.device.create_stream()?, costs.device.create_stream()?);
    let ops = CudaOps::new(&costs.device);
    let pinned = PinnedAllocator::new(&costs.device).into_ref();
    let host = pinned.allocate(&Request::new(batch))?;
    head(&["allocator", "ahead", "ms a step", "ms of the copy", "ms of the work", "reserved"]);
    for (name, policy) in policies {
        for ahead in [2, 16] {
            let allocator = caching_allocator_with(&costs.device, policy.clone())?.into_ref();
            let large = Request::new(work).stream(main.id());
            let [to, from] = [allocator.allocate(&large)?, allocator.allocate(&large)?];
            let load = || -> Result<_> {
                let there = allocator.allocate(&Request::new(batch).stream(side.id()))?;
                // SAFETY: both have this many bytes; `host` is kept until the streams were waited for.
                unsafe { ops.copy(there.device_ptr(), DevicePtr::kept(host.as_ptr()), batch, side.id()) }?;
                Ok(there)
            };
            let compute = || -> Result<()> {
                // SAFETY: both have this many bytes, and are kept until the streams were waited for.
                Ok(unsafe { ops.copy(to.device_ptr(), from.device_ptr(), work, main.id()) }?)
            };
            let mut done = 0_usize;
            let mut step = || -> Result<()> {
                let there = load()?;
                main.wait_for(side.id())?;
                there.record_stream(main.id())?;
                compute()?;
                drop(there);
                done += 1;
                if done.is_multiple_of(ahead) { Ok(main.synchronize()?) } else { Ok(()) }
            };
            ns_each(16, &mut step)?;
            let whole = ns_each(steps, &mut step)?;
            main.synchronize()?;
            let copies = ns_each(steps, || load().and_then(|_| Ok(side.synchronize()?)))?;
            let works = ns_each(steps, || compute().and_then(|()| Ok(main.synchronize()?)))?;
            let ms = [whole, copies, works].map(|ns| format!("{:.2}", ns / 1e6));
            let reserved = ByteSize(allocator.device_stats().reserved_bytes.all.peak).to_string();
            row(name, [ahead.to_string()].into_iter().chain(ms).chain([reserved]));
        }
    }
    Ok(())
}
