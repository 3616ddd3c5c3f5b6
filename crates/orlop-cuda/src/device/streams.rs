//! The streams of all devices, by their ids.
//!
//! A [`StreamId`] is a number that blocks and engines carry. This table says which stream of the driver it
//! is. An id stays meaningful after its stream: when the last [`DeviceStream`] of a stream is dropped, an
//! event is recorded in it, and the id stands for that event from then on. So a block that such a
//! stream used is reused after the stream's work, whenever it is freed, and the driver's stream can be
//! destroyed at once. Ids are never reused; those of streams whose work is complete are kept as ranges of
//! numbers.

use super::events::{self, COMPLETE};
use super::{CudaDevice, DeviceState, device_in_use};
use crate::driver::{abi, call};
use crate::error::CudaError;
use cudarc::driver::CudaStream;
use orlop_alloc::engine_support::trace_guarded;
use orlop_core::{DeviceType, StreamId};
use orlop_device::{EventId, StreamIdSet};
use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A stream of a device, under an id that blocks carry.
///
/// Clones are the same stream. When the last one is dropped, the stream is no longer known by its id, and if
/// nothing else refers to it, it is destroyed. Work that it was given still runs, and blocks that it used are
/// reused only after that work.
#[derive(Clone)]
pub struct DeviceStream {
    entry: Arc<StreamEntry>,
}

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
    /// Streams that are gone, and whose work may still run.
    ended: HashMap<StreamId, EventId>,
    /// Streams that are gone, and their work complete.
    complete: StreamIdSet,
}

/// A stream that has handles, or whose last one is being dropped.
struct LiveStream {
    /// The address of cudarc's stream.
    place: usize,
    entry: Weak<StreamEntry>,
}

/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

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

/// Removes the streams that are gone and whose work is complete. Calls of the driver can be slow, so events
/// are queried without the table's lock.
fn sweep() {
    let ended: Vec<(StreamId, EventId)> =
        table().get().ended.iter().map(|(&id, &event)| (id, event)).collect();
    for (id, event) in ended {
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
        let cuda = device.device_type() == DeviceType::Cuda;
        let device = cuda.then(|| device_in_use(device.index())).flatten();
        let device = device.ok_or(CudaError::UnknownStream { stream: id })?;
        return Ok(StreamTarget::Stream { device, handle: std::ptr::null_mut(), _entry: None });
    }
    loop {
        let mut table = table();
        let table = table.get();
        match table.live.get(&id).map(|live| live.entry.upgrade()) {
            Some(Some(entry)) => {
                let (device, handle) = (Arc::clone(&entry.device), entry.handle());
                return Ok(StreamTarget::Stream { device, handle, _entry: Some(entry) });
            }
            // Its last handle is being dropped by another thread, which is about to put it among the ended.
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

impl StreamEntry {
    fn handle(&self) -> abi::Handle {
        self.stream.cu_stream().cast()
    }

    /// Returns an event that completes after all work of the stream. If none can be recorded, waits.
    fn last_event(&self) -> Result<EventId, CudaError> {
        // SAFETY: the stream exists until its owner is dropped, after this.
        unsafe { self.device.record(self.handle()) }.or_else(|error| {
            let scope = self.device.enter()?;
            // SAFETY: as above.
            unsafe { call!(scope.driver(), cuStreamSynchronize(self.handle())) }.map_err(|_| error)?;
            Ok(COMPLETE)
        })
    }
}

impl Drop for StreamEntry {
    fn drop(&mut self) {
        let last = self.last_event();
        // The id is unknown from here on: a block that the stream used is never reused.
        if let Err(error) = &last {
            trace_guarded(|| tracing::error!(stream = %self.id, %error, "a stream was lost"));
        }
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
            Err(_) => {}
        }
        drop(table);
        sweep();
    }
}

impl CudaDevice {
    /// Creates a stream. It does not wait for the default stream, nor the default stream for it.
    ///
    /// # Errors
    ///
    /// Failures of the driver.
    pub fn create_stream(&self) -> Result<DeviceStream, CudaError> {
        let scope = self.state().enter()?;
        // cudarc keeps the errors of drops, and returns them from the next call, whatever that is.
        if let Err(error) = self.context().check_err() {
            let error = scope.driver().failure_of("a drop of cudarc", error);
            trace_guarded(|| tracing::warn!(%error, "an earlier error of cudarc"));
        }
        // While there is one stream, cudarc notes no uses of its slices. So it waits for the device when
        // there is another one, and a fork does not.
        let is_first = !self.context().is_in_multi_stream_mode() && self.context().is_event_tracking();
        // The fork waits for the work of the default stream so far, on the device.
        let stream = self.context().default_stream().fork();
        let stream = stream.map_err(|error| scope.driver().failure_of("CudaStream::fork", error))?;
        if is_first {
            self.state().synchronize()?;
        }
        self.add_stream(stream)
    }

    /// Adopts a stream of cudarc, which is kept as long as the result. A stream that is known already keeps
    /// its id.
    ///
    /// # Errors
    ///
    /// [`CudaError::OtherContext`] if it is a stream of another context; [`CudaError::PerThreadStream`].
    pub fn adopt_stream(&self, stream: Arc<CudaStream>) -> Result<DeviceStream, CudaError> {
        if stream.context().cu_ctx() != self.context().cu_ctx() {
            return Err(CudaError::OtherContext { device: self.device() });
        }
        self.add_stream(stream)
    }

    /// Borrows a stream that other code destroys.
    ///
    /// # Errors
    ///
    /// [`CudaError::PerThreadStream`].
    ///
    /// # Safety
    ///
    /// `stream` is a `CUstream` of the device's context ([`CudaDevice::context`]), and exists until the last
    /// clone of the result was dropped, and the last of [`DeviceStream::cudarc`].
    pub unsafe fn borrow_stream(
        &self,
        stream: cudarc::driver::sys::CUstream,
    ) -> Result<DeviceStream, CudaError> {
        // SAFETY: guaranteed by the caller.
        let stream = unsafe { self.context().wrap_borrowed_stream(stream) };
        self.add_stream(stream)
    }

    /// A stream of cudarc has one id while it is known: the table returns the handle that exists.
    fn add_stream(&self, stream: Arc<CudaStream>) -> Result<DeviceStream, CudaError> {
        let place = Arc::as_ptr(&stream).addr();
        if stream.cu_stream().addr() == PER_THREAD {
            return Err(CudaError::PerThreadStream { device: self.device() });
        }
        let mut table = table();
        let live = &mut table.get().live;
        let known =
            live.values().filter(|known| known.place == place).find_map(|known| known.entry.upgrade());
        if let Some(entry) = known {
            return Ok(DeviceStream { entry });
        }
        let id = StreamId::unique();
        let entry = Arc::new(StreamEntry { id, device: Arc::clone(self.state()), stream });
        live.insert(id, LiveStream { place, entry: Arc::downgrade(&entry) });
        Ok(DeviceStream { entry })
    }
}

impl DeviceStream {
    pub(crate) fn device(&self) -> &Arc<DeviceState> {
        &self.entry.device
    }

    /// Returns the id, for requests, recorded uses, and operations.
    #[must_use]
    pub fn id(&self) -> StreamId {
        self.entry.id
    }

    /// Returns the stream as one of cudarc, for launches. Work that it is given after the last
    /// [`DeviceStream`] was dropped is not waited for by blocks that were used under its id.
    #[must_use]
    pub fn cudarc(&self) -> &Arc<CudaStream> {
        &self.entry.stream
    }

    /// Waits, on the host, for all work of the stream.
    ///
    /// # Errors
    ///
    /// Failures of the driver, those of earlier work included.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let scope = self.entry.device.enter()?;
        // SAFETY: the entry keeps the stream.
        Ok(unsafe { call!(scope.driver(), cuStreamSynchronize(self.entry.handle())) }?)
    }

    /// Makes this stream wait, on the device, for the work that another was given so far.
    ///
    /// # Errors
    ///
    /// [`CudaError::UnknownStream`]; failures of the driver.
    pub fn wait_for(&self, other: StreamId) -> Result<(), CudaError> {
        let event = events::record(other)?;
        events::wait(self.id(), event).inspect_err(|_| events::forget(event))
    }
}

impl fmt::Debug for DeviceStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = self.entry.device.device();
        f.debug_struct("DeviceStream").field("id", &self.entry.id).field("device", &device).finish()
    }
}
