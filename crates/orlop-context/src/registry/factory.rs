//! Factories: a name, a priority, and the functions that create an allocator or a backing.

use super::{AllocatorConfig, unknown};
use orlop_alloc::backing::{self, BackingRef, Mmap, Visited};
use orlop_alloc::{AllocatorRef, Error, Result};
use std::fmt;
use std::sync::Arc;

/// For the functions of factories: a setting that an engine cannot follow is refused, never ignored. Each
/// `expected` says why, after "is not". The errors have the names of the builder's settings; the registry
/// replaces them if a setting comes from the environment.
impl AllocatorConfig {
    /// Returns the backing that is set, or else mapped pages on the node that is set, or else the process's
    /// default backing; with the visitors in front of it.
    ///
    /// # Errors
    ///
    /// As for [`default_backing`](orlop_alloc::backing::default_backing).
    pub fn backing_or_default(&self) -> Result<BackingRef> {
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

type Make<T> = Arc<dyn Fn(&AllocatorConfig) -> Result<T> + Send + Sync>;

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
        make: impl Fn(&AllocatorConfig) -> Result<AllocatorRef> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), priority, make: Arc::new(make), make_backing: None }
    }

    /// Adds a function that creates backings.
    #[must_use]
    pub fn with_backing(
        mut self,
        make: impl Fn(&AllocatorConfig) -> Result<BackingRef> + Send + Sync + 'static,
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

    /// Creates an allocator.
    ///
    /// # Errors
    ///
    /// The factory's own errors.
    pub fn make(&self, config: &AllocatorConfig) -> Result<AllocatorRef> {
        (self.make)(config)
    }

    /// Creates a backing.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownName`](orlop_alloc::Error::UnknownName) if the factory creates no backings; the
    /// factory's own errors.
    pub fn make_backing(&self, config: &AllocatorConfig) -> Result<BackingRef> {
        match &self.make_backing {
            Some(make) => make(config),
            None => Err(unknown("backing", &self.name)),
        }
    }
}

impl fmt::Debug for Factory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Factory")
            .field("name", &self.name)
            .field("priority", &self.priority)
            .field("has_backings", &self.make_backing.is_some())
            .finish_non_exhaustive()
    }
}
