//! Whether a stream captures, and what a capture refuses.

use super::{DeviceState, DriverScope};
use crate::driver::{Driver, abi, call};
use crate::error::CudaError;
use orlop_device::DriverFailure;
use std::ptr;

/// Returns `true` if a stream captures, or if it is the default stream and one that it waits for does. The
/// query ends no capture.
fn query(driver: &'static Driver, stream: abi::Handle) -> Result<bool, DriverFailure> {
    let mut status = abi::CAPTURE_STATUS_NONE;
    // SAFETY: the stream exists (`StreamTarget`); it writes one number.
    match unsafe { call!(driver, cuStreamIsCapturing(stream, &raw mut status)) } {
        Err(DriverFailure { code: abi::CAPTURE_IMPLICIT, .. }) => Ok(true),
        known => known.map(|()| status != abi::CAPTURE_STATUS_NONE),
    }
}

fn refuse(is_capturing: bool, call: &'static str) -> Result<(), CudaError> {
    if is_capturing { Err(CudaError::Capturing { call }) } else { Ok(()) }
}

impl DeviceState {
    /// As [`DriverScope::is_capturing`], for a stream of this device.
    pub(super) fn is_capturing(&self, stream: abi::Handle) -> Result<bool, CudaError> {
        self.on_stream(stream, |driver| query(driver, stream))
    }

    /// As [`DriverScope::refuse_capturing`], for a stream of this device.
    pub(super) fn refuse_capturing(&self, stream: abi::Handle, call: &'static str) -> Result<(), CudaError> {
        refuse(self.is_capturing(stream)?, call)
    }
}

impl DriverScope<'_> {
    /// Returns `true` if a stream captures, or if it is the default stream and one that it waits for does.
    /// The query ends no capture.
    pub(crate) fn is_capturing(&self, stream: abi::Handle) -> Result<bool, CudaError> {
        Ok(query(self.driver(), stream)?)
    }

    /// Returns the driver's id of the capture of a stream; `None` if it does not capture.
    ///
    /// # Errors
    ///
    /// [`CudaError::Capturing`] if it captures, and the driver has no ids (before CUDA 11.3).
    pub(crate) fn capture_id(&self, stream: abi::Handle) -> Result<Option<u64>, CudaError> {
        if !self.is_capturing(stream)? {
            return Ok(None);
        }
        const CALL: &str = "cuStreamGetCaptureInfo_v2";
        let function = self.driver().symbols.cuStreamGetCaptureInfo_v2;
        let function = function.ok_or(CudaError::Capturing { call: CALL })?;
        let (mut status, mut id, none) = (abi::CAPTURE_STATUS_NONE, 0, ptr::null_mut());
        // SAFETY: the stream exists (`StreamTarget`); it writes two numbers, and nothing where it gets null.
        let code = unsafe { function(stream, &raw mut status, &raw mut id, none, none.cast(), none.cast()) };
        self.driver().check(CALL, code)?;
        Ok((status != abi::CAPTURE_STATUS_NONE).then_some(id))
    }

    /// Refuses a call on a stream that captures, which would end the capture or become a part of it.
    pub(crate) fn refuse_capturing(&self, stream: abi::Handle, call: &'static str) -> Result<(), CudaError> {
        refuse(self.is_capturing(stream)?, call)
    }

    /// Refuses work on the default stream while a stream captures that it waits for: it would end the
    /// capture.
    pub(crate) fn refuse_implicit(&self, stream: abi::Handle, call: &'static str) -> Result<(), CudaError> {
        if stream.is_null() { self.refuse_capturing(stream, call) } else { Ok(()) }
    }

    /// Refuses a copy of pageable memory on a stream that captures: the graph would repeat it with memory
    /// that is gone.
    pub(crate) fn refuse_pageable(&self, stream: abi::Handle) -> Result<(), CudaError> {
        self.refuse_capturing(stream, "a copy of pageable host memory")
    }

    /// Waits, on the host, for all work of a stream of the current device.
    pub(crate) fn finish_stream(&self, stream: abi::Handle) -> Result<(), CudaError> {
        self.refuse_capturing(stream, "cuStreamSynchronize")?;
        // SAFETY: the stream exists (`StreamTarget`).
        Ok(unsafe { call!(self.driver(), cuStreamSynchronize(stream)) }?)
    }
}
