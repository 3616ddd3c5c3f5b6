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
//! | `host-pages` | the device engine over remappable pages (Linux); one lock | 25 | required, 2 MiB steps |
//! | `bfc-fixed` | best fit with coalescing over one region | 20 | required |
//! | `system` | a region per block, from the system's allocator | 10 | by adaptor |

use super::{Factory, FactoryOptions, Registration, Registry};
use crate::adaptor::Limit;
use crate::backing::{Backing, BackingRef, System};
use crate::caching::Caching;
use crate::central::{Central, Policy};
use crate::device;
use crate::engine::{Arena, Direct, Pool, Pow2};
use crate::{Allocator, AllocatorRef, Error, Result};
use std::sync::Arc;

/// Registers the factories of this crate. Registering them again changes nothing.
///
/// They apply all [`FactoryOptions`], or refuse with [`Error::Configuration`] those that they cannot apply.
pub fn register_builtin(registry: &Registry) {
    let factories = [
        Factory::new("caching", 110, caching),
        Factory::new("bfc", 100, growing),
        Factory::new("pool", 70, |options| {
            limited(Pool::builder(options.backing_or_default()?).build_engine(), options)
        }),
        Factory::new("pow2", 60, |options| limited(Pow2::engine(options.backing_or_default()?), options)),
        Factory::new("arena", 30, arena),
        Factory::new("direct", 50, |options| direct(options.backing_or_default()?, options)),
        Factory::new("bfc-fixed", 20, fixed),
        Factory::new("system", 10, |options| direct(system(options)?, options)),
    ];
    // Not registered on systems that do not support it.
    let pages = cfg!(all(target_os = "linux", not(miri))).then(|| Factory::new("host-pages", 25, host_pages));
    for factory in factories.into_iter().chain(pages) {
        let factory = factory.with_backing(FactoryOptions::backing_or_default);
        let name: Box<str> = factory.name().into();
        if let Registration::AlreadyRegistered { at } = registry.register(factory) {
            tracing::debug!(%name, %at, "a built-in allocator factory was registered already");
        }
    }
}

fn caching(options: &FactoryOptions) -> Result<AllocatorRef> {
    let builder = Caching::builder(options.backing_or_default()?);
    handle(builder.limit(options.limit.unwrap_or(usize::MAX)).build_engine(), options)
}

fn growing(options: &FactoryOptions) -> Result<AllocatorRef> {
    if options.whole_limit { fixed(options) } else { bfc(Policy::tensorflow(), usize::MAX, options) }
}

fn fixed(options: &FactoryOptions) -> Result<AllocatorRef> {
    let limit = options.limit.ok_or(Error::Configuration {
        variable: "limit",
        value: "".into(),
        expected: "a number of bytes: the limit is reserved as one region",
    })?;
    bfc(Policy::tensorflow_fixed(), limit, options)
}

fn bfc(policy: Policy, limit: usize, options: &FactoryOptions) -> Result<AllocatorRef> {
    let policy = if options.release_when_stuck { policy.releasing_when_stuck() } else { policy };
    let builder = Central::builder(options.backing_or_default()?).policy(policy);
    let engine = builder.limit(options.limit.unwrap_or(limit)).build_engine();
    Ok(AllocatorRef::with_statistics(engine, options.statistics).erase())
}

/// Refuses the settings of best fit with coalescing, which other engines would have to ignore.
fn refuse_settings_of_bfc(options: &FactoryOptions) -> Result<()> {
    let set = [("growth", "whole", options.whole_limit), ("release", "1", options.release_when_stuck)];
    match set.into_iter().find(|&(.., on)| on) {
        Some((variable, value, _)) => {
            let expected = "a setting of this allocator: only bfc supports it";
            Err(Error::Configuration { variable, value: value.into(), expected })
        }
        None => Ok(()),
    }
}

/// Wraps an engine other than best fit with coalescing in a handle.
fn handle<A: Allocator + 'static>(engine: A, options: &FactoryOptions) -> Result<AllocatorRef> {
    refuse_settings_of_bfc(options)?;
    Ok(AllocatorRef::with_statistics(engine, options.statistics).erase())
}

/// Creates the `host-pages` allocator, which does not use a backing.
fn host_pages(options: &FactoryOptions) -> Result<AllocatorRef> {
    let limit = options.limit.ok_or(Error::Configuration {
        variable: "limit",
        value: "".into(),
        expected: "a number of bytes: host-pages needs a fixed size",
    })?;
    if let Some(backing) = &options.backing {
        let expected = "a setting of host-pages: it does not use a backing";
        return Err(Error::Configuration { variable: "backing", value: backing.name().into(), expected });
    }
    refuse_node(options, "a setting of host-pages: it cannot place pages on a node")?;
    // The device consists of whole granules, within the limit.
    let size = limit - limit % device::HostPages::GRANULE;
    if size == 0 {
        return Err(Error::Configuration {
            variable: "limit",
            value: limit.to_string().into(),
            expected: "at least 2 MiB, the page size of host-pages",
        });
    }
    let pages = device::HostPages::new(size as u64)?;
    let policy = device::Policy { name: "host-pages", ..device::Policy::orlop() };
    handle(device::DeviceAllocator::new(pages, policy), options)
}

/// The size in bytes of the first segment of an arena created by name.
const ARENA_BYTES: usize = 2 << 20;

fn arena(options: &FactoryOptions) -> Result<AllocatorRef> {
    let limit = options.limit.unwrap_or(usize::MAX);
    let first = ARENA_BYTES.min(limit);
    handle(Arena::with_limit(options.backing_or_default()?, first, limit), options)
}

fn direct<B: Backing + 'static>(backing: B, options: &FactoryOptions) -> Result<AllocatorRef> {
    limited(Direct::engine(backing), options)
}

/// Wraps an engine without a limit of its own in a handle, with a limit adaptor if a limit is set.
fn limited<A: Allocator + 'static>(engine: A, options: &FactoryOptions) -> Result<AllocatorRef> {
    match options.limit {
        Some(limit) => handle(Limit::new(engine, limit), options),
        None => handle(engine, options),
    }
}

fn system(options: &FactoryOptions) -> Result<BackingRef> {
    if let Some(backing) = &options.backing {
        return Ok(Arc::clone(backing));
    }
    refuse_node(options, "a setting of the system's allocator: it cannot place memory on a node")?;
    Ok(Arc::new(System::new()))
}

/// Refuses a NUMA node, for memory that cannot be placed on one.
fn refuse_node(options: &FactoryOptions, expected: &'static str) -> Result<()> {
    options.node.map_or(Ok(()), |node| {
        Err(Error::Configuration { variable: "node", value: node.to_string().into(), expected })
    })
}
