//! Whether the engine does what the allocator did that was recorded: the same addresses, from the recorded state on.
//!
//! A replay by PyTorch's rules is worth what this says.

use super::streams::Streams;
use crate::history::{Action, BlockState, DeviceHistory, Segment};
use orlop_alloc::device::{
    Ask, DeviceBlock, DevicePiece, DeviceSegment, Engine, NullDevice, PieceState, Policy, PoolId, TorchConf,
};
use orlop_core::Device;
use serde::Serialize;
use std::collections::HashMap;

/// How many recorded addresses the engine gave, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Fidelity {
    /// Allocations in the trace.
    pub allocations: u64,
    /// Those that have the address that was recorded.
    pub same: u64,
    /// The first event whose address is another.
    pub first_difference: Option<usize>,
    /// Blocks whose free was completed though nothing says that it was requested. They are freed there, as in a
    /// [`Workload`](crate::history::Workload); when they were given back in the recorded run is not known.
    pub unrequested: u64,
}

impl Fidelity {
    /// Whether this is asked of a recording with reason: there are segments to begin with, and they can be PyTorch's. Its
    /// snapshots do not tell of threads; recordings of orlop's allocators do, and a profiler's, of which no segment is
    /// known.
    #[must_use]
    pub fn is_told_by(history: &DeviceHistory) -> bool {
        !history.start.is_empty() && history.events.iter().all(|event| event.thread == 0)
    }

    /// Replays a device's events by PyTorch's rules, from the segments at the start on. Nothing is set right in between:
    /// one difference leads to more. What a region gained in the trace is called is taken from the trace.
    #[must_use]
    pub fn of(history: &DeviceHistory, conf: &TorchConf) -> Self {
        let device = NullDevice::new(Device::cuda(0), super::machine::UNLIMITED);
        let mut engine = Engine::new(device, Policy::torch(conf));
        let mut streams = Streams::default();
        let segments: Vec<DeviceSegment> =
            history.start.iter().filter_map(|told| segment(told, &mut streams)).collect();
        let restored = engine.restore(&segments);
        let mut blocks: HashMap<u64, DeviceBlock> =
            restored.into_iter().map(|(at, block)| (at as u64, block)).collect();
        for event in history.events.iter().filter(|event| event.action == Action::RegionGained) {
            if let (Ok(address), Ok(bytes)) = (usize::try_from(event.address), usize::try_from(event.bytes)) {
                engine.backing().expect(address, bytes);
            }
        }
        let mut fidelity = Self::default();
        for (place, event) in history.events.iter().enumerate() {
            match event.action {
                Action::Allocate => {
                    fidelity.allocations += 1;
                    let bytes = usize::try_from(event.bytes).unwrap_or(usize::MAX);
                    let pool = history.detail(place).map_or((0, 0), |detail| detail.pool);
                    let got = allocate(&mut engine, Ask::new(bytes, streams.fold(event.stream)), pool);
                    let address = got.map(|block| engine.address(block) as u64);
                    if address == Some(event.address) {
                        fidelity.same += 1;
                    } else {
                        fidelity.first_difference.get_or_insert(place);
                    }
                    if let Some(before) = got.and_then(|block| blocks.insert(event.address, block)) {
                        // A block that the trace never frees, and whose place it gives away.
                        let _freed = engine.free(before);
                    }
                }
                Action::Use => {
                    if let Some(&block) = blocks.get(&event.address) {
                        let _noted = engine.record_stream(block, streams.fold(event.stream));
                    }
                }
                Action::FreeRequested => {
                    if let Some(block) = blocks.remove(&event.address) {
                        let _freed = engine.free(block);
                    }
                }
                // After a request it finds nothing: the block went then.
                Action::FreeCompleted => {
                    if let Some(block) = blocks.remove(&event.address) {
                        let _freed = engine.free(block);
                        fidelity.unrequested += 1;
                    }
                }
                _ => {}
            }
        }
        fidelity
    }
}

/// A block from the pool that the recorded one came from.
fn allocate(engine: &mut Engine<NullDevice>, ask: Ask, pool: PoolId) -> Option<DeviceBlock> {
    if pool == (0, 0) {
        return engine.allocate(ask).ok();
    }
    engine.begin_allocate_to_pool(pool, Box::new(|_| true)).ok()?;
    let got = engine.allocate(ask).ok();
    engine.end_allocate_to_pool(pool).ok()?;
    got
}

fn segment(segment: &Segment, streams: &mut Streams) -> Option<DeviceSegment> {
    let pieces = segment.blocks.iter().map(|block| {
        Some(DevicePiece {
            address: usize::try_from(block.address).ok()?,
            bytes: usize::try_from(block.bytes).ok()?,
            requested: usize::try_from(block.requested).ok()?,
            state: match block.state {
                BlockState::Live => PieceState::Live,
                BlockState::Pending => PieceState::Pending,
                BlockState::Free => PieceState::Free,
            },
        })
    });
    Some(DeviceSegment {
        address: usize::try_from(segment.address).ok()?,
        bytes: usize::try_from(segment.bytes).ok()?,
        stream: streams.fold(segment.stream),
        small: segment.small,
        expandable: segment.expandable,
        pool: segment.pool,
        pieces: pieces.collect::<Option<_>>()?,
    })
}
