//! Which allocator a context makes for the CPU when nobody registered one (T12, T20).
//!
//! The rule, first match wins:
//!
//! 1. a name, from the builder or `ORLOP_CPU_ALLOCATOR`: that factory of the registry;
//! 2. visitors: `bfc`, because they want to see few, large regions;
//! 3. a NUMA node: a `pool` over pages of that node;
//! 4. else `caching`, over the system's memory or that of the allocator that a cargo feature put behind it.
//!
//! Hardened, the choice stands behind an adaptor that finds writes where nothing is the writer's, the one for pinned memory
//! too. With warnings, it stands behind an adaptor that warns of large allocations (T13); with logging,
//! behind a tracking and a logging one.
//!
//! | variable | value |
//! |---|---|
//! | `ORLOP_CPU_ALLOCATOR` | a name in the registry |
//! | `ORLOP_CPU_BACKING` | a name of [`backing::named`](crate::backing::named) |
//! | `ORLOP_CPU_LIMIT` | a byte size (`8GiB`), or a share of the system's memory (`50%`) |
//! | `ORLOP_CPU_GROWTH` | `doubling`, or `whole`: `bfc` takes its limit at once |
//! | `ORLOP_CPU_RELEASE` | `1`: `bfc` gives free regions back when it is stuck |
//! | `ORLOP_CPU_HARDENED` | `1`: [`Hardening::full`] |
//! | `ORLOP_CPU_FORK_SAFE` | `1`: [`CpuConfig::fork_safe`] |
//! | `ORLOP_CPU_WARN`, `ORLOP_CPU_LOG` | `1` |

use crate::adaptor::{Hardened, Hardening, Logging, Tracking, Warn};
use crate::backing::{self, Global, Mmap, Pinned, Visited, Visitor};
use crate::caching::Caching;
use crate::central::{Central, Policy};
use crate::engine::Pool;
use crate::registry::{FactoryOptions, registry};
use crate::{AllocatorRef, Error, Result};
use orlop_core::ByteSize;
use std::fmt;
use std::sync::Arc;

/// The variable that names the CPU allocator.
const ALLOCATOR: &str = "ORLOP_CPU_ALLOCATOR";
/// The variable that bounds its reserved bytes: a byte size such as `8GiB`.
const LIMIT: &str = "ORLOP_CPU_LIMIT";
/// The variable that says how BFC grows.
const GROWTH: &str = "ORLOP_CPU_GROWTH";
/// The variable that lets BFC give free regions back when it is stuck: `1`.
const RELEASE: &str = "ORLOP_CPU_RELEASE";
/// The variable that hardens it: `1`.
const HARDENED: &str = "ORLOP_CPU_HARDENED";
/// The variable that holds it over forks: `1`.
const FORK_SAFE: &str = "ORLOP_CPU_FORK_SAFE";
/// The variable that switches warnings on: `1`.
const WARN: &str = "ORLOP_CPU_WARN";
/// The variable that switches the allocation log on: `1`.
const LOG: &str = "ORLOP_CPU_LOG";

/// The name of the allocator that growth and release apply to.
const BFC: &str = "bfc";

/// Settings for the CPU's default allocator. What is not set is read from the environment only by
/// [`CpuConfig::from_env`].
#[derive(Clone, Default)]
pub struct CpuConfig {
    name: Option<Box<str>>,
    backing: Option<Global>,
    limit: Option<usize>,
    /// What the environment says and nobody understands: variable, value, what is accepted. Told when the
    /// allocator is made.
    wrong: Option<(&'static str, Box<str>, &'static str)>,
    whole: bool,
    release: bool,
    hardening: Option<Hardening>,
    fork_safe: bool,
    warned: bool,
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

    /// As the variables at the head of this file say. What they say wrongly is an error when the allocator is
    /// first needed.
    #[must_use]
    pub fn from_env() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let on = |name| variable(name).is_some_and(|value| value == "1");
        let mut config = Self {
            name: variable(ALLOCATOR).map(Into::into),
            release: on(RELEASE),
            hardening: on(HARDENED).then(Hardening::full),
            fork_safe: on(FORK_SAFE),
            warned: on(WARN),
            logged: on(LOG),
            ..Self::default()
        };
        if let Some(text) = variable(LIMIT) {
            config.limit = bytes(&text);
            if config.limit.is_none() {
                config.wrong = Some((LIMIT, text.into(), "a byte size such as 8GiB, or a share such as 50%"));
            }
        }
        match variable(GROWTH) {
            Some(text) if text == "whole" => config.whole = true,
            Some(text) if text != "doubling" => {
                config.wrong = Some((GROWTH, text.into(), "doubling or whole"));
            }
            _ => {}
        }
        config
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

    /// `bfc` taking its limit as one region at the first request.
    #[must_use]
    pub fn whole_limit(mut self) -> Self {
        self.whole = true;
        self
    }

    /// `bfc` giving wholly free regions back when it is stuck.
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
        if let Some((variable, value, expected)) = self.wrong.clone() {
            return Err(Error::Configuration { variable, value, expected });
        }
        self.check_fork_safe()?;
        let backing = self.make_backing()?;
        let bfc = self.name.as_deref() == Some(BFC);
        let mut allocator = if bfc || (self.name.is_none() && !self.visitors.is_empty()) {
            let policy = if self.whole { Policy::tensorflow_fixed() } else { Policy::tensorflow() };
            let policy = if self.release { policy.releasing_when_stuck() } else { policy };
            Central::builder(backing).policy(policy).limit(self.limit.unwrap_or(usize::MAX)).build().erase()
        } else if let Some(name) = self.name.as_ref().filter(|_| !self.fork_safe) {
            let options = FactoryOptions { backing: Some(backing), limit: self.limit, node: self.node };
            registry().make(name, &options)?
        } else if self.node.is_some() {
            Pool::builder(backing).build().erase()
        } else {
            let builder = Caching::builder(backing).limit(self.limit.unwrap_or(usize::MAX));
            builder.fork_safe(self.fork_safe).try_build()?.erase()
        };
        allocator = self.harden(allocator);
        if self.warned {
            allocator = AllocatorRef::new(Warn::new(allocator)).erase();
        }
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
        // Pages beside it would not be pinned.
        let hardening = self.hardening.map(|hardening| hardening.guard_pages(0));
        let allocator = Central::builder(pinned).policy(Policy::tensorflow()).name("pinned").build().erase();
        Ok(Self { hardening, ..Self::new() }.harden(allocator))
    }

    /// Only the caching engine is held over forks, and adaptors that lock are not.
    fn check_fork_safe(&self) -> Result<()> {
        let named = self.name.as_deref().filter(|&name| name != "caching");
        let other = match named {
            _ if !self.fork_safe => None,
            Some(name) => Some(name),
            None if !self.visitors.is_empty() => Some("with visitors"),
            None if self.node.is_some() => Some("on a node"),
            None if self.hardening.is_some() => Some("hardened"),
            None if self.logged => Some("logged"),
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
        AllocatorRef::new(Hardened::new(allocator, hardening)).erase()
    }
}

/// A byte size, or a share of the system's memory.
fn bytes(text: &str) -> Option<usize> {
    let Some(share) = text.strip_suffix('%') else {
        return text.parse::<ByteSize>().ok().and_then(|ByteSize(bytes)| usize::try_from(bytes).ok());
    };
    let share = share.trim().parse::<u64>().ok().filter(|share| (1..=100).contains(share))?;
    // In this order: a percent of a percent is nothing to lose.
    usize::try_from(crate::system_memory::total()? / 100 * share).ok()
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
            .field("logged", &self.logged)
            .finish_non_exhaustive()
    }
}
