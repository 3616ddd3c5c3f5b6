//! [`CudaDevice`]: a device with its context, events and streams.
//!
//! | module | what it holds |
//! |---|---|
//! | `capture_state` | whether a stream captures, and what a capture refuses |
//! | `clock` | the time of a stream's work |
//! | `captures` | captures, marked for all allocators; what is freed after them |
//! | `known` | the devices in use, and how the use of others ended |
//! | `peers` | access of kernels to the memory of other devices |
//! | `scope` | the context of the calling thread, switched for a call and restored |
//! | `events` | events, reused |
//! | `order` | the order of two streams |
//! | `owned_event` | events that are not reused |
//! | `process_event` | the order of two processes |
//! | `stream_table` | the streams of all devices, by their ids |
//! | `streams` | the streams that programs create, adopt and borrow |

mod capture_state;
mod captures;
mod clock;
mod events;
mod known;
mod order;
mod owned_event;
mod peers;
mod process_event;
mod scope;
mod stream_table;
mod streams;

use self::peers::PeerAccess;

pub use self::captures::CaptureScope;
pub(crate) use self::captures::{free_after_capture, run_deferred_frees};
pub use self::clock::StreamClock;
pub(crate) use self::events::{EventPool, RecordedEvent, forget, record, synchronize, wait};
pub(crate) use self::known::in_use;
pub(crate) use self::order::order;
pub use self::process_event::ProcessEvent;
pub(crate) use self::scope::DriverScope;
pub(crate) use self::stream_table::{StreamTarget, has_ended, is_capturing, is_known, resolve};
pub use self::streams::DeviceStream;

use crate::allocators::{Link, MadeCurrent};
use crate::driver::{Driver, abi, call};
use crate::error::CudaError;
use cudarc::driver::CudaContext;
use orlop_alloc::DeviceMemory;
use orlop_alloc::engine_support::trace_guarded;
use orlop_core::{Device, StreamId};
use orlop_device::CaptureCount;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, ptr};

/// A CUDA device, as this process uses it: one context, shared by all allocators and operations.
///
/// Clones are the same device. Blocks, allocators and streams keep it: it ends after the last of them, in
/// whatever order they are dropped.
///
/// It can be used from any thread, whatever context is current there: each call switches to the context of
/// the device and restores the one that was current.
#[derive(Clone)]
pub struct CudaDevice {
    state: Arc<DeviceState>,
}

/// A device's context, and what belongs to it.
pub(crate) struct DeviceState {
    pub(crate) driver: &'static Driver,
    pub(crate) context: Arc<CudaContext>,
    pub(crate) ordinal: u16,
    /// Distinguishes this state from earlier ones of the same device, in the ids of events.
    key: u16,
    total: u64,
    /// The driver's id of the context, which no other one ever has. `None` before CUDA 12.0.
    pub(crate) context_id: Option<u64>,
    pub(crate) events: EventPool,
    /// The pools that were made current, the last one at the end.
    current_pools: Mutex<Vec<MadeCurrent>>,
    /// The allocators that trim each other, in that order.
    linked: Mutex<Vec<Link>>,
    /// The other devices that can access the memory.
    access: PeerAccess,
    /// The captures that are marked, for all engines.
    pub(crate) captures: CaptureCount,
    /// The number of imported blocks whose memory is open.
    pub(crate) open_imports: AtomicUsize,
}

impl CudaDevice {
    /// Opens a device: its primary context, which CUDA's runtime, PyTorch and cudarc use too. While the
    /// process uses it already, returns the same one.
    ///
    /// # Errors
    ///
    /// Those of [`Driver::load`]; [`CudaError::NoSuchDevice`]; failures of the driver.
    pub fn new(ordinal: u16) -> Result<Self, CudaError> {
        let driver = Driver::load()?;
        let count = driver.initialise()?;
        if ordinal >= count {
            return Err(CudaError::NoSuchDevice { ordinal, count });
        }
        if let Some(state) = in_use(ordinal) {
            return Ok(Self { state });
        }
        let restored = DriverScope::of_caller(driver)?;
        let context = CudaContext::new(usize::from(ordinal));
        drop(restored);
        let context = context.map_err(|error| driver.failure_of("CudaContext::new", error))?;
        Self::adopt(context)
    }

    /// Adopts the device of a context of cudarc: allocators then use that context, and its memory can be used
    /// by everything that the program does through it.
    ///
    /// # Errors
    ///
    /// Those of [`Driver::load`]; [`CudaError::OtherContext`] if the process uses the device through another
    /// context; failures of the driver.
    pub fn adopt(context: Arc<CudaContext>) -> Result<Self, CudaError> {
        let driver = Driver::load()?;
        let count = driver.device_count();
        let number = u16::try_from(context.ordinal()).ok().filter(|&number| number < count);
        let ordinal = number.ok_or(CudaError::NoSuchDevice { ordinal: u16::MAX, count })?;
        if let Some(state) = in_use(ordinal)
            && state.context.cu_ctx() == context.cu_ctx()
        {
            return Ok(Self { state });
        }
        let mut state = DeviceState {
            driver,
            context,
            ordinal,
            key: known::UNPUBLISHED,
            total: 0,
            context_id: None,
            events: EventPool::default(),
            current_pools: Mutex::default(),
            linked: Mutex::default(),
            access: PeerAccess::default(),
            captures: CaptureCount::new(),
            open_imports: AtomicUsize::new(0),
        };
        let found = state.enter().and_then(|scope| Ok((scope.memory()?, scope.context_id()?)));
        let (memory, context_id) = found?;
        (state.total, state.context_id) = (memory.total, context_id);
        // No lock is held before: what the calls report may open the device too.
        Ok(Self { state: known::publish(state)? })
    }

    /// Returns the device's name in orlop.
    #[must_use]
    pub fn device(&self) -> Device {
        Device::cuda(self.state.ordinal)
    }

    /// Returns the context of cudarc, for launches and modules.
    #[must_use]
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.state.context
    }

    /// Returns the loaded driver.
    #[must_use]
    pub fn driver(&self) -> &'static Driver {
        self.state.driver
    }

    /// Returns the id of the device's default stream, the legacy stream of the driver.
    #[must_use]
    pub fn default_stream(&self) -> StreamId {
        StreamId::default_of(self.device())
    }

    /// Returns the total and the free bytes of the device's memory. Memory of other processes is not free.
    ///
    /// # Errors
    ///
    /// Failures of the driver.
    pub fn memory(&self) -> Result<DeviceMemory, CudaError> {
        self.state.enter()?.memory()
    }

    /// Waits, on the host, for all work of the device, that of unknown streams included.
    ///
    /// # Errors
    ///
    /// [`CudaError::Capturing`] if a known stream captures; failures of the driver.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.state.synchronize()
    }

    pub(crate) fn state(&self) -> &Arc<DeviceState> {
        &self.state
    }
}

impl DeviceState {
    pub(crate) fn device(&self) -> Device {
        Device::cuda(self.ordinal)
    }

    /// Returns the driver's number of the device.
    pub(crate) fn number(&self) -> i32 {
        self.context.cu_device()
    }

    pub(crate) fn linked(&self) -> MutexGuard<'_, Vec<Link>> {
        self.linked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn current_pools(&self) -> MutexGuard<'_, Vec<MadeCurrent>> {
        self.current_pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the driver's handle of the context.
    pub(crate) fn context_handle(&self) -> abi::Handle {
        self.context.cu_ctx().cast()
    }

    /// Returns the bytes of memory of the device.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Makes the device's context current on this thread, until the scope is dropped.
    pub(crate) fn enter(&self) -> Result<DriverScope<'_>, CudaError> {
        DriverScope::enter(self)
    }

    /// Checks that a stream can access the memory of this device: it is one of its own, or gone.
    ///
    /// # Errors
    ///
    /// [`CudaError::OtherDevice`]; [`CudaError::UnknownStream`].
    pub(crate) fn check_stream(&self, stream: StreamId) -> Result<(), CudaError> {
        match resolve(stream)? {
            StreamTarget::Stream { device, .. } if device.key != self.key => {
                Err(CudaError::OtherDevice { stream, device: self.device() })
            }
            _ => Ok(()),
        }
    }

    /// Waits, on the host, for the work of all known streams that do not capture. A stream that is lost
    /// meanwhile has no event to wait for: what it used is never reused.
    ///
    /// # Errors
    ///
    /// [`CudaError::Capturing`] if one captures, after the wait for the others; failures of the driver.
    pub(crate) fn finish_streams(&self) -> Result<(), CudaError> {
        let mut finished = Ok(());
        for stream in stream_table::streams_of(self) {
            let waited = record(stream).and_then(|event| synchronize(event).inspect_err(|_| forget(event)));
            match waited {
                Err(error @ CudaError::Capturing { .. }) => finished = Err(error),
                Err(CudaError::UnknownStream { .. }) => {}
                waited => waited?,
            }
        }
        finished
    }

    /// Waits, on the host, for all work of the device, that of unknown streams included.
    ///
    /// # Errors
    ///
    /// [`CudaError::Capturing`] if a known stream captures; failures of the driver.
    pub(crate) fn synchronize(&self) -> Result<(), CudaError> {
        let scope = self.enter()?;
        for stream in stream_table::streams_of(self) {
            if let Ok(StreamTarget::Stream { handle, _entry, .. }) = resolve(stream) {
                scope.refuse_capturing(handle, "cuCtxSynchronize")?;
            }
        }
        // SAFETY: the context is current.
        Ok(unsafe { call!(scope.driver(), cuCtxSynchronize()) }?)
    }

    /// Returns an attribute of the device.
    pub(crate) fn attribute(&self, attribute: i32) -> Result<i32, CudaError> {
        let mut value = 0;
        // SAFETY: it writes one number.
        let result =
            unsafe { call!(self.driver, cuDeviceGetAttribute(&raw mut value, attribute, self.number())) };
        result?;
        Ok(value)
    }

    /// Checks that the device has an attribute that says it supports something.
    pub(crate) fn require(&self, attribute: i32, what: &'static str) -> Result<(), CudaError> {
        if self.attribute(attribute)? != 0 {
            return Ok(());
        }
        Err(CudaError::Unsupported { device: self.device(), what })
    }
}

impl DeviceState {
    /// Waits for the work that memory of other devices waits for: that of events in use and of the default
    /// stream. Other streams have recorded an event at their end. No wait for the whole context: that would
    /// end a capture in it.
    fn finish(&self) -> Result<(), CudaError> {
        let scope = self.enter()?;
        let finished = self.events.synchronize(&scope).and_then(|()| scope.finish_stream(ptr::null_mut()));
        self.events.destroy(&scope);
        finished
    }
}

impl Drop for DeviceState {
    fn drop(&mut self) {
        if self.key == known::UNPUBLISHED {
            return;
        }
        let finished = scope::report_afterwards(|| {
            known::begin_closing(self.key);
            let finished = self.finish();
            known::end_closing(self.key, finished.is_ok());
            finished
        });
        if let Err(error) = finished {
            let device = self.device();
            trace_guarded(|| {
                tracing::error!(%device, %error, "closed before its work: memory that this uses is kept");
            });
        }
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}

impl fmt::Debug for DeviceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaDevice").field("device", &self.device()).field("total", &self.total).finish()
    }
}

impl DriverScope<'_> {
    /// Returns the total and free memory of the current device.
    pub(crate) fn memory(&self) -> Result<DeviceMemory, CudaError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: it writes two numbers.
        unsafe { call!(self.driver(), cuMemGetInfo_v2(&raw mut free, &raw mut total)) }?;
        Ok(DeviceMemory { total: total as u64, free: free as u64 })
    }

    /// Returns the id of the current context.
    fn context_id(&self) -> Result<Option<u64>, CudaError> {
        let Some(function) = self.driver().symbols.cuCtxGetId else { return Ok(None) };
        let mut id = 0;
        // SAFETY: null is the current context; it writes one number.
        let code = unsafe { function(ptr::null_mut(), &raw mut id) };
        self.driver().check("cuCtxGetId", code)?;
        Ok(Some(id))
    }
}
