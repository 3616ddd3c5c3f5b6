//! The settings of an allocator, and the choice of the CPU's allocators in a context without registrations.
//!
//! A rule picks a name for the default kind, and the [`registry`](super) the factory of that name
//! with the highest priority. The first match decides:
//!
//! 1. a name, from the builder or from `ORLOP_CPU_ALLOCATOR`;
//! 2. visitors: `bfc`, because they register regions with a device, and it has few, large ones;
//! 3. a NUMA node: a `pool` over pages of that node;
//! 4. else the factory with the highest priority of all: `caching`, unless the program registered one above
//!    it.
//!
//! A program that must survive forks always gets `caching`, or an error if it configured another engine. The
//! backing is the builder's; else pages of the node; else the one that `ORLOP_CPU_BACKING` names; else the
//! first of [`backing::NAMES`](orlop_alloc::backing::NAMES): the system's allocator, or the one that a cargo
//! feature put in its place.
//!
//! A context has allocators of its own, so that its statistics and budgets are its own. The process's default
//! context, created when none was set ([`Context::current`](crate::Context::current)), uses the shared
//! allocator of the registry ([`Registry::allocator`](super::Registry::allocator)), unless the
//! environment configures a different one.
//!
//! With hardening, the allocator is behind an adaptor that detects writes outside of blocks; so is the one
//! for pinned memory. Warnings and logs are observers of its handle.

use super::environment;
use crate::observe::LogSwitch;
use orlop_alloc::adaptor::Hardening;
use orlop_alloc::backing::{BackingRef, Visitor};
use std::fmt;
use std::sync::Arc;

/// The settings of an allocator: of the CPU's in a context, and of those that a
/// [`Registry`](super::Registry) creates. Only [`AllocatorConfig::from_env`] reads the environment, except
/// `ORLOP_CPU_BACKING`, which [`AllocatorConfig::backing_or_default`] reads if no backing is set.
///
/// | variable | value |
/// |---|---|
/// | `ORLOP_CPU_ALLOCATOR` | a name in the registry |
/// | `ORLOP_CPU_BACKING` | a name of [`backing::named`](orlop_alloc::backing::named) |
/// | `ORLOP_CPU_LIMIT` | a byte size (`8GiB`), or a share of the system's memory (`50%`) |
/// | `ORLOP_CPU_GROWTH` | `doubling`, or `whole`: [`AllocatorConfig::whole_limit`] |
/// | `ORLOP_CPU_RELEASE` | `1`: [`AllocatorConfig::release_when_stuck`] |
/// | `ORLOP_CPU_HARDENED` | `1`: [`Hardening::full`] |
/// | `ORLOP_CPU_FORK_SAFE` | `1`: [`AllocatorConfig::fork_safe`] |
/// | `ORLOP_CPU_STATISTICS` | `0`: [`AllocatorConfig::statistics`] |
/// | `ORLOP_CPU_WARN`, `ORLOP_CPU_LOG` | `1` |
///
/// An empty variable counts as not set. Nothing is ignored: a value that cannot be parsed, a setting that the
/// chosen allocator does not support, and a variable `ORLOP_CPU…` that is not in the table are errors when
/// the allocator is created. The error names the variable if the setting is the environment's.
///
/// `ORLOP_CPU_BACKING` names the default backing. Allocators with memory of their own, such as `system`, do
/// not use it.
#[derive(Clone)]
#[non_exhaustive]
pub struct AllocatorConfig {
    /// The backing; `None` selects [`AllocatorConfig::backing_or_default`].
    pub backing: Option<BackingRef>,
    /// The maximum number of reserved bytes; `None` is no limit. Engines without a limit of their own
    /// (`pool`, `pow2`, `direct`, `system`) get an adaptor that bounds live bytes instead; their cached bytes
    /// are not counted.
    pub limit: Option<usize>,
    /// The NUMA node; `None` is no affinity.
    pub node: Option<u32>,
    /// True to reserve the whole limit as one region at the first request, instead of regions that double.
    /// `bfc` supports it and then needs a limit; the other built-in factories refuse it.
    pub whole_limit: bool,
    /// True to release wholly free regions when no free chunk fits, to make room for a larger region. `bfc`
    /// supports it; the other built-in factories refuse it.
    pub release_when_stuck: bool,
    /// True to count bytes, which is the default: see
    /// [`AllocatorRef::with_statistics`](orlop_alloc::AllocatorRef::with_statistics). Budgets have
    /// accounts of their own and apply without it.
    pub statistics: bool,
    pub(super) name: Option<Box<str>>,
    /// The first invalid setting: variable, value, accepted values. It is an error when the allocator is
    /// created.
    pub(super) misread: Option<(&'static str, Box<str>, &'static str)>,
    /// Environment variables that look like settings but are not. They are an error too.
    pub(super) unknown_variables: Box<[Box<str>]>,
    /// The settings as they were read from the environment, if they were.
    pub(super) environment: Option<Arc<Self>>,
    pub(super) hardening: Option<Hardening>,
    pub(super) fork_safe: bool,
    pub(super) warned: bool,
    pub(super) visitors: Vec<Visitor>,
    pub(super) log: Option<LogSwitch>,
    /// Whether the registry's shared allocator is used unless a setting rules it out.
    pub(super) shared: bool,
}

impl Default for AllocatorConfig {
    fn default() -> Self {
        Self {
            backing: None,
            limit: None,
            node: None,
            whole_limit: false,
            release_when_stuck: false,
            statistics: true,
            name: None,
            misread: None,
            unknown_variables: Box::default(),
            environment: None,
            hardening: None,
            fork_safe: false,
            warned: false,
            visitors: Vec::new(),
            log: None,
            shared: false,
        }
    }
}

impl AllocatorConfig {
    /// Creates a configuration without settings: rule 4 applies.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the environment variables listed at [`AllocatorConfig`].
    #[must_use]
    pub fn from_env() -> Self {
        environment::read()
    }

    /// Records an invalid setting.
    #[must_use]
    pub(super) fn misread(mut self, variable: &'static str, value: &str, expected: &'static str) -> Self {
        self.misread.get_or_insert((variable, value.into(), expected));
        self
    }

    /// Uses the registry's shared allocator unless a setting rules it out.
    #[must_use]
    pub(crate) fn shared(mut self) -> Self {
        self.shared = true;
        self
    }

    /// Uses the allocator of this name in the registry.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the backing.
    #[must_use]
    pub fn backing(mut self, backing: BackingRef) -> Self {
        self.backing = Some(backing);
        self
    }

    /// Limits reserved bytes; for engines without a limit of their own, live bytes.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = Some(bytes);
        self
    }

    /// Sets the limit as a share of the memory that the process may use, from 1 to 100 percent. Another
    /// share, and a system that does not report that memory, is an error when the allocator is first needed.
    #[must_use]
    pub fn limit_percent(self, percent: u8) -> Self {
        match environment::share(u64::from(percent)) {
            Some(bytes) => self.limit(bytes),
            None => self.misread("limit_percent", &percent.to_string(), environment::SHARE),
        }
    }

    /// Uses memory of this NUMA node. A backing set by [`AllocatorConfig::backing`] is used unchanged: it
    /// decides where its pages are.
    #[must_use]
    pub fn node(mut self, node: u32) -> Self {
        self.node = Some(node);
        self
    }

    /// Adds a visitor, which is called for every region.
    #[must_use]
    pub fn visitor(mut self, visitor: Visitor) -> Self {
        self.visitors.push(visitor);
        self
    }

    /// Sets whether the whole limit is reserved as one region at the first request.
    #[must_use]
    pub fn whole_limit(mut self, on: bool) -> Self {
        self.whole_limit = on;
        self
    }

    /// Sets whether wholly free regions are released when no free chunk fits.
    #[must_use]
    pub fn release_when_stuck(mut self, on: bool) -> Self {
        self.release_when_stuck = on;
        self
    }

    /// Puts the allocator behind a [`Hardened`](orlop_alloc::adaptor::Hardened) with these settings, which
    /// detects writes past the end of blocks and after their free. Blocks can then not be freed by address.
    ///
    /// Guard pages are separate memory: there are none if a limit, a backing, a node or a visitor decides
    /// where memory comes from. A violation shows as a refused free, or with a quarantine in
    /// [`Allocator::verify`](orlop_alloc::Allocator::verify). Double and foreign frees need no hardening: a
    /// block can be dropped once, and frees by address are checked in every build.
    #[must_use]
    pub fn hardened(mut self, hardening: Hardening) -> Self {
        self.hardening = Some(hardening);
        self
    }

    /// Makes the allocator work in the child of a fork: see
    /// [`AllocatorRef::hold_over_forks`](orlop_alloc::AllocatorRef::hold_over_forks). Only the caching engine
    /// supports this, with no adaptor but warnings; with other settings it is an error.
    ///
    /// It applies to the allocator of the default kind, and to the kinds that it serves. The one for pinned
    /// memory ([`AllocatorConfig::make_pinned`]) is not fork-safe: pages are not pinned in a child. It must
    /// not be used there, nor if another thread was inside it at the fork.
    #[must_use]
    pub fn fork_safe(mut self) -> Self {
        self.fork_safe = true;
        self
    }

    /// Warns of large single and total allocations.
    #[must_use]
    pub fn warned(mut self) -> Self {
        self.warned = true;
        self
    }

    /// Logs allocations to standard error. [`Context::cpu_log`](crate::Context::cpu_log) is the switch of the
    /// log.
    #[must_use]
    pub fn logged(self) -> Self {
        self.logged_by(LogSwitch::new())
    }

    /// Logs allocations to standard error while `log` is on.
    #[must_use]
    pub fn logged_by(mut self, log: LogSwitch) -> Self {
        self.log = Some(log);
        self
    }

    /// Sets whether bytes are counted.
    #[must_use]
    pub fn statistics(mut self, on: bool) -> Self {
        self.statistics = on;
        self
    }

    /// Returns the switch of the allocation log, if there is one.
    pub(crate) fn log(&self) -> Option<&LogSwitch> {
        self.log.as_ref()
    }
}

impl fmt::Debug for AllocatorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllocatorConfig")
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
