//! Allocator factories by name and priority, with where each was registered (T6, L20).
//!
//! A program chooses its allocator by a name in a configuration, or takes the one of highest priority. Who
//! offers what must be visible when that surprises, so every registration remembers its source location, and
//! a second one of the same name and priority changes nothing and says where the first was made.
//!
//! There is one registry for the process, [`registry`], which knows the built-in factories; tests and
//! embedders make their own. A backend registers all it has in one function, which the program calls.

mod builtin;

pub use self::builtin::register_builtin;

use crate::backing::{Global, Mmap, default_backing};
use crate::{AllocatorRef, Error, Result};
use dashmap::DashMap;
use std::cmp::Reverse;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What a factory is asked for.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct FactoryOptions {
    /// Where memory is to come from; else [`FactoryOptions::backing_or_default`] decides.
    pub backing: Option<Global>,
    /// The most bytes to hold; `None` is no limit. Engines without a limit of their own (`pool`, `pow2`, `direct`)
    /// get an adaptor that bounds live bytes; what they cache is not counted.
    pub limit: Option<usize>,
    /// The NUMA node to be on; `None` is no affinity.
    pub node: Option<u32>,
}

impl FactoryOptions {
    /// Nothing in particular.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Over this backing.
    #[must_use]
    pub fn backing(mut self, backing: Global) -> Self {
        self.backing = Some(backing);
        self
    }

    /// Holding at most so many bytes.
    #[must_use]
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = Some(bytes);
        self
    }

    /// On this NUMA node.
    #[must_use]
    pub fn node(mut self, node: u32) -> Self {
        self.node = Some(node);
        self
    }

    /// The backing given; else pages of the node given; else the process's default backing.
    ///
    /// # Errors
    ///
    /// Those of [`default_backing`].
    pub fn backing_or_default(&self) -> Result<Global> {
        match (&self.backing, self.node) {
            (Some(backing), _) => Ok(Arc::clone(backing)),
            (None, Some(node)) => Ok(Arc::new(Mmap::new().node(node))),
            (None, None) => default_backing(),
        }
    }
}

type Make<T> = Arc<dyn Fn(&FactoryOptions) -> Result<T> + Send + Sync>;

/// Makes allocators, and backings if it can.
#[derive(Clone)]
pub struct Factory {
    name: Box<str>,
    priority: i32,
    make: Make<AllocatorRef>,
    make_backing: Option<Make<Global>>,
}

impl Factory {
    /// A factory of this name and priority.
    pub fn new(
        name: &str,
        priority: i32,
        make: impl Fn(&FactoryOptions) -> Result<AllocatorRef> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), priority, make: Arc::new(make), make_backing: None }
    }

    /// The same, able to make backings too, per NUMA node.
    #[must_use]
    pub fn with_backing(
        mut self,
        make: impl Fn(&FactoryOptions) -> Result<Global> + Send + Sync + 'static,
    ) -> Self {
        self.make_backing = Some(Arc::new(make));
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The higher one is preferred.
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// Whether it makes backings too.
    #[must_use]
    pub fn makes_backings(&self) -> bool {
        self.make_backing.is_some()
    }

    /// Makes an allocator.
    ///
    /// # Errors
    ///
    /// The factory's own.
    pub fn make(&self, options: &FactoryOptions) -> Result<AllocatorRef> {
        (self.make)(options)
    }

    /// Makes a backing.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownName`] if it makes none; the factory's own.
    pub fn make_backing(&self, options: &FactoryOptions) -> Result<Global> {
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
            .field("makes_backings", &self.makes_backings())
            .finish_non_exhaustive()
    }
}

/// What became of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a registration that came second changed nothing"]
pub enum Registration {
    /// The factory is registered.
    New,
    /// There was one of this name and priority, which stays.
    AlreadyRegistered {
        /// Where that one was registered.
        at: &'static Location<'static>,
    },
}

/// A registered factory, to print.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Registered {
    /// Its name.
    pub name: Box<str>,
    /// The higher one is preferred.
    pub priority: i32,
    /// Where it was registered.
    pub at: &'static Location<'static>,
}

impl fmt::Display for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (priority {}, registered at {})", self.name, self.priority, self.at)
    }
}

#[derive(Debug, Clone)]
struct Entry {
    factory: Factory,
    at: &'static Location<'static>,
    /// Among equal priorities the earlier one is preferred.
    order: u64,
}

impl Entry {
    /// Sorts the preferred one first.
    fn rank(&self) -> (Reverse<i32>, u64) {
        (Reverse(self.factory.priority), self.order)
    }
}

/// Factories by name and priority. Shared freely between threads.
///
/// ```
/// use orlop_alloc::registry::{Factory, FactoryOptions, Registration, Registry};
/// use orlop_alloc::{engine::Direct, Request};
///
/// let registry = Registry::new();
/// let plain = Factory::new("plain", 10, |options| Ok(Direct::new(options.backing_or_default()?).erase()));
/// assert_eq!(registry.register(plain.clone()), Registration::New);
/// assert!(matches!(registry.register(plain), Registration::AlreadyRegistered { .. }));
///
/// let allocator = registry.make("plain", &FactoryOptions::new())?;
/// assert!(allocator.allocate(&Request::new(100)).is_ok());
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Registry {
    /// Each list has one entry per priority, the preferred one first.
    factories: DashMap<Box<str>, Vec<Entry>>,
    registrations: AtomicU64,
}

impl Registry {
    /// One without factories.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One that knows the built-in factories (see [`register_builtin`]).
    #[must_use]
    pub fn with_builtin() -> Self {
        let registry = Self::new();
        register_builtin(&registry);
        registry
    }

    /// Registers a factory from the caller's place in the source. If there is one of its name and priority
    /// already, nothing changes.
    #[track_caller]
    pub fn register(&self, factory: Factory) -> Registration {
        let at = Location::caller();
        let mut entries = self.factories.entry(factory.name.clone()).or_default();
        if let Some(first) = entries.iter().find(|entry| entry.factory.priority == factory.priority) {
            return Registration::AlreadyRegistered { at: first.at };
        }
        let order = self.registrations.fetch_add(1, Ordering::Relaxed);
        entries.push(Entry { factory, at, order });
        entries.sort_by_key(Entry::rank);
        Registration::New
    }

    /// The factory of this name with the highest priority.
    #[must_use]
    pub fn factory(&self, name: &str) -> Option<Factory> {
        self.factories.get(name)?.first().map(|entry| entry.factory.clone())
    }

    /// The factory with the highest priority of all; the one registered first among equals.
    #[must_use]
    pub fn best(&self) -> Option<Factory> {
        self.ranked().into_iter().next().map(|entry| entry.factory)
    }

    /// Makes an allocator by the factory of this name. The factory runs with no lock of the registry held.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownName`]; the factory's own.
    pub fn make(&self, name: &str, options: &FactoryOptions) -> Result<AllocatorRef> {
        self.factory(name).ok_or_else(|| unknown("allocator", name))?.make(options)
    }

    /// Makes an allocator by the factory of the highest priority.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownName`] with an empty name if there is none; the factory's own.
    pub fn make_best(&self, options: &FactoryOptions) -> Result<AllocatorRef> {
        self.best().ok_or_else(|| unknown("allocator", ""))?.make(options)
    }

    /// Makes a backing by the factory of this name, on the node the options say.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownName`] if there is no such factory or it makes no backings; the factory's own.
    pub fn make_backing(&self, name: &str, options: &FactoryOptions) -> Result<Global> {
        self.factory(name).ok_or_else(|| unknown("backing", name))?.make_backing(options)
    }

    /// All factories, the preferred one first.
    #[must_use]
    pub fn registered(&self) -> Vec<Registered> {
        let describe = |Entry { factory, at, .. }| {
            let Factory { name, priority, .. } = factory;
            Registered { name, priority, at }
        };
        self.ranked().into_iter().map(describe).collect()
    }

    fn ranked(&self) -> Vec<Entry> {
        let mut all: Vec<Entry> = self.factories.iter().flat_map(|entries| entries.value().clone()).collect();
        all.sort_by_key(Entry::rank);
        all
    }
}

fn unknown(what: &'static str, name: &str) -> Error {
    Error::UnknownName { what, name: name.into() }
}

/// The process's registry, with the built-in factories.
pub fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(Registry::with_builtin)
}

/// Registers a factory: `register_allocator!("name", priority, |options| ...)` in the process's registry,
/// or in the one named first. Gives the [`Registration`](crate::registry::Registration).
///
/// ```
/// use orlop_alloc::engine::Direct;
/// use orlop_alloc::register_allocator;
/// use orlop_alloc::registry::{Registration, registry};
///
/// /// What a backend offers: called once by the program.
/// fn init() -> Registration {
///     register_allocator!("mine", -1, |options| Ok(Direct::new(options.backing_or_default()?).erase()))
/// }
/// assert_eq!(init(), Registration::New);
/// assert!(registry().registered().iter().any(|entry| &*entry.name == "mine"));
/// ```
#[macro_export]
macro_rules! register_allocator {
    ($name:expr, $priority:expr, $make:expr $(,)?) => {
        $crate::register_allocator!($crate::registry::registry(), $name, $priority, $make)
    };
    ($registry:expr, $name:expr, $priority:expr, $make:expr $(,)?) => {
        $registry.register($crate::registry::Factory::new($name, $priority, $make))
    };
}

#[cfg(all(test, not(loom)))]
mod tests;
