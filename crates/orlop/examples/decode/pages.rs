//! The engine's access to the KV memory, on the host or on a device: entries and states go through pinned
//! staging memory, by the copies of the device.

use super::Result;
use super::math::{attend, scan};
use super::model::{ENTRY, Layer, LayerKind, QKV, STATE, WIDTH, WINDOW};
use bytemuck::{cast_slice, cast_slice_mut};
use orlop::kv::{DeviceTransfer, KvPool, RowRange, Sequence};
use orlop::memory::Block;
use orlop::prelude::*;
use std::ops::Range;

/// The rows of one sequence in a step.
#[derive(Debug, Clone)]
pub(crate) struct BatchPart {
    /// The index of the running sequence.
    pub(crate) index: usize,
    /// The position of the first row.
    pub(crate) first: usize,
    /// The rows in the step.
    pub(crate) rows: Range<usize>,
}

pub(crate) struct Pages {
    transfer: DeviceTransfer,
    staging: Block,
}

impl Pages {
    /// Prepares the access to a pool on this device, for sequences of up to `tokens` tokens.
    pub(crate) fn new(context: &Context, device: Device, tokens: usize) -> Result<Self> {
        let bytes = (tokens * ENTRY).max(STATE) * size_of::<f32>();
        Ok(Self {
            transfer: DeviceTransfer::new(context.ops(device)?, context.stream(device)),
            staging: context.allocate(Device::CPU, &Request::new(bytes).kind(MemoryKind::HostPinned))?,
        })
    }

    /// Returns the bytes of the staging memory.
    pub(crate) fn staging_bytes(&self) -> u64 {
        self.staging.len() as u64
    }

    /// Runs the copies that the open step needs before anything else.
    pub(crate) fn run_copies(&self, pool: &mut KvPool) -> Result<()> {
        Ok(pool.run_copies(&self.transfer)?)
    }

    /// Attends for the rows of one sequence, whose queries, keys and values are in `qkv`.
    pub(crate) fn mix(
        &mut self,
        pool: &mut KvPool,
        sequence: &Sequence,
        layer: &Layer,
        first: usize,
        qkv: &[f32],
        mixed: &mut [f32],
    ) -> Result<()> {
        if layer.kind == LayerKind::State {
            return self.mix_state(pool, sequence, layer, first, qkv, mixed);
        }
        let end = first + qkv.len() / QKV;
        let staged = cast_slice_mut::<u8, f32>(self.staging.bytes_mut()?);
        for (row, staged) in qkv.chunks(QKV).zip(staged.chunks_mut(ENTRY)) {
            staged.copy_from_slice(&row[WIDTH..]);
        }
        pool.write_rows(&self.transfer, sequence, &rows(layer, first..end)?, &self.staging)?;
        let window = if layer.kind == LayerKind::Full { usize::MAX } else { WINDOW as usize };
        let start = (first + 1).saturating_sub(window);
        pool.read_rows(&self.transfer, sequence, &rows(layer, start..end)?, &mut self.staging)?;
        let staged = cast_slice::<u8, f32>(self.staging.bytes()?);
        for (position, (row, output)) in (first..).zip(qkv.chunks(QKV).zip(mixed.chunks_mut(WIDTH))) {
            let from = (position + 1).saturating_sub(window) - start;
            let entries = &staged[from * ENTRY..(position + 1 - start) * ENTRY];
            attend(&row[..WIDTH], entries, output);
        }
        Ok(())
    }

    fn mix_state(
        &mut self,
        pool: &mut KvPool,
        sequence: &Sequence,
        layer: &Layer,
        first: usize,
        qkv: &[f32],
        mixed: &mut [f32],
    ) -> Result<()> {
        let state = rows(layer, 0..1)?;
        if first > 0 {
            pool.read_rows(&self.transfer, sequence, &state, &mut self.staging)?;
        }
        let staged = &mut cast_slice_mut::<u8, f32>(self.staging.bytes_mut()?)[..STATE];
        if first == 0 {
            // The page has the bytes of its former use.
            staged.fill(0.0);
        }
        for (row, output) in qkv.chunks(QKV).zip(mixed.chunks_mut(WIDTH)) {
            scan(staged, row, output);
        }
        Ok(pool.write_rows(&self.transfer, sequence, &state, &self.staging)?)
    }
}

/// Returns the place of a layer's entries at these positions.
fn rows(layer: &Layer, positions: Range<usize>) -> Result<RowRange> {
    let rows = u32::try_from(positions.start)?..u32::try_from(positions.end)?;
    Ok(RowRange { group: layer.group, layer: layer.in_group, arena: 0, rows })
}
