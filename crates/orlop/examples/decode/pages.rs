//! The engine's access to the KV memory, on the host or on a device: entries and states go through pinned
//! staging memory, by the copies of the device.

use super::Result;
use super::math::{attend, scan};
use super::model::{BLOCK_TOKENS, ENTRY, Layer, LayerKind, QKV, STATE, WIDTH, WINDOW};
use orlop::engine_support::{DeviceOps, DevicePtr};
use orlop::kv::{ArenaView, KvPool, Sequence};
use orlop::memory::TypedBlock;
use orlop::prelude::*;
use orlop::types::StreamId;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

/// In a block table, the entry of a block that was returned.
const NULL: u32 = u32::MAX;

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
    ops: Arc<dyn DeviceOps>,
    stream: StreamId,
    start: DevicePtr,
    bytes: usize,
    staging: TypedBlock<f32>,
    /// A row of a block table.
    table: Vec<u32>,
}

impl Pages {
    /// Prepares the access to a pool that has memory, for sequences of up to `tokens` tokens.
    pub(crate) fn new(context: &Context, pool: &KvPool, tokens: usize) -> Result<Self> {
        let memory = pool.memory().ok_or("the pool has no memory")?;
        let device = memory.device();
        let request = Request::new(0).kind(MemoryKind::HostPinned);
        Ok(Self {
            ops: context.ops(device)?,
            stream: context.stream(device),
            start: memory.device_ptr(),
            bytes: memory.len(),
            staging: context.allocate_typed(&request, (tokens * ENTRY).max(STATE), |_| 0.0)?,
            table: vec![NULL; tokens.div_ceil(BLOCK_TOKENS as usize)],
        })
    }

    /// Returns the bytes of the staging memory.
    pub(crate) fn staging_bytes(&self) -> u64 {
        size_of_val(&*self.staging) as u64
    }

    /// Runs the copies that the open step needs before anything else.
    pub(crate) fn run_copies(&self, pool: &KvPool) -> Result<()> {
        for copy in pool.copies() {
            let spec = &pool.geometry().groups()[copy.group];
            for layer in 0..spec.layers {
                let place = place(pool, copy.group, layer)?;
                if place.part == copy.part {
                    let entry = place.bytes / u64::from(spec.block_tokens);
                    let [from, to] = [copy.from, copy.to].map(|page| page_start(&place, page));
                    let bytes = usize::try_from(entry * u64::from(copy.tokens))?;
                    self.copy(self.at(to?, bytes)?, self.at(from?, bytes)?, bytes)?;
                }
            }
        }
        Ok(())
    }

    /// Attends for the rows of one sequence, whose queries, keys and values are in `qkv`.
    pub(crate) fn mix(
        &mut self,
        pool: &KvPool,
        sequence: &Sequence,
        layer: &Layer,
        first: usize,
        qkv: &[f32],
        mixed: &mut [f32],
    ) -> Result<()> {
        let place = place(pool, layer.group, layer.in_group)?;
        if layer.kind == LayerKind::State {
            return self.mix_state(pool, sequence, (layer, &place), first, qkv, mixed);
        }
        pool.write_block_table(sequence, layer.group, place.part, NULL, &mut self.table)?;
        let end = first + qkv.len() / QKV;
        for (row, staged) in qkv.chunks(QKV).zip(self.staging.chunks_mut(ENTRY)) {
            staged.copy_from_slice(&row[WIDTH..]);
        }
        self.transfer(&place, first..end, Direction::Write)?;
        let window = if layer.kind == LayerKind::Full { usize::MAX } else { WINDOW as usize };
        let start = (first + 1).saturating_sub(window);
        self.transfer(&place, start..end, Direction::Read)?;
        for (position, (row, output)) in (first..).zip(qkv.chunks(QKV).zip(mixed.chunks_mut(WIDTH))) {
            let from = (position + 1).saturating_sub(window) - start;
            let entries = &self.staging[from * ENTRY..(position + 1 - start) * ENTRY];
            attend(&row[..WIDTH], entries, output);
        }
        Ok(())
    }

    fn mix_state(
        &mut self,
        pool: &KvPool,
        sequence: &Sequence,
        (layer, place): (&Layer, &ArenaView),
        first: usize,
        qkv: &[f32],
        mixed: &mut [f32],
    ) -> Result<()> {
        let page = pool.state_page(sequence, layer.group, place.part)?.ok_or("a sequence without a state")?;
        let start = page_start(place, page)?;
        if first == 0 {
            // The page has the bytes of its former use.
            self.staging[..STATE].fill(0.0);
        } else {
            self.stage(start, 0..STATE, Direction::Read)?;
            self.ops.synchronize(self.stream)?;
        }
        for (row, output) in qkv.chunks(QKV).zip(mixed.chunks_mut(WIDTH)) {
            scan(&mut self.staging[..STATE], row, output);
        }
        self.stage(start, 0..STATE, Direction::Write)?;
        Ok(self.ops.synchronize(self.stream)?)
    }

    /// Moves the entries of these positions between the start of the staging memory and the pages of the
    /// table: one copy for each page.
    fn transfer(&mut self, place: &ArenaView, positions: Range<usize>, direction: Direction) -> Result<()> {
        let block = BLOCK_TOKENS as usize;
        let mut position = positions.start;
        while position < positions.end {
            let next = positions.end.min((position / block + 1) * block);
            let page = page_start(place, self.table[position / block])?;
            let start = page + position % block * ENTRY * size_of::<f32>();
            let staged = (position - positions.start) * ENTRY..(next - positions.start) * ENTRY;
            self.stage(start, staged, direction)?;
            position = next;
        }
        Ok(self.ops.synchronize(self.stream)?)
    }

    /// Moves elements between the KV memory, from `start` on, and this range of the staging memory.
    fn stage(&mut self, start: usize, range: Range<usize>, direction: Direction) -> Result<()> {
        let staged = &mut self.staging[range];
        let bytes = size_of_val(staged);
        let staged = DevicePtr::kept(NonNull::from(staged).cast());
        let pages = self.at(start, bytes)?;
        match direction {
            Direction::Read => self.copy(staged, pages, bytes),
            Direction::Write => self.copy(pages, staged, bytes),
        }
    }

    /// Returns the place of `bytes` bytes in the KV memory.
    fn at(&self, start: usize, bytes: usize) -> Result<DevicePtr> {
        if start.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            return Err("a page is outside of the pool".into());
        }
        // SAFETY: the place is inside of the pool's block, as was checked just now.
        Ok(unsafe { self.start.add(start) })
    }

    fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: usize) -> Result<()> {
        // SAFETY: `at` and `stage` made the addresses: `bytes` bytes of the pool's block or of the staging
        // memory, two different pages or one of each, so they do not overlap. Both outlive the copies, all of
        // which are on one stream: `Decoder` drops them after the last step, which was synchronized.
        Ok(unsafe { self.ops.copy(to, from, bytes, self.stream) }?)
    }
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    Read,
    Write,
}

/// Returns the place of a layer's entries in the pages of its part.
fn place(pool: &KvPool, group: usize, layer: u32) -> Result<ArenaView> {
    Ok(pool.geometry().arena(group, layer, 0).ok_or("a layer without KV memory")?)
}

/// Returns the first byte of a layer's entries in a page.
fn page_start(place: &ArenaView, page: u32) -> Result<usize> {
    Ok(usize::try_from(place.base + u64::from(page) * place.stride)?)
}
