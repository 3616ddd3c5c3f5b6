//! [`DriverScope`]: the state of a thread that the driver keeps, switched for a call and restored.
//!
//! Calls on events and streams that are not the default one need some context, whichever is current (the CUDA
//! programming guide, "Stream and Event Behavior", says which). They are made at once, and again in a scope
//! if they fail: [`DeviceState::on_stream`].

use super::DeviceState;
use super::stream_table::check_unlocked;
use crate::driver::{Driver, abi, call};
use crate::error::{CudaError, can_be_of_the_context};
use orlop_alloc::engine_support::trace_guarded;
use orlop_device::DriverFailure;
use std::cell::Cell;
use std::marker::PhantomData;

/// A device's context is current on the calling thread, and the thread's calls do not end a capture of
/// another thread. Dropping it restores what was.
///
/// Memory is allocated, and events are queried, on whatever thread needs it, while another thread may
/// capture. The driver refuses such calls then, and ends the capture, unless the thread has relaxed its
/// mode.
#[must_use = "what was current is restored when it is dropped"]
pub(crate) struct DriverScope<'a> {
    relaxed: RelaxedMode,
    /// The context to restore, if another one is current.
    previous: Option<abi::Handle>,
    /// It belongs to a thread, and the device exists as long as it.
    of: PhantomData<(&'a DeviceState, *const ())>,
}

/// The reports of a thread that [`report_afterwards`] holds back.
#[derive(Clone, Copy)]
enum HeldReports {
    None,
    One(DriverFailure),
}

thread_local! {
    /// `None` while failures are reported at once. Without a destructor: streams are dropped until the
    /// thread ends.
    static HELD_REPORTS: Cell<Option<HeldReports>> = const { Cell::new(None) };
}

/// Calls the driver in the midst of a change that other threads wait for. What restoring the thread's state
/// reports is reported after the change: a subscriber is user code, which can wait for those threads.
pub(super) fn report_afterwards<R>(change: impl FnOnce() -> R) -> R {
    if HELD_REPORTS.get().is_some() {
        return change();
    }
    HELD_REPORTS.set(Some(HeldReports::None));
    let result = change();
    if let Some(HeldReports::One(failure)) = HELD_REPORTS.take() {
        report_not_restored(failure);
    }
    result
}

fn report_not_restored(failure: DriverFailure) {
    if HELD_REPORTS.get().is_some() {
        return HELD_REPORTS.set(Some(HeldReports::One(failure)));
    }
    trace_guarded(|| tracing::error!(%failure, "the CUDA state of the thread was not restored"));
}

/// The thread's calls do not end a capture of another thread, until it is dropped.
struct RelaxedMode {
    driver: &'static Driver,
    /// The mode to restore.
    mode: i32,
}

thread_local! {
    /// Whether a context was current on this thread when that was last seen.
    static HAS_CONTEXT: Cell<bool> = const { Cell::new(true) };
}

impl DeviceState {
    /// Makes a call for a stream of this device, which needs this device's context only for the default
    /// stream. It has no effect if it fails.
    pub(super) fn on_stream<T>(
        &self,
        stream: abi::Handle,
        call: impl Fn(&'static Driver) -> Result<T, DriverFailure>,
    ) -> Result<T, CudaError> {
        check_unlocked();
        if !stream.is_null() && HAS_CONTEXT.get() {
            match call(self.driver) {
                Err(failure) if can_be_of_the_context(failure) => {}
                made => return Ok(made?),
            }
        }
        let scope = self.enter()?;
        Ok(call(scope.driver())?)
    }

    /// Makes a call that needs no certain context, and that the driver takes for one that ends the captures
    /// of other threads. It has no effect if it fails.
    pub(super) fn beside_captures<T>(
        &self,
        call: impl Fn(&'static Driver) -> Result<T, DriverFailure>,
    ) -> Result<T, CudaError> {
        check_unlocked();
        if HAS_CONTEXT.get() {
            let _relaxed = RelaxedMode::enter(self.driver)?;
            match call(self.driver) {
                Err(failure) if can_be_of_the_context(failure) => {}
                made => return Ok(made?),
            }
        }
        let scope = self.enter()?;
        Ok(call(scope.driver())?)
    }
}

impl RelaxedMode {
    fn enter(driver: &'static Driver) -> Result<Self, CudaError> {
        let mut mode = abi::CAPTURE_MODE_RELAXED;
        // SAFETY: it exchanges one number.
        unsafe { call!(driver, cuThreadExchangeStreamCaptureMode(&raw mut mode)) }?;
        Ok(Self { driver, mode })
    }
}

impl Drop for RelaxedMode {
    fn drop(&mut self) {
        let mut mode = self.mode;
        // SAFETY: it exchanges one number.
        let restored = unsafe { call!(self.driver, cuThreadExchangeStreamCaptureMode(&raw mut mode)) };
        if let Err(failure) = restored {
            report_not_restored(failure);
        }
    }
}

impl<'a> DriverScope<'a> {
    /// Makes the context of a device current.
    pub(crate) fn enter(device: &'a DeviceState) -> Result<Self, CudaError> {
        let mut scope = Self::of_caller(device.driver)?;
        let wanted: abi::Handle = device.context.cu_ctx().cast();
        if scope.previous == Some(wanted) {
            scope.previous = None;
            return Ok(scope);
        }
        // SAFETY: the context exists as long as the device.
        unsafe { call!(scope.driver(), cuCtxSetCurrent(wanted)) }?;
        Ok(scope)
    }

    /// Keeps the thread's context, to be restored.
    pub(crate) fn of_caller(driver: &'static Driver) -> Result<Self, CudaError> {
        check_unlocked();
        let mut current = std::ptr::null_mut();
        // SAFETY: it writes one handle.
        unsafe { call!(driver, cuCtxGetCurrent(&raw mut current)) }?;
        HAS_CONTEXT.set(!current.is_null());
        Ok(Self { relaxed: RelaxedMode::enter(driver)?, previous: Some(current), of: PhantomData })
    }

    pub(crate) fn driver(&self) -> &'static Driver {
        self.relaxed.driver
    }
}

impl Drop for DriverScope<'_> {
    fn drop(&mut self) {
        let Some(previous) = self.previous else { return };
        // SAFETY: it was current when the scope began. If it was destroyed, that is an error.
        if let Err(failure) = unsafe { call!(self.driver(), cuCtxSetCurrent(previous)) } {
            report_not_restored(failure);
        }
    }
}
