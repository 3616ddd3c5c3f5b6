//! The step of an engine whose attention kernels read FlashInfer's metadata: page tables by `indptr`,
//! `indices` and `last_page_len`, and a slot for each new key and value.
//!
//! ```text
//! cargo run -p orlop --example kv_flashinfer
//! ```
//!
//! The buffers are allocated once. Their addresses stay, as a captured graph of kernels needs it; only the
//! contents change. This is the shape of mistral.rs and of other engines with paged attention.

use orlop::kv::{AdmissionRequest, ChainFields, KvGeometry, KvPool, LayerGroup, Sequence, Tenant};
use orlop::prelude::*;
use std::error::Error;

const BLOCK_TOKENS: u32 = 16;
/// The maximum of sequences, of pages in all tables, and of new tokens in a step.
const BATCH: usize = 8;
const PAGES: usize = 256;
const TOKENS: usize = 512;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// What the kernels of a step read.
struct Metadata {
    indptr: Vec<u32>,
    indices: Vec<u32>,
    last_page_len: Vec<u32>,
    slots: Vec<u64>,
}

impl Metadata {
    fn new() -> Self {
        Self {
            indptr: vec![0; BATCH + 1],
            indices: vec![0; PAGES],
            last_page_len: vec![0; BATCH],
            slots: vec![0; TOKENS],
        }
    }

    /// Describes the open step, in which each sequence has the new tokens from `starts` on. Returns the
    /// numbers of pages and of new tokens.
    fn write(&mut self, pool: &KvPool, batch: &[&Sequence], starts: &[u32]) -> Result<(usize, usize)> {
        let Self { indptr, indices, last_page_len, slots } = self;
        let pages = pool.write_flashinfer(batch, 0, 0, indptr, indices, last_page_len)?;
        let mut tokens = 0;
        for (sequence, &start) in batch.iter().zip(starts) {
            let (end, _) = pool.len(sequence)?;
            tokens += pool.write_slot_mapping(sequence, 0, 0, start..end, &mut slots[tokens..])?;
        }
        Ok((pages, tokens))
    }

    /// Returns the tokens that the kernel attends to for a sequence.
    fn kv_len(&self, at: usize) -> u32 {
        let pages = self.indptr[at + 1] - self.indptr[at];
        (pages - 1) * BLOCK_TOKENS + self.last_page_len[at]
    }
}

pub(crate) fn main() -> Result<()> {
    let context = Context::new();
    // All layers keep every token: one table serves them, and each finds its keys and values in the page.
    let geometry = KvGeometry::new(vec![LayerGroup::full("full", 4, 512).with_block_tokens(BLOCK_TOKENS)])?;
    let mut pool = KvPool::builder(geometry).bytes(4 << 20).build(&context, Device::CPU)?;
    let fields = ChainFields::new(Tenant::Named("acme"), "weights r1", "bf16");
    let mut metadata = Metadata::new();

    let prompts = [40_u32, 25, 70].map(|tokens| (0..tokens).collect::<Vec<u32>>());
    let mut sequences = Vec::new();
    for prompt in &prompts {
        sequences.push(pool.admit(&AdmissionRequest::new(fields, prompt, 8))?.sequence);
    }
    let batch: Vec<&Sequence> = sequences.iter().collect();
    for step in 0..4 {
        let mut starts = Vec::new();
        for (sequence, prompt) in batch.iter().zip(&prompts) {
            let (len, _) = pool.len(sequence)?;
            starts.push(len);
            // The prompt at once, then token by token.
            pool.append(sequence, if len == 0 { u32::try_from(prompt.len())? } else { 1 })?;
        }
        let (pages, tokens) = metadata.write(&pool, &batch, &starts)?;
        let lengths: Vec<u32> = (0..batch.len()).map(|at| metadata.kv_len(at)).collect();
        println!("step {step}: {tokens} new tokens, {pages} pages, lengths {lengths:?}");
        // Here the engine runs `pool.copies()` and its kernels.
        let step = pool.close_step();
        pool.settle(step)?;
    }
    for sequence in sequences {
        pool.finish(sequence)?;
    }
    let stats = pool.stats();
    println!("{} units of {} tokens are cached", stats.cached_units, pool.match_unit());
    Ok(())
}
