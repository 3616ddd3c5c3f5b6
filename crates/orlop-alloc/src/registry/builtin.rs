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
use crate::caching::Caching;
use crate::central::{Central, Policy};
use crate::device;
use crate::engine::{Arena, Direct, Pool, Pow2};
use crate::{Allocator, AllocatorRef, Error, Result};
use std::sync::Arc;

/// Registers the factories of this crate. The same ones registered again change nothing.
pub fn register_builtin(registry: &Registry) {
    let factories = [
        Factory::new("caching", 110, caching),
        Factory::new("bfc", 100, growing),
        Factory::new("pool", 70, |options| {
            Ok(limited(Pool::builder(options.backing_or_default()?).build_engine(), options))
        }),
        Factory::new("pow2", 60, |options| Ok(limited(Pow2::engine(options.backing_or_default()?), options))),
        Factory::new("arena", 30, arena),
        Factory::new("direct", 50, |options| Ok(direct(options.backing_or_default()?, options))),
        Factory::new("bfc-fixed", 20, fixed),
        Factory::new("system", 10, |options| Ok(direct(system(options), options))),
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
    Ok(builder.limit(options.limit.unwrap_or(usize::MAX)).build().erase())
}

fn growing(options: &FactoryOptions) -> Result<AllocatorRef> {
    let builder = Central::builder(options.backing_or_default()?).policy(Policy::tensorflow());
    Ok(builder.limit(options.limit.unwrap_or(usize::MAX)).build().erase())
}

fn fixed(options: &FactoryOptions) -> Result<AllocatorRef> {
    let limit = options.limit.ok_or(Error::Configuration {
        variable: "limit",
        value: "".into(),
        expected: "a number of bytes: bfc-fixed takes its limit as one region",
    })?;
    let builder = Central::builder(options.backing_or_default()?).policy(Policy::tensorflow_fixed());
    Ok(builder.limit(limit).build().erase())
}

/// It has memory of its own: the backing of the options is not asked.
fn host_pages(options: &FactoryOptions) -> Result<AllocatorRef> {
    let limit = options.limit.ok_or(Error::Configuration {
        variable: "limit",
        value: "".into(),
        expected: "a number of bytes: host-pages is a device of that size",
    })?;
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
    Ok(device::DeviceAllocator::new(pages, policy).into_ref().erase())
}

/// The first segment of an arena made by name.
const ARENA_BYTES: usize = 2 << 20;

fn arena(options: &FactoryOptions) -> Result<AllocatorRef> {
    let limit = options.limit.unwrap_or(usize::MAX);
    let first = ARENA_BYTES.min(limit);
    Ok(AllocatorRef::new(Arena::with_limit(options.backing_or_default()?, first, limit)).erase())
}

fn direct<B: Backing + 'static>(backing: B, options: &FactoryOptions) -> AllocatorRef {
    limited(Direct::engine(backing), options)
}

/// For engines without a limit of their own.
fn limited<A: Allocator + 'static>(engine: A, options: &FactoryOptions) -> AllocatorRef {
    match options.limit {
        Some(limit) => AllocatorRef::new(Limit::new(engine, limit)).erase(),
        None => AllocatorRef::new(engine).erase(),
    }
}

fn system(options: &FactoryOptions) -> Global {
    options.backing.clone().unwrap_or_else(|| Arc::new(System::new()))
}
