//! An engine in the middle of a run: with the segments that a snapshot shows, over a device that is addresses only.

use super::backing::DeviceBacking;
use super::chunks::{Chunk, NONE, State};
use super::engine::{DeviceBlock, Engine, LARGE, SMALL};
use super::inspect::{DeviceSegment, PieceState};
use super::null::NullDevice;
use super::pool::Region;
use std::collections::HashMap;

impl Engine<NullDevice> {
    /// Takes segments over as they are, and says which block begins where. Call it before anything else is asked.
    ///
    /// Pieces that wait for a stream are taken for free. Ranges that grow in place come without the addresses around
    /// them. Segments whose pieces do not cover them are left out.
    ///
    /// # Returns
    ///
    /// The blocks, by address.
    pub fn restore(&mut self, segments: &[DeviceSegment]) -> HashMap<usize, DeviceBlock> {
        let mut blocks = HashMap::new();
        for segment in segments {
            self.restore_one(segment, &mut blocks);
        }
        blocks
    }

    fn restore_one(&mut self, segment: &DeviceSegment, blocks: &mut HashMap<usize, DeviceBlock>) {
        let DeviceSegment { address, bytes, stream, small, expandable, .. } = *segment;
        let covered = segment.pieces.iter().try_fold(address, |at, piece| {
            if piece.address == at && piece.bytes > 0 { at.checked_add(piece.bytes) } else { None }
        });
        if covered.is_none() || covered != address.checked_add(bytes) || !self.backing.hold(address, bytes) {
            return;
        }
        let (stream, pool) = (self.streams.number(stream), if small { SMALL } else { LARGE });
        let page = expandable.then(|| self.page(pool)).filter(|page| bytes.is_multiple_of(*page));
        let Some(region) = self.regions.insert(Region { address, bytes, first: NONE, page, stream, pool })
        else {
            return;
        };
        if page.is_none() {
            self.stats.segment.add(small, 1);
        }
        self.stats.reserved_bytes.add(small, bytes as u64);
        let mut previous = NONE;
        let mut free = Vec::new();
        for piece in &segment.pieces {
            let chunk = Chunk {
                address: piece.address,
                size: piece.bytes,
                requested: piece.requested,
                previous,
                next: NONE,
                region,
                pool,
                stream,
                state: State::Live,
                events: 0,
                note: 0,
                before: NONE,
                after: NONE,
            };
            let Some(index) = self.chunks.insert(chunk) else { return };
            match previous {
                NONE => self.regions.begins(region, index),
                previous => self.chunks[previous].next = index,
            }
            previous = index;
            if piece.state == PieceState::Live {
                self.reuse(index, piece.requested);
                blocks.insert(piece.address, DeviceBlock(index));
            } else {
                free.push(index);
            }
        }
        for index in free {
            // Taken in by the one before it, if both are free.
            if self.chunks[index].state == State::Live {
                self.insert_free(index);
            }
        }
        debug_assert!(self.backing.memory() > 0);
    }
}
