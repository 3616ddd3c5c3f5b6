//! A device that is filled until a request fails.

use super::{Costs, Result, timed};
use orlop_alloc::{Allocator, Error, Request};
use orlop_core::ByteSize;
use orlop_cuda::{caching_allocator, caching_allocator_with};
use orlop_device::{Policy, TorchConf};

const MIB: usize = 1 << 20;

/// Fills the device with blocks of 1 GiB beside a neighbour that has cached some, prints the error, frees
/// half, and goes on.
pub(super) fn exhaustion(costs: &Costs) -> Result<()> {
    let bytes = costs.or_quick(1024 * MIB, 128 * MIB);
    let stream = costs.device.create_stream()?;
    for (name, policy) in
        [("Policy::orlop", Policy::orlop()), ("Policy::torch", Policy::torch(&TorchConf::default()))]
    {
        println!("### {name}\n");
        let neighbour = caching_allocator(&costs.device)?.into_ref();
        let kept = neighbour.allocate(&Request::new(bytes / 4).stream(stream.id()))?;
        drop(neighbour.allocate(&Request::new(2 * bytes).stream(stream.id()))?);
        let allocator = caching_allocator_with(&costs.device, policy)?.into_ref();
        println!("{}", costs.device.memory_use()?);
        let request = Request::new(bytes).stream(stream.id());
        let mut blocks = Vec::new();
        let (time, refused) = timed(|| {
            Ok(loop {
                match allocator.allocate(&request) {
                    Ok(block) => blocks.push(block),
                    Err(error) => break error,
                }
            })
        })?;
        println!("{} blocks of {} in {time:.0} ms, then:\n", blocks.len(), ByteSize(bytes as u64));
        println!("```text\n{refused}\n```\n");
        if !matches!(refused, Error::OutOfMemory(_)) {
            return Err("it is no out-of-memory error".into());
        }
        println!("{}", costs.device.memory_use()?);
        println!("The neighbour has {} left, {} of them live.", neighbour.usage().reserved, kept.len());
        let half = blocks.len() / 2;
        blocks.truncate(half);
        let (time, block) = timed(|| Ok(allocator.allocate(&request)?))?;
        println!("With half of them freed, a block in {time:.3} ms.");
        drop((block, blocks));
        let (time, freed) = timed(|| Ok(allocator.trim(0)))?;
        println!("Trimmed {} in {time:.0} ms. {}\n", ByteSize(freed), costs.device.memory_use()?);
    }
    Ok(())
}
