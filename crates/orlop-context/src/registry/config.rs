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

use super::{builtin, environment, registry};
use crate::observe::{LogSwitch, Warn};
use orlop_alloc::adaptor::{Hardened, Hardening};
use orlop_alloc::backing::{BackingRef, Pinned, Visitor};
use orlop_alloc::caching::Caching;
use orlop_alloc::{AllocatorRef, Error, Result};
use std::fmt;
use std::sync::Arc;

/// The engine used with visitors.
const FOR_VISITORS: &str = "bfc";
/// The engine used for the pages of one NUMA node.
const FOR_NODES: &str = "pool";
/// The fork-safe engine.
const FOR_FORKS: &str = "caching";

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
/// An empty variable counts as not set. A value that cannot be parsed, a setting that the chosen allocator
/// does not support, and a variable `ORLOP_CPU…` that is not in the table, is an error when the allocator is
/// created: nothing is ignored. The error names the variable if the setting is the environment's.
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
    /// True to count bytes, which is the default: see [`AllocatorRef::with_statistics`]. Budgets have
    /// accounts of their own and apply without it.
    pub statistics: bool,
    pub(super) name: Option<Box<str>>,
    /// The first invalid setting: variable, value, accepted values. It is an error when the allocator is
    /// created.
    pub(super) misread: Option<(&'static str, Box<str>, &'static str)>,
    /// Variables of the environment that are no settings. They are an error too.
    pub(super) unknown_variables: Box<[Box<str>]>,
    /// The settings as they were read from the environment, if they were.
    pub(super) environment: Option<Arc<Self>>,
    hardening: Option<Hardening>,
    pub(super) fork_safe: bool,
    warned: bool,
    pub(super) visitors: Vec<Visitor>,
    log: Option<LogSwitch>,
    /// Whether the registry's shared allocator is used unless a setting rules it out.
    shared: bool,
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

    /// Puts the allocator behind a [`Hardened`] with these settings, which detects writes past the end of
    /// blocks and after their free. Blocks can then not be freed by address.
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

    /// Makes the allocator work in the child of a fork: see [`AllocatorRef::hold_over_forks`]. Only the
    /// caching engine supports this, with no adaptor but warnings; with other settings it is an error.
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

    /// Creates the CPU's allocator by the rule above, from the process's registry.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownName`], [`Error::Configuration`] and [`Error::UnknownVariables`] for settings that
    /// cannot be followed.
    pub fn make(&self) -> Result<AllocatorRef> {
        self.make_by_rule().map_err(|error| self.name_variable(error))
    }

    fn make_by_rule(&self) -> Result<AllocatorRef> {
        let name = match (&self.name, self.node) {
            (Some(name), _) => Some(&**name),
            (None, _) if self.fork_safe => Some(FOR_FORKS),
            (None, _) if !self.visitors.is_empty() => Some(FOR_VISITORS),
            (None, Some(_)) => Some(FOR_NODES),
            (None, None) => None,
        };
        match name {
            Some(name) if self.shared && self.is_plain() => {
                self.complete(name, |_| registry().allocator(name, self.node))
            }
            None if self.shared && self.is_plain() => {
                self.complete("", |_| registry().best_allocator(self.node))
            }
            Some(name) => registry().make(name, self),
            None => registry().make_best(self),
        }
    }

    /// Returns `true` if no setting but a node goes to the factory.
    fn is_plain(&self) -> bool {
        let unbounded = self.limit.is_none() && !self.whole_limit && !self.release_when_stuck;
        let unchanged = unbounded && self.backing.is_none() && self.visitors.is_empty();
        unchanged && self.statistics && !self.fork_safe
    }

    /// Completes an allocator of the factory `name`, which `make` creates: with the settings that are not an
    /// engine's.
    pub(super) fn complete(
        &self,
        name: &str,
        make: impl FnOnce(&Self) -> Result<AllocatorRef>,
    ) -> Result<AllocatorRef> {
        self.make_complete(name, make).map_err(|error| self.name_variable(error))
    }

    fn make_complete(
        &self,
        name: &str,
        make: impl FnOnce(&Self) -> Result<AllocatorRef>,
    ) -> Result<AllocatorRef> {
        self.check_read()?;
        // Not the registry's factory of that name: a program may have replaced it.
        let engine = if self.fork_safe {
            self.make_for_forks(name)?
        } else if self.visitors.is_empty() {
            make(self)?
        } else {
            // A factory finds the visitors in the backing.
            let backing = Some(self.backing_or_default()?);
            make(&Self { backing, visitors: Vec::new(), ..self.clone() })?
        };
        let allocator = self.harden(engine);
        if !self.warned && self.log.is_none() {
            return Ok(allocator);
        }
        // A handle of its own: the one from a factory may be shared.
        let allocator = AllocatorRef::with_statistics(allocator, self.statistics).erase();
        if self.warned {
            allocator.add_observer(Arc::new(Warn::new()));
        }
        if let Some(switch) = &self.log {
            switch.standard_error().attach(&allocator);
        }
        Ok(allocator)
    }

    /// Creates the fork-safe engine.
    fn make_for_forks(&self, name: &str) -> Result<AllocatorRef> {
        self.check_fork_safe(name)?;
        let builder = Caching::builder(self.backing_or_default()?).limit(self.limit.unwrap_or(usize::MAX));
        let allocator = AllocatorRef::with_statistics(builder.build(), self.statistics);
        allocator.hold_over_forks()?;
        Ok(allocator.erase())
    }

    /// Creates the allocator for pinned host memory: BFC over regions that are pinned if the process has a
    /// pinner, and over ordinary host memory if not. [`Semantics::pinned`](orlop_alloc::Semantics::pinned)
    /// tells which.
    ///
    /// The settings apply to it as to the allocator of [`AllocatorConfig::make`]: the limit bounds each of
    /// the two. The name chooses only the other's engine, and [`AllocatorConfig::fork_safe`] has no meaning
    /// here.
    ///
    /// # Errors
    ///
    /// As for [`AllocatorConfig::make`].
    pub fn make_pinned(&self) -> Result<AllocatorRef> {
        // Guard pages beside the backing, which would not be pinned, are ruled out by the backing.
        let pinned: BackingRef = Arc::new(Pinned::new(self.backing_or_default()?));
        let config = Self { backing: Some(pinned), visitors: Vec::new(), fork_safe: false, ..self.clone() };
        config.complete("pinned", builtin::pinned)
    }

    /// Returns an error for settings that are not fork-safe: another engine, or adaptors with locks.
    fn check_fork_safe(&self, name: &str) -> Result<()> {
        let other = match Some(name).filter(|&name| name != FOR_FORKS) {
            Some(name) => Some(name),
            None if !self.visitors.is_empty() => Some("with visitors"),
            None if self.node.is_some() => Some("on a node"),
            None if self.hardening.is_some() => Some("hardened"),
            None if self.log.is_some() => Some("logged"),
            None if self.whole_limit => Some("with growth=whole"),
            None if self.release_when_stuck => Some("with release=1"),
            None => None,
        };
        let expected = "the caching engine, without adaptors that lock";
        other.map_or(Ok(()), |value| {
            Err(Error::Configuration { variable: "fork_safe", value: value.into(), expected })
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
