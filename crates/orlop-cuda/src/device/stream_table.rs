//! The streams of all devices, by their ids.
//!
//! A [`StreamId`] is a number that blocks and engines carry. This table says which stream of the driver it
//! is. An id stays meaningful after its stream: when the last [`DeviceStream`] of a stream is dropped, an
//! event is recorded in it, and the id stands for that event from then on. So a block that such a
//! stream used is reused after the stream's work, whenever it is freed, and the driver's stream can be
//! destroyed at once. Ids are never reused; those of streams whose work is complete are kept as ranges of
//! numbers.
//!
//! An event that is recorded in a capture is none of the stream's work, and destroying the stream would end
//! the capture. So a stream whose last handle is dropped meanwhile is kept until the capture is over.

use super::DeviceState;
use super::captures::run_deferred_frees;
use super::events::{self, COMPLETE, NEVER};
use super::known::{DeviceUse, by_ordinal};
use super::scope::report_afterwards;
use crate::driver::abi;
use crate::error::CudaError;
use cudarc::driver::CudaStream;
use orlop_alloc::engine_support::trace_guarded;
use orlop_core::{Device, DeviceType, StreamId};
use orlop_device::{EventId, StreamIdSet};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A stream in the table.
pub(crate) struct StreamEntry {
    id: StreamId,
    device: Arc<DeviceState>,
    /// cudarc's stream, which owns the driver's unless that is borrowed.
    stream: Arc<CudaStream>,
}

/// What an id stands for.
pub(crate) enum StreamTarget {
    /// The host, whose work is complete when a call returns.
    Host,
    /// A stream of the driver.
    Stream {
        device: Arc<DeviceState>,
        handle: abi::Handle,
        /// Keeps it. `None` for default streams, which always exist.
        _entry: Option<Arc<StreamEntry>>,
    },
    /// A stream that is gone, with the event that completes after its work.
    Ended(EventId),
}

#[derive(Default)]
struct StreamTable {
    live: HashMap<StreamId, LiveStream>,
    /// Streams without handles that capture.
    kept: Vec<Arc<StreamEntry>>,
    /// Streams that are gone, and whose work may still run.
    ended: BTreeMap<StreamId, EventId>,
    /// The one of them whose event was queried last.
    swept: Option<StreamId>,
    /// Streams that are gone, and their work complete.
    complete: StreamIdSet,
    /// Streams that are gone, and whose work could not be waited for.
    lost: StreamIdSet,
}

/// A stream that has handles, or whose last one is being dropped.
struct LiveStream {
    /// The address of cudarc's stream.
    place: usize,
    entry: Weak<StreamEntry>,
}

static STREAMS: Mutex<Option<StreamTable>> = Mutex::new(None);

thread_local! {
    /// Whether this thread holds the table.
    static HOLDS_TABLE: Cell<bool> = const { Cell::new(false) };
}

/// The table, locked. Its thread calls no driver meanwhile, which can be slow or wait for another thread:
/// [`check_unlocked`].
struct TableGuard(MutexGuard<'static, Option<StreamTable>>);

fn table() -> TableGuard {
    let guard = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    HOLDS_TABLE.set(true);
    TableGuard(guard)
}

/// Panics in debug builds if this thread holds the table.
pub(super) fn check_unlocked() {
    debug_assert!(!HOLDS_TABLE.get(), "the driver is called with the table of streams locked");
}

impl TableGuard {
    fn get(&mut self) -> &mut StreamTable {
        self.0.get_or_insert_default()
    }
}

impl Drop for TableGuard {
    fn drop(&mut self) {
        HOLDS_TABLE.set(false);
    }
}

/// Moves a stream whose last event is complete to the completed ones, and forgets the event: once, whichever
/// thread finds it first.
fn complete(id: StreamId, event: EventId) {
    let mut table = table();
    let streams = table.get();
    if streams.ended.get(&id) == Some(&event) {
        streams.ended.remove(&id);
        streams.complete.insert(id);
        drop(table);
        events::forget(event);
    }
}

impl StreamTable {
    /// Returns the entry of the stream of cudarc at this address.
    fn live_at(&self, place: usize) -> Option<Arc<StreamEntry>> {
        self.live.values().filter(|live| live.place == place).find_map(|live| live.entry.upgrade())
    }

    /// Returns the stream that is gone, and comes next in turn, with its event.
    fn next_ended(&mut self) -> Option<(StreamId, EventId)> {
        let last = self.swept.map_or(Unbounded, Excluded);
        let next = self.ended.range((last, Unbounded)).next().or_else(|| self.ended.iter().next());
        let next = next.map(|(&id, &event)| (id, event));
        self.swept = next.map(|(id, _)| id);
        next
    }
}

/// Does what captures forbade: frees, and the ends of kept streams. Removes streams that are gone and whose
/// work is complete.
/// At most two of those are queried: one more than a call can add. Calls of the driver can be slow, so they
/// are made without the table's lock.
pub(crate) fn sweep() {
    run_deferred_frees();
    let kept = table().get().kept.clone();
    for entry in kept.into_iter().filter(|entry| !entry.is_capturing()) {
        let mut table = table();
        let kept = &mut table.get().kept;
        let place = kept.iter().position(|other| Arc::ptr_eq(other, &entry));
        let removed = place.map(|place| kept.swap_remove(place));
        drop(table);
        drop((removed, entry));
    }
    for _ in 0..2 {
        let Some((id, event)) = table().get().next_ended() else { return };
        if matches!(events::is_complete(event), Ok(true)) {
            complete(id, event);
        }
    }
}

/// Returns what an id stands for.
pub(crate) fn resolve(id: StreamId) -> Result<StreamTarget, CudaError> {
    if id == StreamId::HOST {
        return Ok(StreamTarget::Host);
    }
    if let Some(device) = id.default_device() {
        return default_of(device).ok_or(CudaError::UnknownStream { stream: id });
    }
    loop {
        let mut table = table();
        let table = table.get();
        match table.live.get(&id).map(|live| live.entry.upgrade()) {
            Some(Some(entry)) => {
                let (device, handle) = (Arc::clone(&entry.device), entry.handle());
                return Ok(StreamTarget::Stream { device, handle, _entry: Some(entry) });
            }
            // Its last handle is being dropped by another thread, which is about to put it among the ended,
            // and runs no code of the user before.
            Some(None) => {}
            None if table.complete.contains(id) => return Ok(StreamTarget::Ended(COMPLETE)),
            None => {
                let ended = table.ended.get(&id).copied();
                return ended.map(StreamTarget::Ended).ok_or(CudaError::UnknownStream { stream: id });
            }
        }
        std::thread::yield_now();
    }
}

/// Returns what the default stream of a device stands for. `None` if the process has never used the device.
fn default_of(device: Device) -> Option<StreamTarget> {
    if device.device_type() != DeviceType::Cuda {
        return None;
    }
    loop {
        match by_ordinal(device.index())? {
            DeviceUse::Open(device) => {
                return Some(StreamTarget::Stream { device, handle: std::ptr::null_mut(), _entry: None });
            }
            DeviceUse::Closing => std::thread::yield_now(),
            DeviceUse::Finished => return Some(StreamTarget::Ended(COMPLETE)),
            DeviceUse::Unfinished => return Some(StreamTarget::Ended(NEVER)),
        }
    }
}

/// Returns the default stream of a device and the others that are known, those included that are gone and
/// whose work may still run.
pub(super) fn streams_of(device: &DeviceState) -> Vec<StreamId> {
    let mut table = table();
    let streams = table.get();
    let entries: Vec<_> = streams.live.values().filter_map(|live| live.entry.upgrade()).collect();
    let of_device = streams.ended.iter().filter(|&(_, &event)| device.owns(event));
    let ended: Vec<StreamId> = of_device.map(|(&id, _)| id).collect();
    // The last owner of an entry locks the table.
    drop(table);
    let live = entries.iter().filter(|entry| std::ptr::eq(&*entry.device, device)).map(|entry| entry.id);
    let default = StreamId::default_of(device.device());
    live.chain(ended).chain([default]).collect()
}

/// Returns `true` if an id stands for a stream: of this crate, or a default stream of a device in use.
pub(crate) fn is_known(id: StreamId) -> bool {
    if id == StreamId::HOST || id.default_device().is_some() {
        return resolve(id).is_ok();
    }
    let mut table = table();
    let streams = table.get();
    streams.live.contains_key(&id)
        || streams.ended.contains_key(&id)
        || streams.complete.contains(id)
        || streams.lost.contains(id)
}

/// Returns `true` if a stream captures, or if the driver does not say.
pub(crate) fn is_capturing(id: StreamId) -> bool {
    match resolve(id) {
        Ok(StreamTarget::Stream { device, handle, _entry }) => device.is_capturing(handle).unwrap_or(true),
        Ok(StreamTarget::Host | StreamTarget::Ended(_)) => false,
        Err(_) => true,
    }
}

/// Returns `true` if a stream is gone and its work complete.
pub(crate) fn has_ended(id: StreamId) -> bool {
    let event = {
        let mut table = table();
        let streams = table.get();
        match streams.ended.get(&id) {
            Some(&event) => event,
            None => return streams.complete.contains(id),
        }
    };
    let is_complete = matches!(events::is_complete(event), Ok(true));
    if is_complete {
        complete(id, event);
    }
    is_complete
}

/// Returns the entry of the stream of cudarc at this address.
pub(super) fn known_at(place: usize) -> Option<Arc<StreamEntry>> {
    table().get().live_at(place)
}

/// Returns the entry of a stream of cudarc, which has one id while it is known.
pub(super) fn known_entry(device: &Arc<DeviceState>, stream: Arc<CudaStream>) -> Arc<StreamEntry> {
    let place = Arc::as_ptr(&stream).addr();
    let mut table = table();
    if let Some(entry) = table.get().live_at(place) {
        return entry;
    }
    let id = StreamId::unique();
    let entry = Arc::new(StreamEntry { id, device: Arc::clone(device), stream });
    table.get().live.insert(id, LiveStream { place, entry: Arc::downgrade(&entry) });
    entry
}

impl StreamEntry {
    pub(super) fn id(&self) -> StreamId {
        self.id
    }

    pub(super) fn device(&self) -> &Arc<DeviceState> {
        &self.device
    }

    pub(super) fn cudarc(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    pub(super) fn handle(&self) -> abi::Handle {
        self.stream.cu_stream().cast()
    }

    /// Returns `true` if the stream captures, as far as the driver says.
    fn is_capturing(&self) -> bool {
        matches!(self.device.is_capturing(self.handle()), Ok(true))
    }

    /// Returns an event that completes after all work of the stream. If none can be recorded, waits.
    fn last_event(&self) -> Result<EventId, CudaError> {
        // SAFETY: the stream exists until its owner is dropped, after this.
        unsafe { self.device.record(self.handle()) }.or_else(|error| {
            self.device.enter()?.finish_stream(self.handle()).map_err(|_| error)?;
            Ok(COMPLETE)
        })
    }

    /// Keeps a stream that captures without a handle.
    fn keep(&self) {
        let (device, stream) = (Arc::clone(&self.device), Arc::clone(&self.stream));
        let kept = Arc::new(Self { id: self.id, device, stream });
        let place = Arc::as_ptr(&self.stream).addr();
        let live = LiveStream { place, entry: Arc::downgrade(&kept) };
        let mut table = table();
        let streams = table.get();
        streams.live.insert(self.id, live);
        streams.kept.push(kept);
    }

    /// Puts the stream among those that are gone. If its work cannot be waited for, it is lost: the id is
    /// unknown from then on, and a block that the stream used is never reused.
    fn end(&self) -> Result<(), CudaError> {
        let last = self.last_event();
        let mut table = table();
        let streams = table.get();
        streams.live.remove(&self.id);
        match last {
            Ok(COMPLETE) => {
                streams.complete.insert(self.id);
            }
            Ok(event) => {
                streams.ended.insert(self.id, event);
            }
            Err(_) => {
                streams.lost.insert(self.id);
            }
        }
        last.map(|_event| ())
    }
}

impl Drop for StreamEntry {
    fn drop(&mut self) {
        let ended = report_afterwards(|| {
            if self.is_capturing() {
                self.keep();
                return Ok(());
            }
            self.end()
        });
        if let Err(error) = ended {
            trace_guarded(|| tracing::error!(stream = %self.id, %error, "a stream was lost"));
        }
        sweep();
    }
}
