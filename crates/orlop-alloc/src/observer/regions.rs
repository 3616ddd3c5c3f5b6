//! Events for the memory that an engine holds from its backing.
//!
//! Blocks are allocated and freed through a handle, which reports them. Regions change inside an engine,
//! mostly under its lock, and an observer must be called with no lock held. So it takes two steps:
//!
//! 1. The engine *records* a change, under the lock that protects its regions, in the [`RegionWatch`] of each
//!    observer. [`RegionWatches`] is the list of these; it lies beside the regions, and is empty without
//!    observers.
//! 2. The caller of the engine *delivers* the recorded events ([`RegionWatch::deliver`]) when the engine has
//!    released its locks: the handle does so after each call, before it reports the block that the call was
//!    about.
//!
//! A watch starts with the existing regions, recorded under the same lock: none is missing, and a watch
//! reports none twice. Such events are marked ([`RegionEvent::already`]), because an observer that is set
//! again receives them again.
//!
//! # Order
//!
//! The events of a watch are delivered in the order in which they happened, one at a time. With one thread, a
//! region is reported before the first block in it, and its loss after its last block is freed. With several,
//! a thread may find that another one is delivering; it does not wait, because the other may be waiting for
//! it. Its block may then be reported before its region. The times are right all the same: they are taken
//! when the change is recorded, under the lock, and no thread can use memory of a region before it is
//! recorded, nor get its addresses again before its loss is. Observers that use the same clock
//! ([`EventClock`]) and sort by time, as recorders do, get the true order.
//!
//! # No observer code under a lock
//!
//! No code of an observer runs while a lock is held, and that includes its destructor, which may run
//! arbitrary code. So an engine that removes ended watches returns them ([`RegionWatches::add`]), to be
//! dropped when the lock is released.

use super::{Event, EventClock, RegionDelivery, SharedObserver};
use orlop_core::{Device, StreamId};
use orlop_sync::{
    ColdMutex,
    atomic::{AtomicBool, Ordering},
};
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// A change of the memory that an engine holds from its backing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RegionAction {
    /// A region was reserved as a whole.
    Reserved,
    /// A region was released.
    Released,
    /// Memory was committed at addresses that grow in place.
    Mapped,
    /// Memory was decommitted; the addresses may get memory again.
    Unmapped,
}

/// A change of the memory that an engine holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionEvent {
    /// What happened.
    pub action: RegionAction,
    /// `true` if it happened before the observer was set: the memory was
    /// [`Reserved`](RegionAction::Reserved) or [`Mapped`](RegionAction::Mapped) then, and is still held. An
    /// observer may receive this several times.
    pub already: bool,
    /// The address of the memory.
    pub address: usize,
    /// Its length in bytes.
    pub bytes: usize,
    /// Its device.
    pub device: Device,
    /// The stream that it was obtained for. If the region is itself a block, its loss has the stream that
    /// used it last.
    pub stream: StreamId,
    /// The time in ticks of the [`EventClock`]. `None` if that was not in use yet.
    pub at: Option<u64>,
}

impl RegionEvent {
    /// Creates an event on the default stream. The time is set when it is recorded.
    #[must_use]
    pub fn new(action: RegionAction, address: usize, bytes: usize, device: Device) -> Self {
        Self { action, already: false, address, bytes, device, stream: StreamId::HOST, at: None }
    }

    /// Sets the stream.
    #[must_use]
    pub fn stream(mut self, stream: StreamId) -> Self {
        self.stream = stream;
        self
    }
}

/// The region events of one engine that one observer has not received yet; see [`RegionWatches`].
pub struct RegionWatch {
    allocator: Box<str>,
    /// Whether there may be events: a hint that saves taking the lock.
    pending: AtomicBool,
    ended: AtomicBool,
    pending_events: ColdMutex<PendingEvents>,
}

struct PendingEvents {
    events: VecDeque<RegionEvent>,
    /// A thread is delivering the event before these.
    delivering: bool,
    /// `None` when the watch has ended: an engine may keep it until the next one is added.
    observer: Option<SharedObserver>,
}

impl RegionWatch {
    /// Creates a watch for an observer and the allocator of this name.
    #[must_use]
    pub fn new(observer: SharedObserver, allocator: &str) -> Self {
        let (pending, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let events = PendingEvents { events: VecDeque::new(), delivering: false, observer: Some(observer) };
        Self { allocator: allocator.into(), pending, ended, pending_events: ColdMutex::new(events) }
    }

    /// Returns the name of the allocator.
    pub(crate) fn allocator(&self) -> &str {
        &self.allocator
    }

    /// Delivers the recorded events, unless another thread is delivering: that one delivers all. Call it with
    /// no lock held.
    #[inline]
    pub fn deliver(&self) {
        // Relaxed: a thread that recorded an event sees its own store, or that of the thread that took the
        // event for delivery.
        if self.pending.load(Ordering::Relaxed) {
            self.deliver_pending();
        }
    }

    #[cold]
    fn deliver_pending(&self) {
        while let Some((event, observer)) = self.next() {
            let _guard = DeliveryGuard(self);
            observer.notify(&Event::Region { event: &event, allocator: &self.allocator });
        }
        self.release_if_ended();
    }

    /// Takes the next event, unless another thread is delivering. The caller must clear `delivering`
    /// afterwards.
    fn next(&self) -> Option<(RegionEvent, SharedObserver)> {
        let mut pending_events = self.pending_events.lock();
        if pending_events.delivering {
            return None;
        }
        let observer = pending_events.observer.clone();
        let event = pending_events.events.pop_front().zip(observer);
        pending_events.delivering = event.is_some();
        if event.is_none() {
            self.pending.store(false, Ordering::Relaxed);
        }
        event
    }

    /// Releases the observer if the watch has ended. A thread that is delivering does so when it has
    /// delivered all.
    fn release_if_ended(&self) {
        if self.has_ended() {
            let mut pending_events = self.pending_events.lock();
            let observer = if pending_events.delivering { None } else { pending_events.observer.take() };
            drop(pending_events);
            // With no lock held: a destructor may run arbitrary code.
            drop(observer);
        }
    }

    /// Delivers the recorded events. If the watch has ended, it releases the observer.
    pub(super) fn deliver_or_end(&self) {
        if self.has_ended() { self.deliver_pending() } else { self.deliver() }
    }

    /// Ends a watch that was never used: its events are not delivered.
    pub(crate) fn cancel(&self) {
        self.end();
        self.pending_events.lock().events.clear();
    }

    /// Ends the watch: nothing more is recorded.
    pub fn end(&self) {
        // Relaxed: an event recorded meanwhile is delivered, or dropped with the watch.
        self.ended.store(true, Ordering::Relaxed);
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn note(&self, event: RegionEvent) {
        let mut pending_events = self.pending_events.lock();
        // The time is read under the lock, so that events are in the order of time.
        pending_events.events.push_back(RegionEvent { at: EventClock::ticks_if_used(), ..event });
        self.pending.store(true, Ordering::Relaxed);
    }
}

/// An event is being delivered until this is dropped, also by a panic of the observer.
struct DeliveryGuard<'a>(&'a RegionWatch);

impl Drop for DeliveryGuard<'_> {
    fn drop(&mut self) {
        self.0.pending_events.lock().delivering = false;
    }
}

impl fmt::Debug for RegionWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionWatch").field("allocator", &self.allocator).finish_non_exhaustive()
    }
}

/// The observers of an engine's regions. An engine keeps this beside the regions, under the same lock.
///
/// ```
/// use orlop_alloc::engine_support::RegionWatches;
/// use orlop_alloc::{RegionAction, RegionEvent};
/// use orlop_core::Device;
///
/// let watches = RegionWatches::default();
/// assert!(!watches.is_watched());
/// watches.note(RegionEvent::new(RegionAction::Reserved, 4096, 1 << 20, Device::CPU));
/// ```
///
/// The result of [`RegionWatches::add`] must be used:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # use orlop_alloc::engine_support::{RegionWatch, RegionWatches};
/// # fn watch(watches: &mut RegionWatches, watch: &std::sync::Arc<RegionWatch>) {
/// watches.add(watch, []);
/// # }
/// ```
#[derive(Debug, Default)]
pub struct RegionWatches {
    watches: Vec<Arc<RegionWatch>>,
}

impl RegionWatches {
    /// Returns `true` if there is an observer.
    #[inline]
    #[must_use]
    pub fn is_watched(&self) -> bool {
        !self.watches.is_empty()
    }

    /// Adds a watch, and records the current regions in it. Returns the watches that have ended: drop them
    /// when the lock is released, because an observer may be dropped with them and run arbitrary code.
    #[must_use = "to be dropped with no lock held"]
    pub fn add(
        &mut self,
        watch: &Arc<RegionWatch>,
        held: impl IntoIterator<Item = RegionEvent>,
    ) -> Vec<Arc<RegionWatch>> {
        let ended = self.watches.extract_if(.., |watch| watch.has_ended()).collect();
        for region in held {
            watch.note(RegionEvent { already: true, ..region });
        }
        self.watches.push(Arc::clone(watch));
        ended
    }

    /// Records a change for all watches. Call it under the lock that protects the regions: for a gain before
    /// any thread can have a block in the region, for a loss before the memory is given back.
    #[inline]
    pub fn note(&self, event: RegionEvent) {
        if self.is_watched() {
            self.note_watched(event);
        }
    }

    #[cold]
    fn note_watched(&self, event: RegionEvent) {
        for watch in self.watches.iter().filter(|watch| !watch.has_ended()) {
            watch.note(event);
        }
    }

    /// Returns the recorded events of all watches, to be dropped when the lock is released: for calls that do
    /// not come through a handle.
    #[must_use = "dropping it delivers the events: not under a lock"]
    pub fn delivery(&self) -> RegionDelivery {
        RegionDelivery::of(self.watches.clone(), Vec::new())
    }

    /// Returns the watches, for an engine that creates another one inside.
    #[must_use]
    pub fn all(&self) -> &[Arc<RegionWatch>] {
        &self.watches
    }
}
