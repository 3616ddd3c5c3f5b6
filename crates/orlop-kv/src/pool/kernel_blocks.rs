//! Block tables of kernels whose blocks are smaller than pages.
//!
//! Every arena of a layer is divided into *kernel blocks* of equal bytes. If these bytes divide the distance
//! from page to page, the kernel blocks of all pages lie on one grid, and a place on it is an id.

use super::kernel_integer::{KernelInteger, check_range};
use super::{KvLayer, KvPool, Sequence};
use crate::geometry::GroupKind;
use crate::{KvError, Result};

/// The kernel blocks of an arena of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelBlocks {
    /// Bytes from the start of the pool to the block with id 0.
    pub base: u64,
    /// Bytes of a block, and from one id to the next.
    pub bytes: u64,
    /// The ids of a table are below: the blocks from `base` on that end inside the pool.
    pub ids: u32,
    /// The layer, its arena, and the tokens of a block on one shard, from which the rest follows.
    layer: KvLayer,
    arena: usize,
    tokens: u32,
    part: u32,
    /// Tokens of a block, over all context shards.
    span: u32,
    /// Ids from one page to the next.
    per_page: u32,
}

impl KvPool {
    /// Divides the pages of a layer for kernels with blocks of `tokens` tokens on one shard.
    ///
    /// # Errors
    /// If there is no such layer or arena, the group has no tokens, or blocks of `tokens` tokens do not fill
    /// the arena or do not divide the distance of two pages.
    pub fn kernel_blocks(&self, layer: KvLayer, arena: usize, tokens: u32) -> Result<KernelBlocks> {
        let group = layer.group;
        let view = self.geometry.arena(group, layer.layer, arena);
        let view = view.ok_or(KvError::NoSuchPart { group, what: "such layer or arena" })?;
        let spec = &self.geometry.groups()[group];
        if spec.kind == GroupKind::State {
            return Err(KvError::NoSuchPart { group, what: "tokens" });
        }
        let does_not_fit = || KvError::KernelBlockSize { group: spec.name.clone(), tokens };
        let divides = tokens > 0 && spec.block_tokens.is_multiple_of(tokens);
        if !divides || !tokens.is_multiple_of(spec.entry_tokens()) {
            return Err(does_not_fit());
        }
        let of_page = spec.block_tokens / tokens;
        let bytes = view.bytes / u64::from(of_page);
        if bytes == 0 || !view.stride.is_multiple_of(bytes) {
            return Err(does_not_fit());
        }
        let out_of_range = KvError::OutOfRange { what: "the number of kernel blocks" };
        let per_page = u32::try_from(view.stride / bytes).ok();
        let ids = per_page.and_then(|per_page| match self.page_ids(group) {
            0 => Some(0),
            // In the last page, other arenas follow.
            pages => (pages - 1).checked_mul(per_page)?.checked_add(of_page),
        });
        let (Some(per_page), Some(ids)) = (per_page, ids) else { return Err(out_of_range) };
        let (base, part, span) = (view.base, view.part, tokens.saturating_mul(spec.context_shards));
        Ok(KernelBlocks { base, bytes, ids, layer, arena, tokens, part, span, per_page })
    }

    /// Writes one row of a kernel's block table: the kernel blocks of the sequence in the group of `blocks`,
    /// by absolute index, `null` for those that were returned, and behind the last one. Returns the number of
    /// entries: exactly those that hold the scheduled tokens. It allocates nothing.
    ///
    /// # Errors
    /// If the row is too short, `blocks` are those of a pool with another geometry or size, or the type of
    /// the entries is too small for their ids. The row is then unchanged.
    pub fn write_kernel_table<I: KernelInteger>(
        &self,
        sequence: &Sequence,
        blocks: &KernelBlocks,
        null: I,
        row: &mut [I],
    ) -> Result<usize> {
        let slot = self.slot(sequence)?;
        let group = blocks.layer.group;
        let of_this_pool = self.kernel_blocks(blocks.layer, blocks.arena, blocks.tokens);
        if !of_this_pool.is_ok_and(|of_this_pool| of_this_pool == *blocks) {
            return Err(KvError::NoSuchPart { group, what: "such kernel blocks" });
        }
        let of_page = self.geometry.groups()[group].span() / blocks.span;
        let entries = self.tokens(slot, group).div_ceil(blocks.span) as usize;
        if row.len() < entries {
            return Err(KvError::BufferTooSmall { room: row.len(), needed: entries });
        }
        check_range::<I>(blocks.ids.into(), "the number of kernel blocks")?;
        row.fill(null);
        for (index, entry) in (0..).zip(&mut row[..entries]) {
            if let Some(page) = self.page(slot, group, blocks.part, (index / of_page) as usize) {
                let id = page * blocks.per_page + index % of_page;
                *entry = I::from_u64(id.into()).unwrap_or(null);
            }
        }
        Ok(entries)
    }
}
