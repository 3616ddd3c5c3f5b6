//! The allocators of a configuration: the choice of the factory, and what is around its engine.

use super::{AllocatorConfig, builtin, registry};
use crate::observe::Warn;
use orlop_alloc::adaptor::{Hardened, Tracking};
use orlop_alloc::backing::{BackingRef, Pinned};
use orlop_alloc::caching::Caching;
use orlop_alloc::{AllocatorRef, Error, Result};
use std::sync::Arc;

/// The engine used with visitors.
const FOR_VISITORS: &str = "bfc";
/// The engine used for the pages of one NUMA node.
const FOR_NODES: &str = "pool";
/// The fork-safe engine.
const FOR_FORKS: &str = "caching";

impl AllocatorConfig {
    /// Creates the CPU's allocator by the rule of the module `config`, from the process's registry.
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
        // A handle of its own: the one from a factory may be shared. Tracking gives the ids that a log has.
        let allocator = match self.log {
            Some(_) => AllocatorRef::with_statistics(Tracking::new(allocator), self.statistics).erase(),
            None => AllocatorRef::with_statistics(allocator, self.statistics).erase(),
        };
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
    /// is `true` in the first case.
    ///
    /// It reuses blocks at once, so recording a stream on one is an error. A backend with streams
    /// [registers](crate::Context::register) another allocator for the kind.
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
