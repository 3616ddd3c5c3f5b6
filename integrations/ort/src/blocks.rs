//! The blocks that ONNX Runtime holds, by address.
//!
//! ONNX Runtime frees by address. A table of the blocks serves every allocator of orlop, also those that
//! cannot free an address, tells foreign pointers apart, and lets an output leave as a block: see
//! [`PinnedOutput`].

use crate::refusals::ThreadRefusals;
use orlop::memory::bare::BlockSource;
use orlop::memory::{Error, Tag};
use orlop::prelude::*;
use orlop::types::Alignment;
use std::collections::HashMap;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The alignment of every block. ONNX Runtime's kernels need 64 bytes at most.
const ALIGNMENT: Alignment = Alignment::CPU;

/// The tag of every block.
const TAG: &str = "onnxruntime";

/// Numbers of calls by ONNX Runtime.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OrtCounts {
    /// Blocks allocated for a run: kind [`MemoryKind::Workspace`].
    pub allocations: u64,
    /// Blocks reserved for a session's lifetime: kind [`MemoryKind::Persistent`].
    pub reservations: u64,
    /// Blocks freed.
    pub frees: u64,
    /// Outputs that became tensors without a copy. Their blocks are not counted under `frees`.
    pub shared_outputs: u64,
    /// Outputs that were copied into tensors.
    pub copied_outputs: u64,
    /// Requests refused.
    pub refusals: u64,
    /// Frees of addresses that are not blocks of this allocator: errors of the caller.
    pub foreign_frees: u64,
}

/// The allocator's source, and its blocks that ONNX Runtime holds.
pub(crate) struct HeldBlocks {
    source: Box<dyn BlockSource + Send + Sync>,
    tag: Tag,
    table: Mutex<BlockTable>,
    refusals: ThreadRefusals,
}

#[derive(Default)]
struct BlockTable {
    held: HashMap<usize, Block>,
    /// Blocks that are pinned: `Some` once ONNX Runtime has freed them.
    pinned: HashMap<usize, Option<Block>>,
    counts: OrtCounts,
}

impl HeldBlocks {
    pub(crate) fn new(source: Box<dyn BlockSource + Send + Sync>) -> Self {
        Self { source, tag: Tag::new(TAG), table: Mutex::default(), refusals: ThreadRefusals::new() }
    }

    /// Allocates a block and returns its address, or `None` if the request is refused.
    pub(crate) fn allocate(&self, bytes: usize, kind: MemoryKind) -> Option<NonNull<u8>> {
        let request = Request::new(bytes).kind(kind).tag(self.tag).align(ALIGNMENT);
        // Callbacks of the source run here, without the lock.
        let allocated = self.source.allocate_block(&request).and_then(|block| {
            // A source may be anything; ONNX Runtime writes to the memory.
            block.bytes()?;
            Ok(block)
        });
        let mut table = self.table();
        match allocated {
            Ok(block) => {
                let ptr = block.as_ptr();
                match kind {
                    MemoryKind::Persistent => table.counts.reservations += 1,
                    _ => table.counts.allocations += 1,
                }
                table.held.insert(ptr.addr().get(), block);
                Some(ptr)
            }
            Err(error) => {
                table.counts.refusals += 1;
                drop(table);
                self.refusals.keep(error);
                None
            }
        }
    }

    /// Frees the block at an address, unless it is pinned.
    pub(crate) fn free(&self, address: usize) {
        let mut table = self.table();
        let Some(block) = table.held.remove(&address) else {
            table.counts.foreign_frees += 1;
            return;
        };
        if let Some(freed) = table.pinned.get_mut(&address) {
            *freed = Some(block);
            return;
        }
        table.counts.frees += 1;
        // Freeing may run callbacks.
        drop(table);
        drop(block);
    }

    /// Pins the block at `address`, so that it stays allocated also if ONNX Runtime frees it. Returns `None`
    /// if there is no such block, or if it is pinned.
    pub(crate) fn pin(&self, address: usize) -> Option<PinnedOutput<'_>> {
        let mut table = self.table();
        let len = table.held.get(&address)?.len();
        if table.pinned.contains_key(&address) {
            return None;
        }
        table.pinned.insert(address, None);
        Some(PinnedOutput { blocks: self, address, len })
    }

    pub(crate) fn count_output(&self, copied: bool) {
        let counts = &mut self.table().counts;
        *(if copied { &mut counts.copied_outputs } else { &mut counts.shared_outputs }) += 1;
    }

    pub(crate) fn counts(&self) -> OrtCounts {
        self.table().counts
    }

    pub(crate) fn take_refusal(&self) -> Option<Error> {
        self.refusals.take()
    }

    /// Adds the reason to an error of ONNX Runtime, if that is a refused request of this thread.
    pub(crate) fn explain(&self, runtime: ort::Error) -> crate::Error {
        self.refusals.explain(runtime)
    }

    /// The table is consistent after every statement, so a panic in another thread does not matter.
    fn table(&self) -> MutexGuard<'_, BlockTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A block that stays allocated until this is dropped, although ONNX Runtime may free it.
#[derive(Debug)]
pub(crate) struct PinnedOutput<'a> {
    blocks: &'a HeldBlocks,
    address: usize,
    len: usize,
}

impl PinnedOutput<'_> {
    /// The size of the block in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the block if ONNX Runtime has freed it: then nothing else refers to its memory.
    pub(crate) fn take(&mut self) -> Option<Block> {
        self.blocks.table().pinned.get_mut(&self.address)?.take()
    }
}

impl Drop for PinnedOutput<'_> {
    fn drop(&mut self) {
        let mut table = self.blocks.table();
        let freed = table.pinned.remove(&self.address).flatten();
        table.counts.frees += u64::from(freed.is_some());
        drop(table);
        drop(freed);
    }
}

impl fmt::Debug for HeldBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldBlocks").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
