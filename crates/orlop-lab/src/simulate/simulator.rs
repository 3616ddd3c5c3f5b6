//! The simulator: the replay's interface to the engines, with blocks by their number in the workload.

use super::completion_queue::CompletionQueue;
use super::folded_streams::FoldedStreams;
use super::rules::AllocatorRules;
use orlop_alloc::backing::Null;
use orlop_alloc::bfc::{Bfc, BfcPolicy};
use orlop_alloc::{Allocator, AllocatorRef, Block, Error, Request};
use orlop_core::{Device, MemoryKind, StreamId};
use orlop_device::{DeviceBlock, DeviceError, DeviceRequest, Engine, NullDevice, PoolId, StreamFilter};
use orlop_trace::history::WorkBlock;

/// The memory of an unlimited device in bytes: an address space has room for thousands of them.
pub(crate) const UNLIMITED: u64 = 1 << 46;

/// The statistics of a simulated engine.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SimulatorStats {
    pub(super) reserved: u64,
    pub(super) peak_reserved: u64,
    pub(super) retries: u64,
    pub(super) remapped: u64,
    pub(super) steals: u64,
    pub(super) stream_waits: u64,
    /// Allocations from the device.
    pub(super) device_allocations: u64,
    /// Requests and uses of streams that are not distinguished.
    pub(super) folded: u64,
}

/// Why a request failed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shortage {
    pub(super) reserved: u64,
    pub(super) cached: u64,
    pub(super) largest_free: u64,
}

#[expect(clippy::large_enum_variant, reason = "there is one for each replay")]
pub(super) enum Simulator {
    Device {
        engine: Engine<NullDevice>,
        streams: FoldedStreams,
        blocks: Vec<Option<DeviceBlock>>,
        completions: CompletionQueue<u32>,
    },
    Bfc {
        allocator: AllocatorRef,
        blocks: Vec<Option<Block>>,
    },
}

/// The amount of memory available to a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryCapacity {
    pub(crate) bytes: u64,
    /// Whether this limits the process, and the device has more.
    pub(crate) of_process: bool,
}

impl MemoryCapacity {
    pub(crate) const UNLIMITED: Self = Self { bytes: UNLIMITED, of_process: false };

    /// The capacity of a device of `bytes` bytes.
    pub(crate) fn of_device(bytes: u64) -> Self {
        Self { bytes: bytes.min(UNLIMITED), of_process: false }
    }
}

impl Simulator {
    pub(super) fn new(rules: &AllocatorRules, capacity: MemoryCapacity, blocks: usize) -> Self {
        let memory = capacity.bytes;
        match rules.policy() {
            Some(policy) => {
                // The limit of a process is a fraction of its device, and replaces other fractions.
                let is_share =
                    capacity.of_process && memory < UNLIMITED && matches!(rules, AllocatorRules::Torch(_));
                let device =
                    NullDevice::like_cuda(Device::cuda(0), if is_share { 2 * memory } else { memory });
                let mut engine = Engine::new(device, policy);
                if is_share {
                    engine.set_memory_fraction(0.5);
                }
                Self::Device {
                    engine,
                    streams: FoldedStreams::default(),
                    blocks: vec![None; blocks],
                    completions: CompletionQueue::default(),
                }
            }
            None => {
                let limit = usize::try_from(memory).unwrap_or(usize::MAX);
                let backing = Null::with_limit(Device::CPU, memory);
                let allocator = Bfc::builder(backing)
                    .policy(BfcPolicy::tensorflow())
                    .limit(limit)
                    .build()
                    .into_ref()
                    .erase();
                Self::Bfc { allocator, blocks: (0..blocks).map(|_| None).collect() }
            }
        }
    }

    #[inline]
    pub(super) fn allocate(&mut self, id: u32, block: &WorkBlock) -> Result<(), Shortage> {
        let index = id as usize;
        // A size beyond the address space fails like any other that is too large.
        let bytes = usize::try_from(block.bytes).unwrap_or(usize::MAX);
        match self {
            Self::Device { engine, streams, blocks, .. } => {
                let stream = streams.fold(block.stream);
                let long_lived = block.kind == MemoryKind::Persistent;
                let request = DeviceRequest { long_lived, ..DeviceRequest::new(bytes, stream) };
                let allocated = allocate_from(engine, request, block.pool);
                *at(blocks, index) = Some(allocated.map_err(|error| shortage(&error))?);
            }
            Self::Bfc { allocator, blocks } => {
                let allocated = allocator.allocate(&Request::new(bytes.max(1)));
                *at(blocks, index) = Some(allocated.map_err(|error| match error {
                    Error::OutOfMemory(report) => Shortage {
                        reserved: report.reserved,
                        cached: report.free,
                        largest_free: report.largest_free,
                    },
                    _ => Shortage::default(),
                })?);
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn free(&mut self, id: u32) {
        let index = id as usize;
        match self {
            Self::Device { engine, blocks, .. } => {
                if let Some(block) = blocks[index].take() {
                    // The block is live: it was kept since its allocation.
                    let freed = engine.free(block);
                    debug_assert!(freed.is_ok());
                }
            }
            Self::Bfc { blocks, .. } => blocks[index] = None,
        }
    }

    /// Frees a block that stays pending until it is [completed](Self::complete). Engines without streams free
    /// it at once.
    pub(super) fn free_later(&mut self, id: u32) {
        match self {
            Self::Device { engine, blocks, completions, .. } => {
                if let Some(block) = blocks[id as usize].take() {
                    completions.free_later(engine, id, block);
                }
            }
            Self::Bfc { .. } => self.free(id),
        }
    }

    /// Completes a pending free.
    pub(super) fn complete(&mut self, id: u32) {
        if let Self::Device { engine, completions, .. } = self {
            completions.complete(engine, id);
        }
    }

    /// Releases all cached memory, as the program requested.
    pub(super) fn empty_cache(&mut self) {
        match self {
            Self::Device { engine, .. } => {
                let emptied = engine.empty_cache();
                debug_assert!(emptied.is_ok(), "a simulated device does not fail");
            }
            Self::Bfc { allocator, .. } => {
                let _released = allocator.trim(0);
            }
        }
    }

    /// Completes all pending frees.
    pub(super) fn complete_all(&mut self) {
        if let Self::Device { engine, completions, .. } = self {
            completions.complete_all(engine);
        }
    }

    #[inline]
    pub(super) fn record_stream(&mut self, id: u32, stream: StreamId) {
        if let Self::Device { engine, streams, blocks, .. } = self
            && let Some(block) = blocks[id as usize]
        {
            let recorded = engine.record_stream(block, streams.fold(stream));
            debug_assert!(recorded.is_ok());
        }
    }

    pub(super) fn stats(&self) -> SimulatorStats {
        match self {
            Self::Device { engine, streams, .. } => {
                let stats = engine.stats();
                SimulatorStats {
                    reserved: stats.reserved_bytes.all.current,
                    peak_reserved: stats.reserved_bytes.all.peak,
                    retries: stats.num_alloc_retries,
                    remapped: stats.remapped_bytes,
                    steals: stats.num_stream_steals,
                    stream_waits: stats.num_stream_waits,
                    device_allocations: stats.num_device_alloc,
                    folded: streams.folded(),
                }
            }
            Self::Bfc { allocator, .. } => {
                let usage = allocator.stats().usage;
                SimulatorStats {
                    reserved: usage.reserved,
                    peak_reserved: usage.peak_reserved,
                    ..SimulatorStats::default()
                }
            }
        }
    }
}

/// Allocates from a private pool, or from the default pool.
#[inline]
pub(super) fn allocate_from(
    engine: &mut Engine<NullDevice>,
    request: DeviceRequest,
    pool: PoolId,
) -> Result<DeviceBlock, DeviceError> {
    if pool == (0, 0) {
        return engine.allocate(request);
    }
    engine.begin_allocate_to_pool(pool, StreamFilter::All)?;
    let block = engine.allocate(request);
    engine.end_allocate_to_pool(pool)?;
    block
}

/// Returns the entry of a block, extending the table if necessary.
#[inline]
fn at<T>(blocks: &mut Vec<Option<T>>, index: usize) -> &mut Option<T> {
    if index >= blocks.len() {
        blocks.resize_with(index + 1, || None);
    }
    &mut blocks[index]
}

fn shortage(error: &DeviceError) -> Shortage {
    match *error {
        DeviceError::OutOfMemory { reserved, cached, largest_free, .. } => {
            Shortage { reserved, cached, largest_free }
        }
        _ => Shortage::default(),
    }
}
