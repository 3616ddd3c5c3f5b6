//! Models that replace each other: the memory of the last one is reused, and goes back on demand.

use orlop_alloc::{Block, Request};
use orlop_context::registry::Registry;
use orlop_context::{AllocatorConfig, Context};
use orlop_core::{Device, MemoryKind};

/// A model of about 2 MiB, with layers of other sizes in each version.
fn model(context: &Context, version: usize) -> Vec<Block> {
    let mut left: usize = 2 << 20;
    let mut layers = Vec::new();
    while left > 200_000 {
        let bytes = (version * 7919 + layers.len() * 104_729) % 150_000 + 10_000;
        let request = Request::new(bytes).kind(MemoryKind::Persistent);
        layers.push(context.allocate(Device::CPU, &request).expect("memory"));
        left -= bytes;
    }
    layers
}

/// Replaces a model again and again, and returns the peaks of reserved and of live bytes. `trim` is called
/// after each update.
fn update(context: &Context, trim: impl Fn()) -> (u64, u64) {
    let (mut reserved, mut live) = (0, 0);
    let mut current = Vec::new();
    for version in 0..if cfg!(miri) { 3 } else { 60 } {
        // The old model serves until the new one is loaded.
        let next = model(context, version);
        let stats = context.stats(Device::CPU);
        (reserved, live) = (stats.usage.reserved.max(reserved), stats.live().max(live));
        current = next;
        trim();
    }
    drop(current);
    (reserved, live)
}

fn contexts() -> impl Iterator<Item = (Box<str>, Context)> {
    Registry::with_builtin().registered().into_iter().map(|entry| {
        let config = AllocatorConfig::new().named(&entry.name);
        let config = if &*entry.name == "bfc-fixed" { config.limit(8 << 20) } else { config };
        (Box::from(&*entry.name), Context::with(Device::CPU, config))
    })
}

/// The engines return the memory of old models on demand, while the new one is in use; an arena only with its
/// last block.
#[test]
fn trimming_returns_the_memory_of_old_models() {
    for (name, context) in contexts() {
        let trim = || {
            context.trim(Device::CPU);
        };
        let (reserved, live) = update(&context, trim);
        assert!(&*name == "arena" || reserved <= live + (4 << 20), "{name}: {reserved} for {live}");
        context.trim(Device::CPU);
        assert_eq!(context.stats(Device::CPU).usage.reserved, 0, "{name}");
    }
}

/// Engines that split and merge free memory, or keep none, do not grow from update to update.
#[test]
fn updates_reuse_the_memory_of_old_models() {
    for (name, context) in contexts().filter(|(name, _)| !["pool", "arena"].contains(&&**name)) {
        let (reserved, live) = update(&context, || ());
        assert!(reserved <= live * 2 + (2 << 20), "{name}: {reserved} for {live}");
    }
}
