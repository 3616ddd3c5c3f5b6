//! Factories: a name, a priority, and the functions that create an allocator or a backing.

use super::{AllocatorConfig, unknown};
use orlop_alloc::backing::BackingRef;
use orlop_alloc::{AllocatorRef, Result};
use std::fmt;
use std::sync::Arc;

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
            .field("has_backings", &self.has_backings())
            .finish_non_exhaustive()
    }
}
