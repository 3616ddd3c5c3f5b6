//! How observers learn of the memory that an engine holds from its backing.
//!
//! Blocks come and go by way of a handle, which tells of them. Regions come and go inside an engine, mostly with its lock
//! held, and an observer must be told with none held. So it takes two steps:
//!
//! 1. The engine *notes* a change, under the lock that its regions are behind, in the [`RegionWatch`] of each observer.
//!    [`RegionWatches`] is the list of these, and beside the regions; it is empty while nobody looks.
//! 2. Whoever called the engine *tells* what was noted ([`RegionWatch::tell`]) when the engine has let go of its locks:
//!    the handle does after each call, before it tells of the block that the call was about.
//!
//! A watch begins with the regions that are there already, noted under the same lock: none is missing, and none is told of
//! twice by one watch. Such an event is marked ([`RegionEvent::already`]), because who is set as observer again is told
//! again.
//!
//! # Order
//!
//! A watch's changes are told in the order in which they happened, one at a time. With one thread a region is told of
//! before the first block in it, and lost after its last block was returned. With several, a thread may find that another
//! one is telling; it does not wait for that, since who tells may be waiting for it. Its block may then be told of before
//! its region. The times are right all the same: they are of when the change is noted, with the lock held, and nobody else
//! has memory of a region before it is noted, or gets its addresses again before the loss is. Observers that keep times by
//! the same clock ([`EventClock`]) and sort by them, as recorders do, so have the one true order.
//!
//! # No code of observers' under a lock
//!
//! Nothing of an observer runs while a lock is held, and its end is something of it: the last handle of an observer may run
//! anything. So an engine that forgets who does not look any more hands that out ([`RegionWatches::add`]), to be dropped
//! when the lock is released.

use super::{Event, EventClock, Observer, observe};
use crate::shield::shielded;
use orlop_core::{Device, StreamId};
use orlop_sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};
use std::collections::VecDeque;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// What happens to memory that an engine holds from its backing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RegionAction {
    /// A region came, in one piece.
    Gained,
    /// A region went back.
    Lost,
    /// Memory was put under addresses that grow in place.
    Mapped,
    /// Memory was taken away from addresses, which may have memory again.
    Unmapped,
}

/// A change of what an engine holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionEvent {
    /// What happened.
    pub action: RegionAction,
    /// It happened before the observer came: it is [`Gained`](RegionAction::Gained) or [`Mapped`](RegionAction::Mapped)
    /// and still there. An observer may be told so several times.
    pub already: bool,
    /// Where the memory begins.
    pub address: usize,
    /// How long it is, in bytes.
    pub bytes: usize,
    /// Where it is.
    pub device: Device,
    /// The stream that it was gained for; of a region that is a block, and goes, the one that used it last.
    pub stream: StreamId,
    /// When, by the [`EventClock`]. `None` if nobody had asked for that yet.
    pub at: Option<u64>,
}

impl RegionEvent {
    /// On the default stream, just now.
    #[must_use]
    pub fn new(action: RegionAction, address: usize, bytes: usize, device: Device) -> Self {
        Self { action, already: false, address, bytes, device, stream: StreamId::DEFAULT, at: None }
    }

    /// For this stream.
    #[must_use]
    pub fn stream(mut self, stream: StreamId) -> Self {
        self.stream = stream;
        self
    }
}

/// What one observer is yet to be told of an engine's regions; see the head of its file.
pub struct RegionWatch {
    /// Valid until `drop`.
    observer: ManuallyDrop<Arc<dyn Observer>>,
    allocator: Box<str>,
    /// Whether there may be something to tell: a hint, so that nobody takes the lock in vain.
    pending: AtomicBool,
    ended: AtomicBool,
    news: Mutex<News>,
}

#[derive(Debug, Default)]
struct News {
    events: VecDeque<RegionEvent>,
    /// Somebody tells the event before these.
    telling: bool,
}

impl RegionWatch {
    /// For an observer, of the allocator of this name.
    #[must_use]
    pub fn new(observer: Arc<dyn Observer>, allocator: &str) -> Self {
        let (pending, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let observer = ManuallyDrop::new(observer);
        Self { observer, allocator: allocator.into(), pending, ended, news: Mutex::new(News::default()) }
    }

    /// Who is told.
    #[must_use]
    pub fn observer(&self) -> &Arc<dyn Observer> {
        &self.observer
    }

    /// The name of the allocator that it is of.
    pub(crate) fn allocator(&self) -> &str {
        &self.allocator
    }

    /// Tells the observer, whose panic ends there: an engine may have a block in hand that nobody knows yet.
    #[inline(always)]
    pub(crate) fn observe(&self, event: &Event<'_>) {
        observe(&**self.observer, event);
    }

    /// Tells what was noted, unless another thread is about it: that one tells all. Call it with no lock held.
    #[inline]
    pub fn tell(&self) {
        // Relaxed: who noted something sees its own store, or the one of who took that something to tell it.
        if self.pending.load(Ordering::Relaxed) {
            self.tell_all();
        }
    }

    #[cold]
    fn tell_all(&self) {
        while let Some(event) = self.next() {
            let _telling = Telling(self);
            self.observe(&Event::Region { event: &event, allocator: &self.allocator });
        }
    }

    /// The next event, if nobody else is telling. Whoever gets one must say when it is told.
    fn next(&self) -> Option<RegionEvent> {
        let mut news = self.news.lock();
        if news.telling {
            return None;
        }
        let event = news.events.pop_front();
        news.telling = event.is_some();
        if event.is_none() {
            self.pending.store(false, Ordering::Relaxed);
        }
        event
    }

    /// Nothing more is noted from now on.
    pub fn end(&self) {
        // Relaxed: what is noted meanwhile is told, or forgotten with the watch.
        self.ended.store(true, Ordering::Relaxed);
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn note(&self, event: RegionEvent) {
        let mut news = self.news.lock();
        // Read under the lock, so that events are in order of time.
        news.events.push_back(RegionEvent { at: EventClock::ticks_if_used(), ..event });
        self.pending.store(true, Ordering::Relaxed);
    }
}

impl Drop for RegionWatch {
    fn drop(&mut self) {
        // SAFETY: taken once, here.
        let observer = unsafe { ManuallyDrop::take(&mut self.observer) };
        // Its end is its own affair: this may be in the middle of a block's return.
        let _ended = shielded(|| drop(observer));
    }
}

/// Tells all of these. Call it with no lock held.
pub(crate) fn tell(watches: &[Arc<RegionWatch>]) {
    watches.iter().for_each(|watch| watch.tell());
}

/// An event is being told, until this is dropped: by a panic of the observer's, too.
struct Telling<'a>(&'a RegionWatch);

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.0.news.lock().telling = false;
    }
}

impl fmt::Debug for RegionWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegionWatch").field("allocator", &self.allocator).finish_non_exhaustive()
    }
}

/// Who watches an engine's regions. An engine has it beside them, under the same lock.
///
/// ```
/// use orlop_alloc::{RegionAction, RegionEvent, RegionWatches};
/// use orlop_core::Device;
///
/// let watches = RegionWatches::default();
/// assert!(!watches.is_watched());
/// watches.note(RegionEvent::new(RegionAction::Gained, 4096, 1 << 20, Device::CPU));
/// ```
///
/// Nobody forgets to drop what [`RegionWatches::add`] hands out:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # use orlop_alloc::{RegionWatch, RegionWatches};
/// # fn watch(watches: &mut RegionWatches, watch: &std::sync::Arc<RegionWatch>) {
/// watches.add(watch, []);
/// # }
/// ```
#[derive(Debug, Default)]
pub struct RegionWatches {
    watches: Vec<Arc<RegionWatch>>,
}

impl RegionWatches {
    /// Whether anybody looks.
    #[inline]
    #[must_use]
    pub fn is_watched(&self) -> bool {
        !self.watches.is_empty()
    }

    /// From now on this watch is told; first of the regions that are there. Those that have ended are handed out: drop them
    /// when the lock is released, because an observer may go with them, and run anything.
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

    /// Notes a change for all. Call it under the lock that the regions are behind: gains before anybody can have a block
    /// in them, losses before the memory goes back.
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

    /// Those who look, to [tell](RegionWatch::tell) them once the lock is released: for calls that do not come by way of a
    /// handle.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<RegionWatch>> {
        self.watches.clone()
    }
}
