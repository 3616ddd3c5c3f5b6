//! Several observers in the place of one.

use crate::observer::{deliver_all, is_same, observe};
use crate::{Allocator, AllocatorRef, Context, DeviceMemory, Event, Observer, RegionWatch};
use orlop_core::{Device, MemoryKind};
use orlop_sync::SwapCell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Observers of one context or allocator. Clones are handles to the same set. The watching ends with the last
/// handle, [`Subscription`] or profile made with them; the observer from before is then restored. Until then
/// it still receives all events.
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
/// let subscription = observers.add(Arc::new(Print));
/// context.allocate(Device::CPU, &Request::new(100))?;
/// drop(subscription);
/// assert_eq!(observers.missed(), 0);
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Observers {
    installed: Arc<Installation>,
}

/// An observer's place in [`Observers`]: it receives events until this is dropped.
#[derive(Debug)]
#[must_use = "dropping this ends the subscription"]
pub struct Subscription {
    observers: Observers,
    number: u64,
}

#[derive(Debug)]
struct Installation {
    list: Arc<ObserverList>,
    target: Target,
    /// The counts when the watching began.
    before: BlockCounts,
}

/// What is watched.
#[derive(Debug)]
enum Target {
    Context(Context),
    Allocator(AllocatorRef),
}

/// Block counts of what is watched.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BlockCounts {
    allocations: u64,
    frees: u64,
    /// LiveBytes granted bytes by kind.
    pub(super) live: [u64; MemoryKind::COUNT],
}

/// The observers, and the number of events that reached them.
#[derive(Default)]
struct ObserverList {
    /// The observer that was installed before.
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
    /// Watches all allocators of a context, in addition to its current observer.
    #[must_use]
    pub fn on(context: &Context) -> Self {
        Self::install(Target::Context(context.clone()))
    }

    /// Watches one allocator, in addition to its current observer.
    #[must_use]
    pub fn on_allocator(allocator: &AllocatorRef) -> Self {
        Self::install(Target::Allocator(allocator.clone()))
    }

    fn install(target: Target) -> Self {
        let earlier = target.observer();
        let list = Arc::new(ObserverList { earlier, ..ObserverList::default() });
        target.set(Some(Arc::clone(&list) as Arc<dyn Observer>));
        // Read after the installation: an event in between may be counted as seen but not as having happened,
        // and never the reverse, so that none seems missed.
        let before = target.block_counts();
        Self { installed: Arc::new(Installation { list, target, before }) }
    }

    /// Adds an observer. It receives events until the result is dropped.
    pub fn add(&self, observer: Arc<dyn Observer>) -> Subscription {
        let list = &self.installed.list;
        // Relaxed: the numbers only need to differ.
        let number = list.numbers.fetch_add(1, Ordering::Relaxed);
        let listener = Listener { number, observer: Arc::clone(&observer) };
        list.change(|listeners| listeners.push(listener));
        self.installed.replay_regions(observer);
        Subscription { observers: self.clone(), number }
    }

    /// Returns how many allocations and frees since the watching began were not seen, because another
    /// observer was installed. Exact while no thread uses the allocators, and zero for allocators without
    /// statistics.
    #[must_use]
    pub fn missed(&self) -> u64 {
        let Installation { list, target, before } = &*self.installed;
        let now = target.block_counts();
        let missed = |now: u64, before: u64, seen: &AtomicU64| {
            now.saturating_sub(before).saturating_sub(seen.load(Ordering::Relaxed))
        };
        missed(now.allocations, before.allocations, &list.allocations)
            + missed(now.frees, before.frees, &list.frees)
    }

    pub(super) fn block_counts(&self) -> BlockCounts {
        self.installed.target.block_counts()
    }

    /// Returns the memory of the watched devices, as far as it is known.
    pub(super) fn memory(&self) -> Vec<(Device, DeviceMemory)> {
        let of = |device| move |memory| (device, memory);
        match &self.installed.target {
            Target::Context(context) => {
                let tell = |device| context.device_memory(device).ok().map(of(device));
                context.devices().into_iter().filter_map(tell).collect()
            }
            Target::Allocator(allocator) => {
                allocator.device_memory().map(of(allocator.device())).into_iter().collect()
            }
        }
    }
}

impl Target {
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

    fn block_counts(&self) -> BlockCounts {
        let all = match self {
            Self::Context(context) => {
                context.devices().into_iter().map(|device| context.stats(device)).collect()
            }
            Self::Allocator(allocator) => vec![allocator.stats()],
        };
        all.iter().fold(BlockCounts::default(), |mut counts, stats| {
            counts.allocations += stats.totals.all.allocations;
            counts.frees += stats.totals.all.frees;
            for (live, account) in counts.live.iter_mut().zip(&stats.totals.kinds) {
                *live += account.live_bytes;
            }
            counts
        })
    }
}

impl Installation {
    fn ours(&self) -> Arc<dyn Observer> {
        Arc::clone(&self.list) as Arc<dyn Observer>
    }

    /// Sends events for the current regions to a new listener only, unless another observer has taken the
    /// list's place.
    fn replay_regions(&self, observer: Arc<dyn Observer>) {
        if !self.target.observer().is_some_and(|now| is_same(&now, &self.ours())) {
            return;
        }
        let replay = Arc::new(RegionReplay::default());
        replay.observer.set(Some(observer));
        let replay_regions = |allocator: &AllocatorRef| {
            let observer = Arc::clone(&replay) as Arc<dyn Observer>;
            let watch = Arc::new(RegionWatch::new(observer, allocator.name()));
            allocator.watch_regions(&watch);
            // From now on the listener gets region events through the list.
            watch.end();
            vec![watch]
        };
        let watches = match &self.target {
            Target::Context(context) => context.collect_from_each(replay_regions),
            Target::Allocator(allocator) => replay_regions(allocator),
        };
        deliver_all(&watches);
        // An engine drops an ended watch when the next one is added. The listener must not wait for that.
        replay.observer.set(None);
        replay.observer.settle();
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        let (ours, earlier) = (self.ours(), self.list.earlier.as_ref());
        match &self.target {
            Target::Context(context) => context.replace_observer(&ours, earlier),
            Target::Allocator(allocator) => deliver_all(&allocator.put_in_place_of(&ours, earlier.cloned())),
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.observers.installed.list.change(|listeners| {
            listeners.retain(|listener| listener.number != self.number);
        });
    }
}

impl ObserverList {
    fn change(&self, change: impl FnOnce(&mut Vec<Listener>)) {
        let mut listeners = self.listeners.write().unwrap_or_else(PoisonError::into_inner);
        let mut changed = listeners.to_vec();
        change(&mut changed);
        let before = std::mem::replace(&mut *listeners, changed.into());
        drop(listeners);
        // Dropped outside the lock: the destructor of an observer may run arbitrary code.
        drop(before);
    }
}

impl Observer for ObserverList {
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

/// Sends the events for the current regions to one listener, which it then releases.
#[derive(Default)]
struct RegionReplay {
    observer: SwapCell<Arc<dyn Observer>>,
}

impl Observer for RegionReplay {
    fn observe(&self, event: &Event<'_>) {
        // Cloned rather than borrowed: the observer may take long.
        if let Some(observer) = self.observer.cloned() {
            observe(&*observer, event);
        }
    }
}

impl fmt::Debug for ObserverList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.listeners.read().unwrap_or_else(PoisonError::into_inner).len();
        f.debug_struct("ObserverList").field("listeners", &count).finish_non_exhaustive()
    }
}
