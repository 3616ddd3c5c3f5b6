//! What kernels read, written into the caller's buffers: their addresses stay, only the contents change. The
//! entries are of the type that the kernels have, [`KernelInteger`].
//!
//! Nothing here allocates.

use super::kernel_integer::{self, KernelInteger, check_range};
use super::{KvPool, Sequence};
use crate::geometry::GroupKind;
use crate::pages::NULL;
use crate::{KvError, Result};
use std::ops::Range;

/// What is out of range.
const PAGES: &str = "the number of pages";

impl KvPool {
    /// Writes one row of the block table `[batch, row.len()]` of a group's part: the pages of the sequence,
    /// by absolute index, `null` for those that were returned, and behind the last one. Returns the number of
    /// entries: exactly those that hold the scheduled tokens.
    ///
    /// # Errors
    /// If the row is too short, there is no such group or part, or the type of the entries is too small for
    /// the ids of the group's pages. The row is then unchanged.
    pub fn write_block_table<I: KernelInteger>(
        &self,
        sequence: &Sequence,
        group: usize,
        part: u32,
        null: I,
        row: &mut [I],
    ) -> Result<usize> {
        let slot = self.slot(sequence)?;
        let entries = self.entries(slot, group, part)?;
        if row.len() < entries {
            return Err(KvError::BufferTooSmall { room: row.len(), needed: entries });
        }
        check_range::<I>(self.page_ids(group).into(), PAGES)?;
        row.fill(null);
        for (index, entry) in row[..entries].iter_mut().enumerate() {
            if let Some(page) = self.page(slot, group, part, index) {
                *entry = I::from_u64(page.into()).unwrap_or(null);
            }
        }
        Ok(entries)
    }

    /// Writes the slots of the tokens `tokens` of a sequence: page times the entries of a page, plus the
    /// place in it. For a compressed group, the slot of an entry is that of each of its tokens. With context
    /// shards, token `p` is on shard `p % shards`, and the slot is the one there.
    ///
    /// # Errors
    /// If a token has no page, the buffer is too small, or the type of the entries is for the slots of the
    /// group. The buffer is then unchanged.
    pub fn write_slot_mapping<I: KernelInteger>(
        &self,
        sequence: &Sequence,
        group: usize,
        part: u32,
        tokens: Range<u32>,
        slots: &mut [I],
    ) -> Result<usize> {
        let slot = self.slot(sequence)?;
        self.entries(slot, group, part)?;
        let spec = &self.geometry.groups()[group];
        let (span, needed) = (spec.span(), tokens.len());
        if slots.len() < needed {
            return Err(KvError::BufferTooSmall { room: slots.len(), needed });
        }
        let ratio = match spec.kind {
            GroupKind::Compressed { ratio } => ratio,
            _ => 1,
        };
        let (end, shards) = (self.tokens(slot, group), spec.context_shards);
        let entries = spec.block_tokens / ratio;
        check_range::<I>(u64::from(self.page_ids(group)) * u64::from(entries), "a slot")?;
        let no_page = |position| KvError::BeyondEnd { position, end };
        for position in tokens.clone() {
            let is_there =
                position < end && self.page(slot, group, part, (position / span) as usize).is_some();
            is_there.then_some(()).ok_or_else(|| no_page(position))?;
        }
        for (entry, position) in slots.iter_mut().zip(tokens) {
            let page = self.page(slot, group, part, (position / span) as usize).unwrap_or(NULL);
            let slot = u64::from(page) * u64::from(entries) + u64::from(position % span / shards / ratio);
            *entry = kernel_integer::entry(slot, "a slot")?;
        }
        Ok(needed)
    }

    /// Writes FlashInfer's description of a batch: `indptr` of `sequences.len() + 1` entries, the pages of
    /// all sequences in `indices`, and the tokens in the last page of each. Pages that were returned are
    /// left out. Returns the number of indices.
    ///
    /// # Errors
    /// If a buffer is too small, there is no such group or part, or the type of the entries is too small for
    /// the ids or the number of pages. The buffers are then unchanged.
    pub fn write_flashinfer<I: KernelInteger>(
        &self,
        sequences: &[&Sequence],
        group: usize,
        part: u32,
        indptr: &mut [I],
        indices: &mut [I],
        last_page_len: &mut [I],
    ) -> Result<usize> {
        let room = indptr.len().min(last_page_len.len() + 1);
        if room < sequences.len() + 1 {
            return Err(KvError::BufferTooSmall { room, needed: sequences.len() + 1 });
        }
        let mut needed = 0;
        for sequence in sequences {
            let slot = self.slot(sequence)?;
            let entries = self.entries(slot, group, part)?;
            needed += (0..entries).filter(|&index| self.page(slot, group, part, index).is_some()).count();
        }
        if indices.len() < needed {
            return Err(KvError::BufferTooSmall { room: indices.len(), needed });
        }
        check_range::<I>(u64::from(self.page_ids(group)).max(needed as u64 + 1), PAGES)?;
        let mut count = 0;
        indptr[0] = kernel_integer::entry(0, PAGES)?;
        for (at, sequence) in sequences.iter().enumerate() {
            let slot = self.slot(sequence)?;
            let entries = self.entries(slot, group, part)?;
            for page in (0..entries).filter_map(|index| self.page(slot, group, part, index)) {
                indices[count] = kernel_integer::entry(page.into(), PAGES)?;
                count += 1;
            }
            indptr[at + 1] = kernel_integer::entry(count as u64, PAGES)?;
            let (len, span) = (self.tokens(slot, group), self.geometry.groups()[group].span());
            let last = if len == 0 { 0 } else { (len - 1) % span + 1 };
            last_page_len[at] = kernel_integer::entry(last.into(), "the tokens of a page")?;
        }
        Ok(count)
    }

    /// Writes the cumulative lengths `[batch + 1]` of a batch, in tokens, for kernels over packed sequences.
    ///
    /// # Errors
    /// If the buffer is too small, or the type of the entries is for the sum. The buffer is then unchanged.
    pub fn write_cumulative_lengths<I: KernelInteger>(
        &self,
        sequences: &[&Sequence],
        lengths: &mut [I],
    ) -> Result<()> {
        if lengths.len() < sequences.len() + 1 {
            return Err(KvError::BufferTooSmall { room: lengths.len(), needed: sequences.len() + 1 });
        }
        let mut sum = 0;
        for sequence in sequences {
            sum += u64::from(self.state(self.slot(sequence)?).len);
        }
        check_range::<I>(sum + 1, "the tokens of a batch")?;
        sum = 0;
        lengths[0] = kernel_integer::entry(0, "the tokens of a batch")?;
        for (sequence, length) in sequences.iter().zip(&mut lengths[1..]) {
            sum += u64::from(self.state(self.slot(sequence)?).len);
            *length = kernel_integer::entry(sum, "the tokens of a batch")?;
        }
        Ok(())
    }

    /// Returns the page of a sequence's state, for one part of a state group. `None` before the first token.
    ///
    /// # Errors
    /// If there is no such group or part.
    pub fn state_page(&self, sequence: &Sequence, group: usize, part: u32) -> Result<Option<u32>> {
        let slot = self.slot(sequence)?;
        self.entries(slot, group, part)?;
        if self.kind(group) != GroupKind::State {
            return Err(KvError::NoSuchPart { group, what: "state" });
        }
        Ok(self.page(slot, group, part, 0))
    }

    /// Returns `true` if a row of the sequence's tables may differ from what was written when this was called
    /// last, apart from entries behind the former end.
    ///
    /// # Errors
    /// If the sequence is not one of this pool.
    pub fn take_changed(&mut self, sequence: &Sequence) -> Result<bool> {
        let slot = self.slot(sequence)?;
        Ok(std::mem::take(&mut self.state_mut(slot).changed))
    }

    /// Returns the rows of a batch that [`take_changed`](Self::take_changed) would be `true` for, from the
    /// first to the last one, and takes these changes. `None` if there is none.
    ///
    /// # Errors
    /// If a sequence is not one of this pool: no change is then taken.
    pub fn take_changed_rows(&mut self, sequences: &[&Sequence]) -> Result<Option<Range<usize>>> {
        for sequence in sequences {
            self.slot(sequence)?;
        }
        let mut rows: Option<Range<usize>> = None;
        for (row, sequence) in sequences.iter().enumerate() {
            if self.take_changed(sequence)? {
                rows = Some(rows.map_or(row, |rows| rows.start)..row + 1);
            }
        }
        Ok(rows)
    }

    /// Returns the number of entries of a row, and checks that it exists.
    pub(super) fn entries(&self, slot: u32, group: usize, part: u32) -> Result<usize> {
        if part >= self.geometry.parts(group) {
            return Err(KvError::NoSuchPart { group, what: "such part" });
        }
        let (state, spec) = (self.state(slot), &self.geometry.groups()[group]);
        let entries = match spec.kind {
            GroupKind::State => u32::from(!state.tables[group].blocks.is_empty()),
            _ => self.tokens(slot, group).div_ceil(spec.span()),
        };
        Ok(entries as usize)
    }

    /// Returns the tokens that a group has entries for.
    pub(super) fn tokens(&self, slot: u32, group: usize) -> u32 {
        let state = self.state(slot);
        if self.kind(group) == GroupKind::Cross { state.lengths.encoder_tokens } else { state.len }
    }

    pub(super) fn page(&self, slot: u32, group: usize, part: u32, index: usize) -> Option<u32> {
        let block = *self.state(slot).tables[group].blocks.get(index)?;
        (block != NULL).then(|| self.blocks.pages_of(group, block)[part as usize])
    }
}
