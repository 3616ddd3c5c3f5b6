//! Which allocator a context makes for the CPU when nobody registered one (T12, T20).
//!
//! The rule, first match wins:
//!
//! 1. a name, from the builder or `ORLOP_CPU_ALLOCATOR`: that factory of the registry;
//! 2. visitors: `bfc`, because they want to see few, large regions;
//! 3. a NUMA node: a `pool` over pages of that node;
//! 4. else `direct`: the system's allocator, or the one a cargo feature put behind it.
//!
//! With logging, the choice stands behind a tracking and a logging adaptor.

use crate::adaptor::{Logging, Tracking};
use crate::backing::{self, Global, Mmap, Pinned, Visited, Visitor};
use crate::central::{Central, Policy};
use crate::engine::{Direct, Pool};
use crate::registry::{FactoryOptions, registry};
use crate::{AllocatorRef, Error, Result};
use orlop_core::ByteSize;
use std::fmt;
use std::sync::Arc;

/// The variable that names the CPU allocator.
const ALLOCATOR: &str = "ORLOP_CPU_ALLOCATOR";
/// The variable that bounds its reserved bytes: a byte size such as `8GiB`.
const LIMIT: &str = "ORLOP_CPU_LIMIT";
/// The variable that switches the allocation log on: `1`.
const LOG: &str = "ORLOP_CPU_LOG";

/// Settings for the CPU's default allocator. What is not set is read from the environment only by
/// [`CpuConfig::from_env`].
#[derive(Clone, Default)]
pub struct CpuConfig {
    name: Option<Box<str>>,
    backing: Option<Global>,
    limit: Option<usize>,
    /// What the environment says, if it is not a byte size: told when the allocator is made.
    bad_limit: Option<Box<str>>,
    node: Option<u32>,
    visitors: Vec<Visitor>,
    logged: bool,
}

impl CpuConfig {
    /// Nothing set: rule 4.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// As `ORLOP_CPU_ALLOCATOR` (a name), `ORLOP_CPU_BACKING` (a name), `ORLOP_CPU_LIMIT` (a byte size) and
    /// `ORLOP_CPU_LOG` (`1`) say. What they say wrongly is an error when the allocator is first needed.
    #[must_use]
    pub fn from_env() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let limit = variable(LIMIT);
        let parsed = limit.as_ref().and_then(|text| text.parse::<ByteSize>().ok());
        Self {
            name: variable(ALLOCATOR).map(Into::into),
            limit: parsed.and_then(|ByteSize(bytes)| usize::try_from(bytes).ok()),
            bad_limit: limit.filter(|_| parsed.is_none()).map(Into::into),
            logged: variable(LOG).is_some_and(|value| value == "1"),
            ..Self::default()
        }
    }

    /// The allocator of this name in the registry.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Over this backing.
    #[must_use]
    pub fn backing(mut self, backing: Global) -> Self {
        self.backing = Some(backing);
        self
    }

    /// Reserving at most so many bytes, where the engine has a limit.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = Some(bytes);
        self
    }

    /// With memory of this NUMA node.
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

    /// With an allocation log on standard error.
    #[must_use]
    pub fn logged(mut self) -> Self {
        self.logged = true;
        self
    }

    fn make_backing(&self) -> Result<Global> {
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
        if let Some(value) = self.bad_limit.clone() {
            return Err(Error::Configuration {
                variable: LIMIT,
                value,
                expected: "a byte size such as 8GiB",
            });
        }
        let backing = self.make_backing()?;
        let allocator = if let Some(name) = &self.name {
            let options = FactoryOptions { backing: Some(backing), limit: self.limit, node: self.node };
            registry().make(name, &options)?
        } else if !self.visitors.is_empty() {
            let builder = Central::builder(backing).policy(Policy::tensorflow());
            builder.limit(self.limit.unwrap_or(usize::MAX)).build().erase()
        } else if self.node.is_some() {
            Pool::builder(backing).build().erase()
        } else {
            Direct::new(backing).erase()
        };
        if !self.logged {
            return Ok(allocator);
        }
        let tracked = Tracking::new(allocator);
        Ok(AllocatorRef::new(Logging::to_writer(tracked, std::io::stderr())).erase())
    }

    /// Makes the allocator for pinned host memory: BFC over regions that are pinned where somebody can.
    ///
    /// # Errors
    ///
    /// As for [`CpuConfig::make`].
    pub fn make_pinned(&self) -> Result<AllocatorRef> {
        let pinned = Pinned::new(self.make_backing()?);
        Ok(Central::builder(pinned).policy(Policy::tensorflow()).name("pinned").build().erase())
    }
}

impl fmt::Debug for CpuConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuConfig")
            .field("name", &self.name)
            .field("limit", &self.limit)
            .field("node", &self.node)
            .field("visitors", &self.visitors.len())
            .field("logged", &self.logged)
            .finish_non_exhaustive()
    }
}
