//! Any number of observers in the place of one.

use crate::observer::{is_same, observe, tell};
use crate::{Allocator, AllocatorRef, Context, DeviceMemory, Event, Observer, RegionWatch};
use orlop_core::{Device, MemoryKind};
use orlop_sync::SwapCell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Observers of one context or allocator, which come and go. Clones are handles to the same ones; with the last of all
/// handles, [`Listening`]s and profiles made with them the watching ends, and who was the observer before is so again. It is
/// told meanwhile, too.
///
/// ```
/// use orlop_alloc::profile::Observers;
/// use orlop_alloc::{Context, Event, Observer, Request};
/// use orlop_core::Device;
/// use std::sync::Arc;
///
/// struct Print;
/// impl Observer for Print {
///     fn observe(&self, event: &Event<'_>) {
///         println!("{event:?}");
///     }
/// }
///
/// let context = Context::new();
/// let observers = Observers::on(&context);
/// let listening = observers.add(Arc::new(Print));
/// context.allocate(Device::CPU, &Request::new(100))?;
/// drop(listening);
/// assert_eq!(observers.missed(), 0);
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Observers {
    installed: Arc<Installed>,
}

/// An observer is told while this lives.
#[derive(Debug)]
#[must_use = "dropping this ends the listening"]
pub struct Listening {
    observers: Observers,
    number: u64,
}

#[derive(Debug)]
struct Installed {
    list: Arc<List>,
    watched: Watched,
    /// When the watching began.
    before: Seen,
}

/// Who tells.
#[derive(Debug)]
enum Watched {
    Context(Context),
    Allocator(AllocatorRef),
}

/// Figures of who tells.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    allocations: u64,
    frees: u64,
    /// Granted bytes alive, by kind.
    pub(super) live: [u64; MemoryKind::COUNT],
}

/// The observers, and how often they were told.
#[derive(Default)]
struct List {
    /// The observer in whose place this is.
    earlier: Option<Arc<dyn Observer>>,
    /// Replaced as a whole, so that no lock is held while observers run.
    listeners: RwLock<Arc<[Listener]>>,
    numbers: AtomicU64,
    allocations: AtomicU64,
    frees: AtomicU64,
}

#[derive(Clone)]
struct Listener {
    number: u64,
    observer: Arc<dyn Observer>,
}

impl Observers {
    /// Watches all allocators of a context, beside the observer it has.
    #[must_use]
    pub fn on(context: &Context) -> Self {
        Self::install(Watched::Context(context.clone()))
    }

    /// Watches one allocator, beside the observer it has.
    #[must_use]
    pub fn on_allocator(allocator: &AllocatorRef) -> Self {
        Self::install(Watched::Allocator(allocator.clone()))
    }

    fn install(watched: Watched) -> Self {
        let earlier = watched.observer();
        let list = Arc::new(List { earlier, ..List::default() });
        watched.set(Some(Arc::clone(&list) as Arc<dyn Observer>));
        // Afterwards: what is told meanwhile may be told once too often, and nothing seems to be missed.
        let before = watched.seen();
        Self { installed: Arc::new(Installed { list, watched, before }) }
    }

    /// Tells this observer too, for as long as the result lives.
    pub fn add(&self, observer: Arc<dyn Observer>) -> Listening {
        let list = &self.installed.list;
        // Relaxed: numbers only need to differ.
        let number = list.numbers.fetch_add(1, Ordering::Relaxed);
        let listener = Listener { number, observer: Arc::clone(&observer) };
        list.change(|listeners| listeners.push(listener));
        self.installed.introduce(observer);
        Listening { observers: self.clone(), number }
    }

    /// How many blocks came or went since the watching began without being told of: because somebody else set an observer.
    /// Exact while nobody allocates, and zero for allocators without statistics.
    #[must_use]
    pub fn missed(&self) -> u64 {
        let Installed { list, watched, before } = &*self.installed;
        let now = watched.seen();
        let missed = |now: u64, before: u64, told: &AtomicU64| {
            now.saturating_sub(before).saturating_sub(told.load(Ordering::Relaxed))
        };
        missed(now.allocations, before.allocations, &list.allocations)
            + missed(now.frees, before.frees, &list.frees)
    }

    pub(super) fn seen(&self) -> Seen {
        self.installed.watched.seen()
    }

    /// Memory of the devices that are watched, as far as they tell.
    pub(super) fn memory(&self) -> Vec<(Device, DeviceMemory)> {
        let of = |device| move |memory| (device, memory);
        match &self.installed.watched {
            Watched::Context(context) => {
                let tell = |device| context.device_memory(device).ok().map(of(device));
                context.devices().into_iter().filter_map(tell).collect()
            }
            Watched::Allocator(allocator) => {
                allocator.device_memory().map(of(allocator.device())).into_iter().collect()
            }
        }
    }
}

impl Watched {
    fn observer(&self) -> Option<Arc<dyn Observer>> {
        match self {
            Self::Context(context) => context.observer(),
            Self::Allocator(allocator) => allocator.observer(),
        }
    }

    fn set(&self, observer: Option<Arc<dyn Observer>>) {
        match self {
            Self::Context(context) => context.set_observer(observer),
            Self::Allocator(allocator) => allocator.set_observer(observer),
        }
    }

    fn seen(&self) -> Seen {
        let all = match self {
            Self::Context(context) => {
                context.devices().into_iter().map(|device| context.stats(device)).collect()
            }
            Self::Allocator(allocator) => vec![allocator.stats()],
        };
        all.iter().fold(Seen::default(), |mut seen, stats| {
            seen.allocations += stats.totals.all.allocations;
            seen.frees += stats.totals.all.frees;
            for (live, account) in seen.live.iter_mut().zip(&stats.totals.kinds) {
                *live += account.live_bytes;
            }
            seen
        })
    }
}

impl Installed {
    fn ours(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.list) as Arc<dyn Observer>
    }

    /// Tells a new listener of the regions that are there, and only it. Unless somebody else came in the list's place.
    fn introduce(&self, observer: Arc<dyn Observer>) {
        if !self.watched.observer().is_some_and(|now| is_same(&now, &self.ours())) {
            return;
        }
        let newcomer = Arc::new(Newcomer::default());
        newcomer.observer.set(Some(observer));
        let introduce = |allocator: &AllocatorRef| {
            let told = Arc::clone(&newcomer) as Arc<dyn Observer>;
            let watch = Arc::new(RegionWatch::new(told, allocator.name()));
            allocator.watch_regions(&watch);
            // What happens from now on the list is told.
            watch.end();
            vec![watch]
        };
        let watches = match &self.watched {
            Watched::Context(context) => context.of_each(introduce),
            Watched::Allocator(allocator) => introduce(allocator),
        };
        tell(&watches);
        // Engines forget what has ended when the next one comes. Nothing of the listener's is to wait for that.
        newcomer.observer.set(None);
        newcomer.observer.settle();
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let (ours, earlier) = (self.ours(), self.list.earlier.as_ref());
        match &self.watched {
            Watched::Context(context) => context.replace_observer(&ours, earlier),
            Watched::Allocator(allocator) => tell(&allocator.put_in_place_of(&ours, earlier.cloned())),
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.observers.installed.list.change(|listeners| {
            listeners.retain(|listener| listener.number != self.number);
        });
    }
}

impl List {
    fn change(&self, change: impl FnOnce(&mut Vec<Listener>)) {
        let mut listeners = self.listeners.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = listeners.to_vec();
        change(&mut changed);
        let before = std::mem::replace(&mut *listeners, changed.into());
        drop(listeners);
        // Outside the lock: the last handle of an observer may run anything.
        drop(before);
    }
}

impl Observer for List {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::Allocated { .. } => self.allocations.fetch_add(1, Ordering::Relaxed),
            Event::Freed { .. } | Event::RawFreed { .. } => self.frees.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        if let Some(earlier) = &self.earlier {
            observe(&**earlier, event);
        }
        let listeners = Arc::clone(&self.listeners.read().unwrap_or_else(PoisonError::into_inner));
        for listener in &*listeners {
            observe(&*listener.observer, event);
        }
    }
}

/// Tells a listener of the regions that are there, and lets go of it then.
#[derive(Default)]
struct Newcomer {
    observer: SwapCell<Arc<dyn Observer>>,
}

impl Observer for Newcomer {
    fn observe(&self, event: &Event<'_>) {
        // No loan: this may take its time.
        if let Some(observer) = self.observer.cloned() {
            observe(&*observer, event);
        }
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.listeners.read().unwrap_or_else(PoisonError::into_inner).len();
        f.debug_struct("List").field("listeners", &count).finish_non_exhaustive()
    }
}
