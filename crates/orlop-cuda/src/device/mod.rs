//! [`CudaDevice`]: a device with its context, events and streams.
//!
//! | module | what it holds |
//! |---|---|
//! | `scope` | the context of the calling thread, switched for a call and restored |
//! | `events` | events, reused |
//! | `streams` | the streams of all devices, by their ids |

mod events;
mod scope;
mod streams;

pub(crate) use self::events::EventPool;
pub(crate) use self::events::{forget, is_capturing, record, synchronize, wait};
pub(crate) use self::scope::DriverScope;
pub use self::streams::DeviceStream;
pub(crate) use self::streams::{StreamTarget, has_ended, resolve};

use crate::driver::{Driver, abi, call};
use crate::error::CudaError;
use cudarc::driver::CudaContext;
use orlop_alloc::DeviceMemory;
use orlop_alloc::engine_support::trace_guarded;
use orlop_core::{Device, StreamId};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

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
}

/// A device in the list of those in use.
struct KnownDevice {
    ordinal: u16,
    key: u16,
    state: Weak<DeviceState>,
}

/// The devices in use. Events and default streams are found here.
static DEVICES: Mutex<Vec<KnownDevice>> = Mutex::new(Vec::new());

fn devices() -> MutexGuard<'static, Vec<KnownDevice>> {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a device that is in use.
fn device_in_use(ordinal: u16) -> Option<Arc<DeviceState>> {
    devices().iter().filter(|known| known.ordinal == ordinal).find_map(|known| known.state.upgrade())
}

/// Returns the device whose events have this key. `None` if it is gone.
fn device_by_key(key: u16) -> Option<Arc<DeviceState>> {
    devices().iter().find(|known| known.key == key)?.state.upgrade()
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
        if let Some(state) = device_in_use(ordinal) {
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
        // Opened one at a time: one state for one device.
        static OPENING: Mutex<u16> = Mutex::new(0);
        let mut last_key = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = device_in_use(ordinal) {
            return if state.context.cu_ctx() == context.cu_ctx() {
                Ok(Self { state })
            } else {
                Err(CudaError::OtherContext { device: Device::cuda(ordinal) })
            };
        }
        // After 65,536 devices the numbers start anew.
        loop {
            *last_key = last_key.wrapping_add(1);
            if device_by_key(*last_key).is_none() {
                break;
            }
        }
        let key = *last_key;
        let events = EventPool::default();
        let mut state = DeviceState { driver, context, ordinal, key, total: 0, context_id: None, events };
        let found = state.enter().and_then(|scope| Ok((scope.memory()?, scope.context_id()?)));
        let (memory, context_id) = found?;
        (state.total, state.context_id) = (memory.total, context_id);
        let state = Arc::new(state);
        let mut devices = devices();
        devices.retain(|known| known.state.strong_count() > 0);
        devices.push(KnownDevice { ordinal, key, state: Arc::downgrade(&state) });
        Ok(Self { state })
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

    /// Returns the bytes of memory of the device.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Makes the device's context current on this thread, until the scope is dropped.
    pub(crate) fn enter(&self) -> Result<DriverScope<'_>, CudaError> {
        DriverScope::enter(self)
    }

    /// Waits, on the host, for all work of the device.
    pub(crate) fn synchronize(&self) -> Result<(), CudaError> {
        let scope = self.enter()?;
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

impl Drop for DeviceState {
    /// Waits for all work of the context: the events of a device that is gone count as complete, and pinned
    /// memory may outlive the device.
    fn drop(&mut self) {
        // A device that is lost, or a driver that is shutting down, has no work left to wait for.
        let Ok(scope) = self.enter() else { return };
        // SAFETY: the context is current.
        let finished = unsafe { call!(scope.driver(), cuCtxSynchronize()) };
        if let Err(failure) = finished {
            trace_guarded(
                || tracing::error!(%failure, "the work of a device that is closed was not finished"),
            );
        }
        self.events.destroy(&scope);
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
        let code = unsafe { function(std::ptr::null_mut(), &raw mut id) };
        self.driver().check("cuCtxGetId", code)?;
        Ok(Some(id))
    }

    /// Returns `true` if a stream captures.
    pub(crate) fn is_capturing(&self, stream: abi::Handle) -> Result<bool, CudaError> {
        let mut status = abi::CAPTURE_STATUS_NONE;
        // SAFETY: the stream exists (`StreamTarget`); it writes one number.
        unsafe { call!(self.driver(), cuStreamIsCapturing(stream, &raw mut status)) }?;
        Ok(status != abi::CAPTURE_STATUS_NONE)
    }
}
