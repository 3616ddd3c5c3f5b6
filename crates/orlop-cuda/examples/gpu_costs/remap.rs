//! What the caching allocator's own paths cost: growth, and moving pages between free pieces and streams.

use super::{Costs, Result, head, row, timed};
use orlop_alloc::{Allocator, Block, Request};
use orlop_core::ByteSize;
use orlop_cuda::caching_allocator;

const MIB: usize = 1 << 20;

/// Milliseconds of a large request in several states of the allocator.
pub(super) fn remap(costs: &Costs) -> Result<()> {
    let total = costs.or_quick(1024 * MIB, 128 * MIB);
    let streams = [costs.device.create_stream()?, costs.device.create_stream()?];
    println!("Milliseconds of a request for {} to `Policy::orlop`\n", ByteSize(total as u64));
    head(&["what it finds", "ms", "moved", "allocations of the device"]);
    for piece in [2 * MIB, 20 * MIB, 32 * MIB, 128 * MIB] {
        let name = ByteSize(piece as u64);
        let allocator = caching_allocator(&costs.device)?.into_ref();
        let on = |which: usize, bytes: usize| -> Result<Block> {
            Ok(allocator.allocate(&Request::new(bytes).stream(streams[which].id()))?)
        };
        let measured = |what: String, which: usize| -> Result<()> {
            let before = allocator.device_stats();
            let (time, block) = timed(|| on(which, total))?;
            let after = allocator.device_stats();
            drop(block);
            let moved = after.remapped_bytes - before.remapped_bytes;
            let taken = after.num_device_alloc - before.num_device_alloc;
            row(what, [format!("{time:.2}"), ByteSize(moved).to_string(), taken.to_string()]);
            streams.iter().try_for_each(orlop_cuda::DeviceStream::synchronize)?;
            Ok(())
        };
        measured("nothing".to_owned(), 0)?;
        measured("a free block".to_owned(), 0)?;
        measured("a free block of another stream".to_owned(), 1)?;
        allocator.trim(0);
        let count = total.div_ceil(piece);
        drop((0..count).map(|_| on(0, piece)).collect::<Result<Vec<_>>>()?);
        measured(format!("free pieces of {name}, side by side"), 0)?;
        allocator.trim(0);
        drop((0..count).map(|_| on(0, piece)).collect::<Result<Vec<_>>>()?);
        measured(format!("free pieces of {name}, of another stream"), 1)?;
        allocator.trim(0);
        let pairs = (0..count).map(|_| Ok((on(0, piece)?, on(0, piece)?))).collect::<Result<Vec<_>>>()?;
        let (freed, kept): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        drop(freed);
        measured(format!("free pieces of {name} between live ones"), 0)?;
        drop(kept);
    }
    Ok(())
}
