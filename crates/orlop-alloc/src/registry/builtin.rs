//! The factories that every registry of the process begins with.
//!
//! | name | engine | priority | limit |
//! |---|---|---|---|
//! | `caching` | size classes per thread over best fit that grows in place: the CPU's default | 110 | the engine's |
//! | `bfc` | best fit with coalescing, growing regions | 100 | the engine's |
//! | `pool` | exact sizes, LRU-bounded | 70 | by adaptor |
//! | `pow2` | powers of two, cached per thread | 60 | by adaptor |
//! | `direct` | a region per block, from the default backing | 50 | by adaptor |
//! | `arena` | bump allocation; memory comes back at a rewind | 30 | the engine's |
//! | `host-pages` | the device engine over pages that move where they are needed (Linux); one lock | 25 | the engine's, required, in steps of 2 MiB |
//! | `bfc-fixed` | best fit with coalescing over one region | 20 | the engine's, and required |
//! | `system` | a region per block, from the system's allocator | 10 | by adaptor |

use super::{Factory, FactoryOptions, Registration, Registry};
use crate::adaptor::Limit;
use crate::backing::{Backing, Global, System};
use crate::bfc::{Bfc, BfcPolicy};
use crate::caching::Caching;
use crate::device;
use crate::engine::{Arena, Direct, Pool, Pow2};
use crate::{Allocator, AllocatorRef, Error, Result};
use std::sync::Arc;

/// Registers the factories of this crate. The same ones registered again change nothing.
///
/// They follow all [`FactoryOptions`], or refuse with [`Error::Configuration`] what they cannot follow.
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
    // Where no such pages are, nothing has their name.
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
    if options.whole_limit { fixed(options) } else { bfc(BfcPolicy::tensorflow(), usize::MAX, options) }
}

fn fixed(options: &FactoryOptions) -> Result<AllocatorRef> {
    let limit = options.limit.ok_or(Error::Configuration {
        variable: "limit",
        value: "".into(),
        expected: "a number of bytes: the limit is taken as one region",
    })?;
    bfc(BfcPolicy::tensorflow_fixed(), limit, options)
}

fn bfc(policy: BfcPolicy, limit: usize, options: &FactoryOptions) -> Result<AllocatorRef> {
    let policy = if options.release_when_stuck { policy.releasing_when_stuck() } else { policy };
    let builder = Bfc::builder(options.backing_or_default()?).policy(policy);
    let engine = builder.limit(options.limit.unwrap_or(limit)).build_engine();
    Ok(AllocatorRef::with_statistics(engine, options.statistics).erase())
}

/// Settings of best fit with coalescing mean nothing to other engines: better refused than ignored.
fn refuse_settings_of_bfc(options: &FactoryOptions) -> Result<()> {
    let set = [("growth", "whole", options.whole_limit), ("release", "1", options.release_when_stuck)];
    match set.into_iter().find(|&(.., on)| on) {
        Some((variable, value, _)) => {
            let expected = "a setting of this allocator: only bfc follows it";
            Err(Error::Configuration { variable, value: value.into(), expected })
        }
        None => Ok(()),
    }
}

/// An engine of one region a block, or of caches, behind a handle.
fn handle<A: Allocator + 'static>(engine: A, options: &FactoryOptions) -> Result<AllocatorRef> {
    refuse_settings_of_bfc(options)?;
    Ok(AllocatorRef::with_statistics(engine, options.statistics).erase())
}

/// It has memory of its own.
fn host_pages(options: &FactoryOptions) -> Result<AllocatorRef> {
    let limit = options.limit.ok_or(Error::Configuration {
        variable: "limit",
        value: "".into(),
        expected: "a number of bytes: host-pages is a device of that size",
    })?;
    if let Some(backing) = &options.backing {
        let expected = "a setting of host-pages: it has memory of its own";
        return Err(Error::Configuration { variable: "backing", value: backing.name().into(), expected });
    }
    refuse_node(options, "a setting of host-pages: its pages are where they were last moved to")?;
    // It is a device of whole granules: no more of them than the limit allows.
    let size = limit - limit % device::HostPages::GRANULE;
    if size == 0 {
        return Err(Error::Configuration {
            variable: "limit",
            value: limit.to_string().into(),
            expected: "at least 2 MiB: host-pages has pages of that size",
        });
    }
    let pages = device::HostPages::new(size as u64)?;
    let policy = device::Policy { name: "host-pages", ..device::Policy::orlop() };
    handle(device::DeviceAllocator::new(pages, policy), options)
}

/// The first segment of an arena made by name.
const ARENA_BYTES: usize = 2 << 20;

fn arena(options: &FactoryOptions) -> Result<AllocatorRef> {
    let limit = options.limit.unwrap_or(usize::MAX);
    let first = ARENA_BYTES.min(limit);
    handle(Arena::with_limit(options.backing_or_default()?, first, limit), options)
}

fn direct<B: Backing + 'static>(backing: B, options: &FactoryOptions) -> Result<AllocatorRef> {
    limited(Direct::engine(backing), options)
}

/// For engines without a limit of their own.
fn limited<A: Allocator + 'static>(engine: A, options: &FactoryOptions) -> Result<AllocatorRef> {
    match options.limit {
        Some(limit) => handle(Limit::new(engine, limit), options),
        None => handle(engine, options),
    }
}

fn system(options: &FactoryOptions) -> Result<Global> {
    if let Some(backing) = &options.backing {
        return Ok(Arc::clone(backing));
    }
    refuse_node(options, "a setting of the system's allocator: it puts memory where it likes")?;
    Ok(Arc::new(System::new()))
}

/// For memory that cannot be put on a NUMA node.
fn refuse_node(options: &FactoryOptions, expected: &'static str) -> Result<()> {
    options.node.map_or(Ok(()), |node| {
        Err(Error::Configuration { variable: "node", value: node.to_string().into(), expected })
    })
}
