//! Which allocators a context makes for the CPU when none are registered.
//!
//! The rule for the default kind picks a name, and the [`registry`](crate::registry) the factory of that name with the
//! highest priority. The first match wins:
//!
//! 1. a name, from the builder or `ORLOP_CPU_ALLOCATOR`;
//! 2. visitors: `bfc`, because few, large regions are what they register with a device;
//! 3. a NUMA node: a `pool` over pages of that node;
//! 4. else the factory of the highest priority of all: `caching`, unless the program registered one above it.
//!
//! A program that must survive forks gets `caching` in any case, or an error where it asked for something else. The backing
//! is the builder's, else pages of the node, else the one that `ORLOP_CPU_BACKING` names, else the first of
//! [`backing::NAMES`](crate::backing::NAMES): the system's allocator, or the one that a cargo feature put in its place.
//!
//! A context has allocators of its own, so that its figures and budgets are its own. The process's default context, made
//! when none was set ([`Context::current`](super::Context::current)), takes the one that the registry keeps for everybody
//! ([`Registry::allocator`](crate::registry::Registry::allocator)), unless the environment has settings that make it another.
//!
//! Hardened, the choice stands behind an adaptor that finds writes outside of blocks, the one for pinned memory
//! too. With warnings, it stands behind an adaptor that warns of large allocations; with logging, behind a tracking and a
//! logging one.
//!
//! | variable | value |
//! |---|---|
//! | `ORLOP_CPU_ALLOCATOR` | a name in the registry |
//! | `ORLOP_CPU_BACKING` | a name of [`backing::named`](crate::backing::named) |
//! | `ORLOP_CPU_LIMIT` | a byte size (`8GiB`), or a share of the system's memory (`50%`) |
//! | `ORLOP_CPU_GROWTH` | `doubling`, or `whole`: `bfc` takes its limit at once |
//! | `ORLOP_CPU_RELEASE` | `1`: `bfc` gives free regions back when no free chunk fits |
//! | `ORLOP_CPU_HARDENED` | `1`: [`Hardening::full`] |
//! | `ORLOP_CPU_FORK_SAFE` | `1`: [`CpuConfig::fork_safe`] |
//! | `ORLOP_CPU_STATISTICS` | `0`: [`CpuConfig::without_statistics`] |
//! | `ORLOP_CPU_WARN`, `ORLOP_CPU_LOG` | `1` |
//!
//! A variable that is empty is not set. A value that cannot be understood, and a setting that the chosen allocator cannot
//! follow, is an error when the allocator is first needed: nothing is ignored.

use super::environment::{self, FORK_SAFE};
use crate::adaptor::{Hardened, Hardening, LogSwitch, Logging, Tracking, Warn};
use crate::backing::{self, BackingRef, Mmap, Pinned, Visited, Visitor};
use crate::caching::Caching;
use crate::central::{BfcPolicy, Central};
use crate::registry::{FactoryOptions, registry};
use crate::{AllocatorRef, Error, Result};
use std::fmt;
use std::sync::Arc;

/// The engine that visitors are served by.
const FOR_VISITORS: &str = "bfc";
/// The engine over the pages of one NUMA node.
const FOR_NODES: &str = "pool";
/// The engine that is held over forks.
const FOR_FORKS: &str = "caching";

/// Settings for the CPU's default allocator. What is not set is read from the environment only by
/// [`CpuConfig::from_env`].
#[derive(Clone)]
pub struct CpuConfig {
    name: Option<Box<str>>,
    backing: Option<BackingRef>,
    limit: Option<usize>,
    /// The first setting that cannot be understood: variable, value, what is accepted. An error when the allocator is made.
    misread: Option<(&'static str, Box<str>, &'static str)>,
    whole: bool,
    release: bool,
    hardening: Option<Hardening>,
    fork_safe: bool,
    warned: bool,
    node: Option<u32>,
    visitors: Vec<Visitor>,
    log: Option<LogSwitch>,
    statistics: bool,
    /// Whether the registry's kept allocator is taken where no setting forbids it.
    shared: bool,
}

impl Default for CpuConfig {
    fn default() -> Self {
        Self {
            name: None,
            backing: None,
            limit: None,
            misread: None,
            whole: false,
            release: false,
            hardening: None,
            fork_safe: false,
            warned: false,
            node: None,
            visitors: Vec::new(),
            log: None,
            statistics: true,
            shared: false,
        }
    }
}

impl CpuConfig {
    /// Nothing set: rule 4.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// As the variables at the head of this file say. A value that cannot be understood is an error when the allocator is
    /// first needed.
    #[must_use]
    pub fn from_env() -> Self {
        environment::read()
    }

    /// Notes a setting that cannot be understood.
    #[must_use]
    pub(super) fn misread(mut self, variable: &'static str, value: &str, expected: &'static str) -> Self {
        self.misread.get_or_insert((variable, value.into(), expected));
        self
    }

    /// Sharing the registry's allocator where no setting makes it another.
    #[must_use]
    pub(super) fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    /// The allocator of this name in the registry.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Over this backing.
    #[must_use]
    pub fn backing(mut self, backing: BackingRef) -> Self {
        self.backing = Some(backing);
        self
    }

    /// Reserving at most so many bytes; for engines without a limit of their own, handing out at most so many.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = Some(bytes);
        self
    }

    /// The same as a share of the memory that the process may have, from 1 to 100 percent. Other shares, and a system that
    /// does not tell how much that is, are an error when the allocator is first needed.
    #[must_use]
    pub fn limit_percent(self, percent: u8) -> Self {
        match environment::share(u64::from(percent)) {
            Some(bytes) => self.limit(bytes),
            None => self.misread("limit_percent", &percent.to_string(), environment::SHARE),
        }
    }

    /// With memory of this NUMA node. A backing given by [`CpuConfig::backing`] is taken as it is: who gives one says by it
    /// where its pages are.
    #[must_use]
    pub fn node(mut self, node: u32) -> Self {
        self.node = Some(node);
        self
    }

    /// Telling this visitor of every region.
    #[must_use]
    pub fn visitor(mut self, visitor: Visitor) -> Self {
        self.visitors.push(visitor);
        self
    }

    /// `bfc` taking its limit as one region at the first request.
    #[must_use]
    pub fn whole_limit(mut self) -> Self {
        self.whole = true;
        self
    }

    /// `bfc` giving wholly free regions back when no free chunk fits.
    #[must_use]
    pub fn releasing_when_stuck(mut self) -> Self {
        self.release = true;
        self
    }

    /// Behind a [`Hardened`] with these settings, which finds writes behind blocks and after their return. Blocks can then not
    /// be freed by bare address.
    ///
    /// Guard pages are memory of their own: there are none where a limit, a backing, a node or a visitor says where memory
    /// comes from. What was found is a refused free, or with a quarantine
    /// [`Allocator::verify`](crate::Allocator::verify)'s to tell. Returning a block twice, or one that is not ours, needs no
    /// hardening: a block can be dropped once, and bare addresses are looked up, in every build.
    #[must_use]
    pub fn hardened(mut self, hardening: Hardening) -> Self {
        self.hardening = Some(hardening);
        self
    }

    /// Held over forks, so that it works in the child: see
    /// [`CachingBuilder::fork_safe`](crate::caching::CachingBuilder::fork_safe). For the caching engine, with warnings at
    /// most; else the settings cannot be followed.
    ///
    /// This is the allocator of the default kind, and of the kinds that go to it. The one for pinned memory
    /// ([`CpuConfig::make_pinned`]) is not held: pages are not pinned in a child. There, and if another thread was in it at
    /// the fork, it must not be used.
    #[must_use]
    pub fn fork_safe(mut self) -> Self {
        self.fork_safe = true;
        self
    }

    /// With warnings of large single and total allocations.
    #[must_use]
    pub fn warned(mut self) -> Self {
        self.warned = true;
        self
    }

    /// With an allocation log on standard error. The context's switch for it is
    /// [`Context::cpu_log`](super::Context::cpu_log).
    #[must_use]
    pub fn logged(self) -> Self {
        self.logged_by(LogSwitch::new())
    }

    /// The same, switched by `log`.
    #[must_use]
    pub fn logged_by(mut self, log: LogSwitch) -> Self {
        self.log = Some(log);
        self
    }

    /// Without byte statistics, in all and by kind: see [`AllocatorRef::with_statistics`]. Budgets keep accounts of their own
    /// and hold all the same.
    #[must_use]
    pub fn without_statistics(mut self) -> Self {
        self.statistics = false;
        self
    }

    /// The switch of the allocation log, if there is one.
    pub(super) fn log(&self) -> Option<&LogSwitch> {
        self.log.as_ref()
    }

    fn make_backing(&self) -> Result<BackingRef> {
        let inner = match (&self.backing, self.node) {
            (Some(backing), _) => Arc::clone(backing),
            (None, Some(node)) => Arc::new(Mmap::new().node(node)),
            (None, None) => backing::default_backing()?,
        };
        if self.visitors.is_empty() {
            return Ok(inner);
        }
        Ok(Arc::new(Visited::new(inner, self.visitors.clone())))
    }

    /// Makes the allocator by the rule at the head of this file.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownName`] and [`Error::Configuration`] for settings that cannot be followed.
    pub fn make(&self) -> Result<AllocatorRef> {
        if let Some((variable, value, expected)) = self.misread.clone() {
            return Err(Error::Configuration { variable, value, expected });
        }
        let engine = if self.fork_safe { self.make_for_forks()? } else { self.make_engine()? };
        let mut allocator = self.harden(engine);
        if self.warned {
            let warning = Warn::new(allocator);
            allocator = AllocatorRef::with_statistics(warning, self.statistics).erase();
        }
        let Some(log) = &self.log else { return Ok(allocator) };
        let logging =
            Logging::to_writer(Tracking::new(allocator), std::io::stderr()).switched_by(log.clone());
        Ok(AllocatorRef::with_statistics(logging, self.statistics).erase())
    }

    /// By the rule's name, or the best there is.
    fn make_engine(&self) -> Result<AllocatorRef> {
        let name = match (&self.name, self.node) {
            (Some(name), _) => Some(&**name),
            (None, _) if !self.visitors.is_empty() => Some(FOR_VISITORS),
            (None, Some(_)) => Some(FOR_NODES),
            (None, None) => None,
        };
        if self.shared && self.is_plain() {
            return match name {
                Some(name) => registry().allocator(name, self.node),
                None => registry().best_allocator(self.node),
            };
        }
        let options = FactoryOptions {
            backing: if self.visitors.is_empty() { self.backing.clone() } else { Some(self.make_backing()?) },
            limit: self.limit,
            node: self.node,
            whole_limit: self.whole,
            release_when_stuck: self.release,
            statistics: self.statistics,
        };
        match name {
            Some(name) => registry().make(name, &options),
            None => registry().make_best(&options),
        }
    }

    /// Whether a factory is given nothing but a node.
    fn is_plain(&self) -> bool {
        let unbounded = self.limit.is_none() && !self.whole && !self.release;
        unbounded && self.backing.is_none() && self.visitors.is_empty() && self.statistics
    }

    /// The engine that is held over forks.
    fn make_for_forks(&self) -> Result<AllocatorRef> {
        self.check_fork_safe()?;
        let builder = Caching::builder(self.make_backing()?).limit(self.limit.unwrap_or(usize::MAX));
        let builder = builder.fork_safe(true).statistics(self.statistics);
        Ok(builder.try_build()?.erase())
    }

    /// Makes the allocator for pinned host memory: BFC over regions that are pinned where the process has a pinner, and plain
    /// host memory where not. [`Semantics::pinned`](crate::Semantics::pinned) tells which.
    ///
    /// # Errors
    ///
    /// As for [`CpuConfig::make`].
    pub fn make_pinned(&self) -> Result<AllocatorRef> {
        let pinned = Pinned::new(self.make_backing()?);
        // Pages beside it would not be pinned.
        let hardening = self.hardening.map(|hardening| hardening.guard_pages(0));
        let engine = Central::builder(pinned).policy(BfcPolicy::tensorflow()).name("pinned").build_engine();
        let allocator = AllocatorRef::with_statistics(engine, self.statistics).erase();
        Ok(Self { hardening, statistics: self.statistics, ..Self::new() }.harden(allocator))
    }

    /// Only the caching engine is held over forks, and adaptors that lock are not.
    fn check_fork_safe(&self) -> Result<()> {
        let named = self.name.as_deref().filter(|&name| name != FOR_FORKS);
        let other = match named {
            Some(name) => Some(name),
            None if !self.visitors.is_empty() => Some("with visitors"),
            None if self.node.is_some() => Some("on a node"),
            None if self.hardening.is_some() => Some("hardened"),
            None if self.log.is_some() => Some("logged"),
            None if self.whole => Some("with growth=whole"),
            None if self.release => Some("with release=1"),
            None => None,
        };
        let expected = "the caching engine, without adaptors that lock";
        other.map_or(Ok(()), |value| {
            Err(Error::Configuration { variable: FORK_SAFE, value: value.into(), expected })
        })
    }

    fn harden(&self, allocator: AllocatorRef) -> AllocatorRef {
        let Some(hardening) = self.hardening else { return allocator };
        let anywhere = self.limit.is_none() && self.backing.is_none() && self.node.is_none();
        let free = anywhere && self.visitors.is_empty();
        let hardening = if free { hardening } else { hardening.guard_pages(0) };
        AllocatorRef::with_statistics(Hardened::new(allocator, hardening), self.statistics).erase()
    }
}

impl fmt::Debug for CpuConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuConfig")
            .field("name", &self.name)
            .field("limit", &self.limit)
            .field("node", &self.node)
            .field("visitors", &self.visitors.len())
            .field("hardening", &self.hardening)
            .field("fork_safe", &self.fork_safe)
            .field("log", &self.log)
            .field("statistics", &self.statistics)
            .finish_non_exhaustive()
    }
}
