//! The cases.

mod drafts;
mod hits;
mod lifetimes;
mod pressure;
mod progress;

use super::manager::{KvGroupSpec, KvLayers, KvManager, KvRefusal, KvSetup};
use super::serving::Serving;

/// A case: it returns a refusal if the pool is too small for it.
#[derive(Debug)]
pub(super) struct KvCase<M: KvManager> {
    pub(super) name: &'static str,
    pub(super) reports: &'static str,
    pub(super) setup: fn() -> KvSetup,
    /// The blocks that suffice, when steps settle at once.
    pub(super) blocks: u32,
    pub(super) run: fn(&mut Serving<M>) -> Result<(), KvRefusal>,
}

pub(super) fn all<M: KvManager>() -> Vec<KvCase<M>> {
    let mut cases = lifetimes::all();
    cases.extend(hits::all());
    cases.extend(progress::all());
    cases.extend(drafts::all());
    cases.extend(pressure::all());
    cases
}

fn setup(layers: &[KvLayers], unit: u32) -> KvSetup {
    let groups = layers.iter().map(|&layers| KvGroupSpec { layers, block_tokens: 16 }).collect();
    KvSetup { groups, blocks: 0, unit, lag: 0 }
}

fn full() -> KvSetup {
    setup(&[KvLayers::Full], 16)
}

fn full_in_units_of_4() -> KvSetup {
    setup(&[KvLayers::Full], 4)
}

fn window() -> KvSetup {
    setup(&[KvLayers::Window { tokens: 64 }], 16)
}

fn full_and_window() -> KvSetup {
    setup(&[KvLayers::Full, KvLayers::Window { tokens: 32 }], 16)
}

fn full_and_state() -> KvSetup {
    setup(&[KvLayers::Full, KvLayers::State], 16)
}

/// Different tokens for each family.
fn tokens(family: u32, count: u32) -> Vec<u32> {
    (0..count).map(|at| family * 100_000 + at).collect()
}

/// `shared` tokens of family 0, then others up to `count`.
fn branch(family: u32, shared: u32, count: u32) -> Vec<u32> {
    let mut tokens = tokens(0, shared);
    tokens.extend((shared..count).map(|at| family * 100_000 + at));
    tokens
}
