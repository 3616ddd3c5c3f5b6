//! Factories: a name, a priority, and the functions that create an allocator or a backing.

use super::unknown;
use orlop_alloc::backing::{BackingRef, Mmap, default_backing};
use orlop_alloc::{AllocatorRef, Error, Result};
use std::fmt;
use std::sync::Arc;

/// Options of an allocator created by a factory.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FactoryOptions {
    /// The backing; `None` selects [`FactoryOptions::backing_or_default`].
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
    /// True to count bytes, which is the default: see [`AllocatorRef::with_statistics`].
    pub statistics: bool,
}

impl Default for FactoryOptions {
    fn default() -> Self {
        Self {
            backing: None,
            limit: None,
            node: None,
            whole_limit: false,
            release_when_stuck: false,
            statistics: true,
        }
    }
}

impl FactoryOptions {
    /// Creates the default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the backing.
    #[must_use]
    pub fn backing(mut self, backing: BackingRef) -> Self {
        self.backing = Some(backing);
        self
    }

    /// Sets the limit in bytes.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = Some(bytes);
        self
    }

    /// Sets the NUMA node.
    #[must_use]
    pub fn node(mut self, node: u32) -> Self {
        self.node = Some(node);
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

    /// Sets whether bytes are counted.
    #[must_use]
    pub fn statistics(mut self, on: bool) -> Self {
        self.statistics = on;
        self
    }

    /// Returns the backing that is set, or else mapped pages on the node that is set, or else the process's
    /// default backing.
    ///
    /// # Errors
    ///
    /// As for [`default_backing`].
    pub fn backing_or_default(&self) -> Result<BackingRef> {
        match (&self.backing, self.node) {
            (Some(backing), _) => Ok(Arc::clone(backing)),
            (None, Some(node)) => Ok(Arc::new(Mmap::new().node(node))),
            (None, None) => default_backing(),
        }
    }
}

/// For the functions of factories: a setting that an engine cannot follow is refused, never ignored. Each
/// `expected` says why, after "is not".
impl FactoryOptions {
    /// Returns the limit, for an engine that cannot be without one.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] if there is none.
    pub fn require_limit(&self, expected: &'static str) -> Result<usize> {
        self.limit.ok_or(Error::Configuration { variable: "limit", value: "".into(), expected })
    }

    /// Refuses a backing, for an engine with memory of its own.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] if one is set.
    pub fn refuse_backing(&self, expected: &'static str) -> Result<()> {
        let refused =
            |value: &str| Err(Error::Configuration { variable: "backing", value: value.into(), expected });
        self.backing.as_ref().map_or(Ok(()), |backing| refused(backing.name()))
    }

    /// Refuses a NUMA node, for memory that cannot be put on one.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] if one is set.
    pub fn refuse_node(&self, expected: &'static str) -> Result<()> {
        self.node.map_or(Ok(()), |node| {
            Err(Error::Configuration { variable: "node", value: node.to_string().into(), expected })
        })
    }

    /// Refuses `whole_limit` and `release_when_stuck`, which mean nothing to other engines than best fit with
    /// coalescing.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] if one of them is set.
    pub fn refuse_bfc_settings(&self) -> Result<()> {
        let set = [("growth", "whole", self.whole_limit), ("release", "1", self.release_when_stuck)];
        match set.into_iter().find(|&(.., on)| on) {
            Some((variable, value, _)) => {
                let expected = "a setting of this allocator: only bfc follows it";
                Err(Error::Configuration { variable, value: value.into(), expected })
            }
            None => Ok(()),
        }
    }
}

type Make<T> = Arc<dyn Fn(&FactoryOptions) -> Result<T> + Send + Sync>;

/// Creates allocators, and optionally backings.
#[derive(Clone)]
pub struct Factory {
    name: Box<str>,
    priority: i32,
    make: Make<AllocatorRef>,
    make_backing: Option<Make<BackingRef>>,
}

impl Factory {
    /// Creates a factory.
    pub fn new(
        name: &str,
        priority: i32,
        make: impl Fn(&FactoryOptions) -> Result<AllocatorRef> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), priority, make: Arc::new(make), make_backing: None }
    }

    /// Adds a function that creates backings.
    #[must_use]
    pub fn with_backing(
        mut self,
        make: impl Fn(&FactoryOptions) -> Result<BackingRef> + Send + Sync + 'static,
    ) -> Self {
        self.make_backing = Some(Arc::new(make));
        self
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the priority; the highest one is preferred.
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// Returns `true` if the factory also creates backings.
    #[must_use]
    pub fn has_backings(&self) -> bool {
        self.make_backing.is_some()
    }

    /// Creates an allocator.
    ///
    /// # Errors
    ///
    /// The factory's own errors.
    pub fn make(&self, options: &FactoryOptions) -> Result<AllocatorRef> {
        (self.make)(options)
    }

    /// Creates a backing.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownName`](orlop_alloc::Error::UnknownName) if the factory creates no backings; the
    /// factory's own errors.
    pub fn make_backing(&self, options: &FactoryOptions) -> Result<BackingRef> {
        match &self.make_backing {
            Some(make) => make(options),
            None => Err(unknown("backing", &self.name)),
        }
    }
}

impl fmt::Debug for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Factory")
            .field("name", &self.name)
            .field("priority", &self.priority)
            .field("has_backings", &self.has_backings())
            .finish_non_exhaustive()
    }
}
