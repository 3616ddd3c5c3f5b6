//! The built-in factories.
//!
//! | name | engine | priority | limit |
//! |---|---|---|---|
//! | `caching` | thread caches over best fit that grows in place: the CPU's default | 110 | by engine |
//! | `bfc` | best fit with coalescing, growing regions | 100 | by engine |
//! | `pool` | exact sizes, LRU-bounded | 70 | by adaptor |
//! | `pow2` | powers of two, cached per thread | 60 | by adaptor |
//! | `direct` | a region per block, from the default backing | 50 | by adaptor |
//! | `arena` | bump allocation; memory is reused after a rewind | 30 | by engine |
//! | `bfc-fixed` | best fit with coalescing over one region | 20 | required |
//! | `system` | a region per block, from the system's allocator | 10 | by adaptor |

use super::{AllocatorConfig, Factory, Registry};
use orlop_alloc::adaptor::Limit;
use orlop_alloc::backing::{Backing, BackingRef, System};
use orlop_alloc::bfc::{Bfc, BfcPolicy};
use orlop_alloc::caching::Caching;
use orlop_alloc::engine::{Arena, Direct, Pool, Pow2};
use orlop_alloc::{Allocator, AllocatorRef, Result};
use std::sync::Arc;

/// Registers the factories of this crate. Registering them again changes nothing.
///
/// They apply all [`AllocatorConfig`], or refuse with
/// [`Error::Configuration`](orlop_alloc::Error::Configuration) those that they cannot apply.
pub fn register_builtin(registry: &Registry) {
    let factories = [
        Factory::new("caching", 110, caching),
        Factory::new("bfc", 100, growing),
        Factory::new("pool", 70, |config| limited(Pool::new(config.backing_or_default()?), config)),
        Factory::new("pow2", 60, |config| limited(Pow2::new(config.backing_or_default()?), config)),
        Factory::new("arena", 30, arena),
        Factory::new("direct", 50, |config| direct(config.backing_or_default()?, config)),
        Factory::new("bfc-fixed", 20, fixed),
        Factory::new("system", 10, |config| direct(system(config)?, config)),
    ];
    let factories = factories.map(|factory| factory.with_backing(AllocatorConfig::backing_or_default));
    registry.register_all(factories);
}

fn caching(config: &AllocatorConfig) -> Result<AllocatorRef> {
    let builder = Caching::builder(config.backing_or_default()?);
    handle(builder.limit(config.limit.unwrap_or(usize::MAX)).build(), config)
}

fn growing(config: &AllocatorConfig) -> Result<AllocatorRef> {
    bfc(config, config.whole_limit, None)
}

fn fixed(config: &AllocatorConfig) -> Result<AllocatorRef> {
    bfc(config, true, None)
}

/// Creates the engine for pinned memory: the one of `bfc`, under its own name.
pub(super) fn pinned(config: &AllocatorConfig) -> Result<AllocatorRef> {
    bfc(config, config.whole_limit, Some("pinned"))
}

fn bfc(config: &AllocatorConfig, whole: bool, name: Option<&str>) -> Result<AllocatorRef> {
    let (policy, limit) = if whole {
        let limit = config.require_limit("a number of bytes: the limit is reserved as one region")?;
        (BfcPolicy::tensorflow_fixed(), limit)
    } else {
        (BfcPolicy::tensorflow(), config.limit.unwrap_or(usize::MAX))
    };
    let policy = if config.release_when_stuck { policy.releasing_when_stuck() } else { policy };
    let builder = Bfc::builder(config.backing_or_default()?).policy(policy).limit(limit);
    let builder = match name {
        Some(name) => builder.name(name),
        None => builder,
    };
    Ok(AllocatorRef::with_statistics(builder.build(), config.statistics).erase())
}

/// Wraps an engine other than best fit with coalescing in a handle.
fn handle<A: Allocator + 'static>(engine: A, config: &AllocatorConfig) -> Result<AllocatorRef> {
    config.refuse_bfc_settings()?;
    Ok(AllocatorRef::with_statistics(engine, config.statistics).erase())
}

/// The size in bytes of the first segment of an arena created by name.
const ARENA_BYTES: usize = 2 << 20;

fn arena(config: &AllocatorConfig) -> Result<AllocatorRef> {
    let limit = config.limit.unwrap_or(usize::MAX);
    let first = ARENA_BYTES.min(limit);
    handle(Arena::with_limit(config.backing_or_default()?, first, limit), config)
}

fn direct<B: Backing + 'static>(backing: B, config: &AllocatorConfig) -> Result<AllocatorRef> {
    limited(Direct::new(backing), config)
}

/// Wraps an engine without a limit of its own in a handle, with a limit adaptor if a limit is set.
fn limited<A: Allocator + 'static>(engine: A, config: &AllocatorConfig) -> Result<AllocatorRef> {
    match config.limit {
        Some(limit) => handle(Limit::new(engine, limit), config),
        None => handle(engine, config),
    }
}

fn system(config: &AllocatorConfig) -> Result<BackingRef> {
    if let Some(backing) = &config.backing {
        return Ok(Arc::clone(backing));
    }
    config.refuse_node("a setting of the system's allocator: it cannot place memory on a node")?;
    Ok(Arc::new(System::new()))
}
