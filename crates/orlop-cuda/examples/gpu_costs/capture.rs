//! A graph that is captured with the allocator inside, and replayed.

use super::{Costs, Result, head, ns_each, row};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use orlop_alloc::engine_support::{DeviceOps, DevicePtr};
use orlop_alloc::{Allocator, Block, Request};
use orlop_core::Device;
use orlop_cuda::{CudaOps, DeviceStream, caching_allocator};
use orlop_device::StreamFilter;
use std::ptr::NonNull;

const BYTES: usize = 4 << 20;

/// Captures a graph that copies its input through a chain of blocks which are freed in the capture, and
/// replays it with other inputs. Counts wrong words. Then the same without a mark.
pub(super) fn capture(costs: &Costs) -> Result<()> {
    let replays = costs.or_quick(100, 5);
    head(&["capture", "replays", "wrong words", "us per replay", "live bytes after it", "in the pool"]);
    for is_marked in [true, false] {
        let ops = CudaOps::new(&costs.device);
        ops.load_kernels()?;
        let (stream, other) = (costs.device.create_stream()?, costs.device.create_stream()?);
        let allocator = caching_allocator(&costs.device)?.into_ref();
        let on = |stream: &DeviceStream| -> Result<Block> {
            Ok(allocator.allocate(&Request::new(BYTES).stream(stream.id()))?)
        };
        let (input, output) = (on(&stream)?, on(&stream)?);
        // Freed in the capture with a use of another stream: its event is recorded after it.
        let used_elsewhere = on(&stream)?;
        used_elsewhere.record_stream(other.id())?;
        if is_marked {
            allocator.begin_allocate_to_pool((7, 1), StreamFilter::only([stream.id()]))?;
        }
        let scope = is_marked.then(|| costs.device.capture_scope());
        stream.cudarc().begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
        let copied = || -> Result<Vec<Block>> {
            let mut kept = Vec::new();
            let mut from = input.device_ptr();
            for _ in 0..8 {
                let next = on(&stream)?;
                // SAFETY: both have these bytes. Without a private pool the blocks are kept with the graph.
                unsafe { ops.copy(next.device_ptr(), from, BYTES, stream.id()) }?;
                from = next.device_ptr();
                kept.push(next);
                if is_marked && kept.len() > 1 {
                    drop(kept.remove(0));
                }
            }
            // SAFETY: as above.
            unsafe { ops.copy(output.device_ptr(), from, BYTES, stream.id()) }?;
            Ok(kept)
        };
        let outcome = copied();
        drop(used_elsewhere);
        let graph = stream.cudarc().end_capture(CUgraphInstantiate_flags(0))?.ok_or("no graph")?;
        drop(scope);
        if is_marked {
            allocator.end_allocate_to_pool((7, 1))?;
        }
        let kept = outcome?;
        let mut wrong = 0;
        for replay in 0..replays {
            let word = 0x5000_0000_u32 + replay;
            // SAFETY: a live block of this stream.
            unsafe { ops.fill(input.device_ptr(), &word.to_le_bytes(), BYTES / 4, stream.id()) }?;
            graph.launch()?;
            // What the allocator gives the stream meanwhile is none of the graph's memory.
            let noise = on(&stream)?;
            // SAFETY: as above.
            unsafe { ops.fill(noise.device_ptr(), &[0xff], BYTES, stream.id()) }?;
            drop(noise);
            let mut found = vec![0_u8; BYTES];
            let to = DevicePtr::new(NonNull::from(found.as_mut_slice()).cast(), Device::CPU);
            // SAFETY: both have these bytes, and are kept until the stream was waited for.
            unsafe { ops.copy(to, output.device_ptr(), BYTES, stream.id()) }?;
            stream.synchronize()?;
            wrong += found.chunks_exact(4).filter(|found| **found != word.to_le_bytes()).count();
        }
        let launch = ns_each(replays, || Ok(graph.launch()?))?;
        stream.synchronize()?;
        let name = if is_marked { "marked, in a private pool" } else { "without a mark, blocks kept" };
        let live = allocator.stats().live();
        let cells = [
            replays.to_string(),
            wrong.to_string(),
            format!("{:.1}", launch / 1e3),
            live.to_string(),
            allocator.usage().reserved.to_string(),
        ];
        row(name, cells);
        drop((graph, kept, input, output));
        if is_marked {
            allocator.release_pool((7, 1))?;
        }
        allocator.trim(0);
        println!(
            "\nAfter both: {} bytes live, {} reserved.\n",
            allocator.stats().live(),
            allocator.usage().reserved
        );
        if wrong > 0 {
            return Err(format!("{wrong} wrong words").into());
        }
    }
    Ok(())
}
