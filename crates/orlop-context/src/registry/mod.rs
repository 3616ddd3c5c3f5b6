//! Allocator factories by name and priority, with the source location of each registration.
//!
//! A program chooses its allocator by a name in a configuration, or takes the one of highest priority. To
//! make the result traceable, every registration records its source location. A second registration of the
//! same name and priority changes nothing and returns the location of the first.
//!
//! A registry creates allocators in two ways. [`Registry::make`] creates one for the caller alone, with the
//! caller's options. [`Registry::allocator`] keeps one per factory and NUMA node and returns the same one to
//! all callers, so that independent parts of a program share its cached memory. A factory that is registered
//! after the first allocator was handed out does not affect existing allocators: that is reported as
//! [`Registration::Late`].
//!
//! The process has one registry, [`registry`], with the built-in factories; tests and embedders create their
//! own. A backend registers its factories in one function, which the program calls. The factory of the
//! highest priority creates the default allocator of the CPU: see
//! [`AllocatorConfig`] for the rule.

mod builtin;
mod config;
mod configured;
mod environment;
mod factory;
mod node_allocators;
mod shared_instances;

pub use self::builtin::register_builtin;
pub use self::config::AllocatorConfig;
pub use self::factory::Factory;
pub use self::node_allocators::NodeAllocators;

use self::shared_instances::SharedInstances;
use orlop_alloc::backing::BackingRef;
use orlop_alloc::engine_support::trace_guarded;
use orlop_alloc::{AllocatorRef, Error, Result};
use orlop_core::Device;
use orlop_sync::ColdMutex;
use std::cmp::Reverse;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The outcome of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a registration that came second changed nothing, and a late one not what is in use"]
pub enum Registration {
    /// The factory is registered.
    New,
    /// The factory is registered, after the registry handed out its first allocator. Existing allocators stay
    /// in use even if this factory has a higher priority. Register before the first allocation.
    Late,
    /// A factory of this name and priority exists and stays.
    AlreadyRegistered {
        /// Where the existing one was registered.
        at: &'static Location<'static>,
    },
}

/// The description of a registered factory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Registered {
    /// The name.
    pub name: Box<str>,
    /// The priority; the highest one is preferred.
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
    device: Device,
    factory: Factory,
    at: &'static Location<'static>,
    /// The shared instances, by NUMA node.
    shared: Arc<SharedInstances>,
}

impl Entry {
    fn describe(&self) -> Registered {
        Registered { name: self.factory.name().into(), priority: self.factory.priority(), at: self.at }
    }
}

/// A set of factories by name and priority, shared between threads.
///
/// ```
/// use orlop_context::registry::{AllocatorConfig, Factory, Registration, Registry};
/// use orlop_alloc::{Allocator, engine::Direct, Request};
///
/// let registry = Registry::new();
/// let plain = Factory::new("plain", 10, |options| {
///     Ok(Direct::new(options.backing_or_default()?).into_ref().erase())
/// });
/// assert_eq!(registry.register(plain.clone()), Registration::New);
/// assert!(matches!(registry.register(plain), Registration::AlreadyRegistered { .. }));
///
/// let allocator = registry.allocator("plain", None)?;
/// assert!(allocator.allocate(&Request::new(100)).is_ok());
/// assert!(registry.allocator("plain", None)?.same_as(&allocator));
/// assert!(!registry.make("plain", &AllocatorConfig::new())?.same_as(&allocator));
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Registry {
    /// The preferred factory first: among equal priorities the one registered first.
    entries: ColdMutex<Vec<Entry>>,
    /// True once an allocator was handed out: registrations are late from then on.
    used: AtomicBool,
}

impl Registry {
    /// Creates a registry without factories.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a registry with the built-in factories (see [`register_builtin`]).
    #[must_use]
    pub fn with_builtin() -> Self {
        let registry = Self::new();
        register_builtin(&registry);
        registry
    }

    /// Registers a factory and records the caller's source location. If there is one of this name and
    /// priority already, nothing changes. After the first allocator was handed out, the result is
    /// [`Registration::Late`], which is also logged as a warning.
    #[track_caller]
    pub fn register(&self, factory: Factory) -> Registration {
        self.register_for(Device::CPU, factory)
    }

    /// Registers a factory for `device`. A context that has no default allocator for the device gets that of
    /// the factory with the highest priority, at its first request there. All contexts share one allocator
    /// per factory: a device has one memory. For the CPU this is [`Registry::register`].
    ///
    /// ```
    /// use orlop_alloc::{Allocator, backing::Null, engine::Direct};
    /// use orlop_context::registry::{Factory, Registry};
    /// use orlop_core::Device;
    ///
    /// let (registry, gpu) = (Registry::new(), Device::cuda(0));
    /// for (name, priority) in [("plain", 0), ("preferred", 10), ("spare", -5)] {
    ///     let factory = Factory::new(name, priority, move |_| {
    ///         Ok(Direct::new(Null::new(gpu)).into_ref().erase())
    ///     });
    ///     let _ = registry.register_for(gpu, factory);
    /// }
    /// assert_eq!(&*registry.registered_for(gpu)[0].name, "preferred");
    /// assert!(registry.allocator_for(Device::cuda(1))?.is_none());
    /// # Ok::<(), orlop_alloc::Error>(())
    /// ```
    #[track_caller]
    pub fn register_for(&self, device: Device, factory: Factory) -> Registration {
        let at = Location::caller();
        let name: Box<str> = factory.name().into();
        let mut entries = self.entries.lock();
        let is_same = |entry: &&Entry| {
            entry.device == device
                && entry.factory.priority() == factory.priority()
                && entry.factory.name() == &*name
        };
        if let Some(first) = entries.iter().find(is_same) {
            return Registration::AlreadyRegistered { at: first.at };
        }
        // Relaxed: a registration that races with the first use may count as either.
        let is_late = match device.is_cpu() {
            true => self.used.load(Ordering::Relaxed),
            false => entries.iter().any(|entry| entry.device == device && entry.shared.is_made()),
        };
        entries.push(Entry { device, factory, at, shared: Arc::default() });
        entries.sort_by_key(|entry| Reverse(entry.factory.priority()));
        // Unlocked first: a log subscriber may use the registry.
        drop(entries);
        if !is_late {
            return Registration::New;
        }
        let late = "an allocator factory was registered after the first allocation: \
                    allocators in use do not change";
        trace_guarded(|| tracing::warn!(%device, %name, %at, "{late}"));
        Registration::Late
    }

    /// Registers all factories of a backend, and logs those that were registered already. The init function
    /// of a backend is this call with its list of factories.
    ///
    /// ```
    /// use orlop_alloc::engine::Direct;
    /// use orlop_alloc::Allocator;
    /// use orlop_context::registry::{Factory, Registry};
    ///
    /// /// Registers the backend's factories. The program calls this once, before its first allocation.
    /// #[track_caller]
    /// pub fn register(registry: &Registry) {
    ///     registry.register_all([Factory::new("mine", 5, |options| {
    ///         options.refuse_bfc_settings()?;
    ///         Ok(Direct::new(options.backing_or_default()?).into_ref().erase())
    ///     })]);
    /// }
    ///
    /// let registry = Registry::new();
    /// register(&registry);
    /// assert!(registry.factory("mine").is_some());
    /// ```
    #[track_caller]
    pub fn register_all(&self, factories: impl IntoIterator<Item = Factory>) {
        for factory in factories {
            let name: Box<str> = factory.name().into();
            if let Registration::AlreadyRegistered { at } = self.register(factory) {
                let known = "an allocator factory was registered already";
                trace_guarded(|| tracing::debug!(%name, %at, "{known}"));
            }
        }
    }

    /// Returns the factory of this name with the highest priority.
    #[must_use]
    pub fn factory(&self, name: &str) -> Option<Factory> {
        self.named(name, "allocator").ok().map(|entry| entry.factory)
    }

    /// Returns the factory with the highest priority; among equals, the one registered first.
    #[must_use]
    pub fn best(&self) -> Option<Factory> {
        self.preferred().ok().map(|entry| entry.factory)
    }

    /// Creates an allocator for the caller alone, with the factory of this name. No lock of the registry is
    /// held while the factory runs.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownName`]; the factory's own errors.
    pub fn make(&self, name: &str, config: &AllocatorConfig) -> Result<AllocatorRef> {
        let factory = self.named(name, "allocator")?.factory;
        config.complete(name, |config| self.hand_out(factory.make(config)?))
    }

    /// Creates an allocator for the caller alone, with the factory of the highest priority.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownName`] with an empty name if there is no factory; the factory's own errors.
    pub fn make_best(&self, config: &AllocatorConfig) -> Result<AllocatorRef> {
        let factory = self.preferred()?.factory;
        config.complete(factory.name(), |config| self.hand_out(factory.make(config)?))
    }

    /// Creates a backing for the caller alone, with the factory of this name and the options' NUMA node.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownName`] if there is no such factory or it creates no backings; the factory's own
    /// errors.
    pub fn make_backing(&self, name: &str, config: &AllocatorConfig) -> Result<BackingRef> {
        self.named(name, "backing")?.factory.make_backing(config)
    }

    /// Returns the shared allocator of the factory of this name for `node`, or for `None` the one without
    /// affinity. The first call creates it, with the options of [`AllocatorConfig::new`] and that node; later
    /// calls return the same one.
    ///
    /// No lock of the registry is held while the factory runs. If several threads make the first call at the
    /// same time, the factory may run for each of them; one result is kept and returned to all.
    ///
    /// # Errors
    ///
    /// As for [`Registry::make`]; the next call tries again.
    pub fn allocator(&self, name: &str, node: Option<u32>) -> Result<AllocatorRef> {
        let Entry { factory, shared, .. } = self.named(name, "allocator")?;
        self.hand_out(shared.allocator(&factory, node)?)
    }

    /// Returns the shared allocator of the factory of the highest priority, as [`Registry::allocator`] does.
    ///
    /// # Errors
    ///
    /// As for [`Registry::make_best`]; the next call tries again.
    pub fn best_allocator(&self, node: Option<u32>) -> Result<AllocatorRef> {
        let Entry { factory, shared, .. } = self.preferred()?;
        self.hand_out(shared.allocator(&factory, node)?)
    }

    /// Returns the shared backing of the factory of this name for `node`, as [`Registry::allocator`] does for
    /// allocators.
    ///
    /// # Errors
    ///
    /// As for [`Registry::make_backing`]; the next call tries again.
    pub fn backing(&self, name: &str, node: Option<u32>) -> Result<BackingRef> {
        let Entry { factory, shared, .. } = self.named(name, "backing")?;
        shared.backing(&factory, node)
    }

    /// Returns all factories of the CPU, the preferred one first.
    #[must_use]
    pub fn registered(&self) -> Vec<Registered> {
        self.registered_for(Device::CPU)
    }

    /// Returns the factories for `device`, the preferred one first.
    #[must_use]
    pub fn registered_for(&self, device: Device) -> Vec<Registered> {
        let entries = self.entries.lock();
        entries.iter().filter(|entry| entry.device == device).map(Entry::describe).collect()
    }

    /// Returns the shared allocator for `device` of the factory with the highest priority; `None` if there is
    /// no factory. No lock of the registry is held while the factory runs.
    ///
    /// # Errors
    ///
    /// For the CPU those of [`Registry::best_allocator`]; else those of the factory. The next call tries
    /// again.
    pub fn allocator_for(&self, device: Device) -> Result<Option<AllocatorRef>> {
        if device.is_cpu() {
            return self.best_allocator(None).map(Some);
        }
        let entry = self.find(device, |_| true);
        entry.map(|Entry { factory, shared, .. }| shared.allocator(&factory, None)).transpose()
    }

    /// Records that an allocator was handed out.
    #[expect(clippy::unnecessary_wraps, reason = "the last step of functions that can fail")]
    fn hand_out(&self, allocator: AllocatorRef) -> Result<AllocatorRef> {
        self.used.store(true, Ordering::Relaxed);
        Ok(allocator)
    }

    fn named(&self, name: &str, what: &'static str) -> Result<Entry> {
        let is_it = |entry: &Entry| entry.factory.name() == name;
        self.find(Device::CPU, is_it).ok_or_else(|| unknown(what, name))
    }

    fn preferred(&self) -> Result<Entry> {
        self.find(Device::CPU, |_| true).ok_or_else(|| unknown("allocator", ""))
    }

    fn find(&self, device: Device, is_it: impl Fn(&Entry) -> bool) -> Option<Entry> {
        self.entries.lock().iter().find(|entry| entry.device == device && is_it(entry)).cloned()
    }
}

fn unknown(what: &'static str, name: &str) -> Error {
    Error::UnknownName { what, name: name.into() }
}

/// Returns the process's registry, with the built-in factories.
pub fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(Registry::with_builtin)
}

/// Registers a factory: `register_allocator!("name", priority, |options| ...)` in the process's registry, or
/// in the registry passed first. Returns the [`Registration`](crate::registry::Registration).
///
/// ```
/// use orlop_alloc::engine::Direct;
/// use orlop_alloc::Allocator;
/// use orlop_context::register_allocator;
/// use orlop_context::registry::{Registration, registry};
///
/// /// What a backend offers: called once by the program.
/// fn init() -> Registration {
///     register_allocator!("mine", -1, |options| {
///         Ok(Direct::new(options.backing_or_default()?).into_ref().erase())
///     })
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
