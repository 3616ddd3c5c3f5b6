//! Random segments as in a snapshot.

use super::random::Random;
use orlop_core::StreamId;
use orlop_device::{DeviceChunk, DeviceChunkState, DeviceSegment};

/// The address of the first segment.
const START: usize = 0x7f00_0000_0000;

/// Segments are adjacent, or at least this number of bytes apart.
const STEP: usize = 2 << 20;

/// Returns segments that PyTorch's allocator may have, some of them `expandable` if that is set.
#[must_use]
pub fn possible(random: &mut Random, expandable: bool) -> Vec<DeviceSegment> {
    let mut at = START;
    let count = 1 + random.below(6);
    (0..count)
        .map(|_| {
            let expandable = expandable && !random.one_in(4);
            let segment = segment(random, at, expandable);
            at += segment.bytes + STEP * random.below(3);
            segment
        })
        .collect()
}

fn segment(random: &mut Random, address: usize, expandable: bool) -> DeviceSegment {
    let small = random.one_in(2);
    let bytes = if small { STEP } else { STEP * (1 + random.below(60)) };
    let mut chunks: Vec<DeviceChunk> = Vec::new();
    let (mut at, end) = (address, address + bytes);
    while at < end {
        let left = end - at;
        let part = random.below(left) / 512 * 512;
        let bytes = if part == 0 || random.one_in(4) { left } else { part };
        let was_free = chunks.last().is_some_and(|chunk| chunk.state != DeviceChunkState::Live);
        let state = match random.below(6) {
            0 if !was_free => DeviceChunkState::Pending,
            1 | 2 if !was_free => DeviceChunkState::Free,
            _ => DeviceChunkState::Live,
        };
        let requested = bytes - random.below(bytes.min(500));
        chunks.push(DeviceChunk { address: at, bytes, requested, state });
        at += bytes;
    }
    let stream = StreamId::from_raw(random.below(2) as u64);
    let pool = if random.one_in(5) { (1, 2) } else { (0, 0) };
    DeviceSegment { address, bytes, stream, small, expandable, pool, chunks }
}

/// Returns such segments with a few fields changed, so that they may be invalid.
#[must_use]
pub fn changed(random: &mut Random, expandable: bool) -> Vec<DeviceSegment> {
    let mut segments = possible(random, expandable);
    for _ in 0..1 + random.below(3) {
        let place = random.below(segments.len());
        let segment = &mut segments[place];
        let chunk = random.below(segment.chunks.len());
        let to = random.pick(&[0, 1, 512, STEP, START, usize::MAX / 2, usize::MAX]).unwrap_or(0);
        match random.below(8) {
            0 => segment.address = to,
            1 => segment.bytes = to,
            2 => segment.chunks[chunk].address = to,
            3 => segment.chunks[chunk].bytes = to,
            4 => segment.chunks[chunk].requested = to,
            5 => segment.pool = (to as u64, 7),
            6 => {
                let twice = segment.clone();
                segments.push(twice);
            }
            _ => {
                // Moves all of it, perhaps onto another one, or to where there is no memory.
                let at = START.wrapping_add(STEP / 4 * random.below(40)).max(to / 2);
                for chunk in &mut segment.chunks {
                    chunk.address = chunk.address.wrapping_sub(segment.address).wrapping_add(at);
                }
                segment.address = at;
            }
        }
        if segments.iter().any(|segment| segment.chunks.is_empty()) {
            break;
        }
    }
    segments
}
