//! Bugs that managers of KV memory had, as cases: each test names the public report that it retells.

mod admission;
mod arrays;
mod contract;
mod drafts;
mod events;
mod hits;
mod hostile;
mod hybrid;
mod keys;
mod layouts;
mod lifetimes;
mod memory;
mod numbers;
mod quotas;
mod stores;
mod tiers;
mod transfers;

use crate::oracle::{ENTRY, Oracle};
use orlop_kv::{KvGeometry, KvPool, KvPoolBuilder, LayerGroup};

/// One layer that keeps every token, in blocks of `span`: a large page is a block.
fn full(span: u32) -> LayerGroup {
    LayerGroup::full("full", 1, ENTRY).with_block_tokens(span)
}

fn window(tokens: u32, span: u32) -> LayerGroup {
    LayerGroup::window("window", 1, ENTRY, tokens).with_block_tokens(span)
}

/// A state as large as a block of 16 tokens.
fn state() -> LayerGroup {
    LayerGroup::state("state", 1, 16 * ENTRY)
}

fn builder(groups: Vec<LayerGroup>, large_pages: u32) -> KvPoolBuilder {
    KvPool::builder(KvGeometry::new(groups).unwrap()).large_pages(large_pages)
}

fn oracle(groups: Vec<LayerGroup>, large_pages: u32) -> Oracle {
    Oracle::new(builder(groups, large_pages))
}

/// Different tokens for each family.
pub(crate) fn tokens(family: u32, count: u32) -> Vec<u32> {
    (0..count).map(|at| family * 100_000 + at).collect()
}

/// `shared` tokens of family 0, then others up to `count`.
fn branch(family: u32, shared: u32, count: u32) -> Vec<u32> {
    let mut tokens = tokens(0, shared);
    tokens.extend((shared..count).map(|at| family * 100_000 + at));
    tokens
}

/// Free large pages of a pool whose large pages are blocks.
fn free(oracle: &mut Oracle) -> u64 {
    let stats = oracle.books();
    stats.free_bytes / oracle.pool.geometry().large_page_bytes()
}
