//! What a context takes, what the driver's pools keep, and how fast memory is copied.

use super::{Costs, Result, head, ns_each, row};
use orlop_alloc::backing::System;
use orlop_alloc::engine::Direct;
use orlop_alloc::engine_support::DeviceOps;
use orlop_alloc::{Allocator, Block, Request};
use orlop_core::ByteSize;
use orlop_cuda::{CudaMemory, CudaOps, DriverAllocator, MemoryPool, PinnedAllocator, caching_allocator};
use orlop_device::{DeviceAllocator, Policy};
use std::process::Command;
use std::sync::Arc;

const MIB: usize = 1 << 20;

/// Returns the memory of the first GPU as `nvidia-smi` prints it.
fn smi() -> String {
    let query =
        ["--query-gpu=name,driver_version,memory.used,memory.free,memory.total", "--format=csv,noheader"];
    let output = Command::new("nvidia-smi").args(query).args(["--id=0"]).output();
    match output {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(error) => format!("no `nvidia-smi`: {error}"),
    }
}

pub(super) fn print_use_before_the_context() {
    println!("nvidia-smi (name, driver, used, free, total) before a context: {}", smi());
}

/// Bytes in use after each step that is no allocation.
pub(super) fn context(costs: &Costs) -> Result<()> {
    let used = || costs.device.memory().map(|memory| memory.total - memory.free);
    println!("nvidia-smi with the context: {}\n", smi());
    head(&["after", "in use by `cuMemGetInfo`, bytes", "MiB more"]);
    let mut before = used()?;
    row("the context", [before.to_string(), String::new()]);
    let mut step = |name: &str| -> Result<()> {
        let after = used()?;
        let more = (after.cast_signed() - before.cast_signed()) as f64 / MIB as f64;
        row(name, [after.to_string(), format!("{more}")]);
        before = after;
        Ok(())
    };
    let stream = costs.device.create_stream()?;
    step("a stream")?;
    let streams =
        (0..32).map(|_| costs.device.create_stream()).collect::<std::result::Result<Vec<_>, _>>()?;
    step("32 more streams")?;
    let ops = CudaOps::new(&costs.device);
    ops.load_kernels()?;
    step("the module of kernels")?;
    let allocator = caching_allocator(&costs.device)?.into_ref();
    let block = allocator.allocate(&Request::new(MIB).stream(stream.id()))?;
    step("a block of 1 MiB")?;
    // SAFETY: the block has these bytes.
    unsafe { ops.fill(block.device_ptr(), &[1; 16], MIB / 16, stream.id()) }?;
    stream.synchronize()?;
    step("a launch")?;
    let pool = DriverAllocator::stream_ordered(&costs.device)?.into_ref();
    drop(pool.allocate(&Request::new(MIB).stream(stream.id()))?);
    step("a pool of the driver with 1 MiB")?;
    drop(pool);
    println!("\n{}\nnvidia-smi: {}", costs.device.memory_use()?, smi());
    drop((block, streams));
    Ok(())
}

/// Bytes that pools keep when the host waits, and what `cuMemAllocAsync` takes from the current one.
pub(super) fn pools(costs: &Costs) -> Result<()> {
    let total = costs.or_quick(256 * MIB, 64 * MIB);
    let stream = costs.device.create_stream()?;
    head(&["release threshold", "reserved before the wait", "after it", "used", "ns per pair"]);
    for threshold in [u64::MAX, 64 << 20, 0] {
        let pool = Arc::new(MemoryPool::new(&costs.device)?);
        pool.set_release_threshold(threshold)?;
        let allocator = DriverAllocator::in_pool(Arc::clone(&pool)).into_ref();
        let pair = || Ok(allocator.allocate(&Request::new(total).stream(stream.id())).map(drop)?);
        pair()?;
        let before = pool.usage()?;
        stream.synchronize()?;
        let after = pool.usage()?;
        let time = ns_each(costs.or_quick(2000, 10), pair)?;
        stream.synchronize()?;
        let bytes = [before.reserved, after.reserved, after.used].map(|bytes| ByteSize(bytes).to_string());
        let name = if threshold == u64::MAX { "all".to_owned() } else { ByteSize(threshold).to_string() };
        row(name, bytes.into_iter().chain([format!("{time:.0}")]));
    }
    let pool = Arc::new(MemoryPool::new(&costs.device)?);
    let current = pool.make_current()?;
    let slice = stream.cudarc().alloc_zeros::<u8>(10 * MIB)?;
    let of_pool = pool.usage()?.used;
    drop(current);
    let other = stream.cudarc().alloc_zeros::<u8>(10 * MIB)?;
    println!(
        "\ncudarc's 10 MiB while the pool is current, and after: {of_pool} B, {} B used",
        pool.usage()?.used
    );
    drop((slice, other));
    stream.synchronize()?;
    println!("With both freed: {} B used, {} B reserved", pool.usage()?.used, pool.usage()?.reserved);
    Ok(())
}

/// GB/s of `Block::copy_by` between the host's memory and the device's.
pub(super) fn copies(costs: &Costs) -> Result<()> {
    let bytes = costs.or_quick(256 * MIB, 8 * MIB);
    let rounds = costs.or_quick(4, 1);
    let stream = costs.device.create_stream()?;
    let ops = CudaOps::new(&costs.device);
    let pages = caching_allocator(&costs.device)?.into_ref().erase();
    let memory = CudaMemory::managed(&costs.device)?;
    let managed = DeviceAllocator::new(memory, Policy::orlop_without_pages()).into_ref().erase();
    let regions = DriverAllocator::direct(&costs.device).into_ref().erase();
    let pinned = PinnedAllocator::new(&costs.device).into_ref();
    let pageable = Direct::new(System::new()).into_ref();
    let host = |is_pinned: bool| -> Result<Block> {
        let mut block = if is_pinned {
            pinned.allocate(&Request::new(bytes))?
        } else {
            pageable.allocate(&Request::new(bytes))?
        };
        block.bytes_mut()?.fill(3);
        Ok(block)
    };
    println!("GB/s of {} by `Block::copy_by`, the host waits for each\n", ByteSize(bytes as u64));
    head(&["device memory", "host memory", "to the device", "to the host"]);
    for (name, allocator) in [("pages", &pages), ("`cuMemAlloc`", &regions), ("managed", &managed)] {
        for is_pinned in [true, false] {
            let mut there = allocator.allocate(&Request::new(bytes).stream(stream.id()))?;
            let mut here = host(is_pinned)?;
            let rate = |ns: f64| format!("{:.1}", bytes as f64 / ns);
            let mut to = || -> Result<()> {
                there.copy_by(&ops, &here, stream.id())?;
                Ok(stream.synchronize()?)
            };
            to()?;
            let up = ns_each(rounds, to)?;
            let mut from = || -> Result<()> {
                here.copy_by(&ops, &there, stream.id())?;
                Ok(stream.synchronize()?)
            };
            from()?;
            let down = ns_each(rounds, from)?;
            row(name, [if is_pinned { "pinned" } else { "pageable" }.to_owned(), rate(up), rate(down)]);
            let wrong = here.bytes()?.iter().filter(|byte| **byte != 3).count();
            if wrong > 0 {
                return Err(format!("{wrong} wrong bytes").into());
            }
        }
    }
    println!();
    head(&["on the device", "GB/s read and written"]);
    let [mut to, from] = [
        pages.allocate(&Request::new(bytes).stream(stream.id()))?,
        pages.allocate(&Request::new(bytes).stream(stream.id()))?,
    ];
    let ns = ns_each(rounds, || {
        to.copy_by(&ops, &from, stream.id())?;
        Ok(stream.synchronize()?)
    })?;
    row("a copy of pages", [format!("{:.0}", 2.0 * bytes as f64 / ns)]);
    Ok(())
}
