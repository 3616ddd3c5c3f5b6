//! The order of two streams: one waits, on its device, for the work that the other was given so far.

use super::events::{forget, record, wait};
use super::{StreamTarget, resolve};
use crate::driver::call;
use crate::error::CudaError;
use orlop_core::StreamId;

/// Makes a stream wait, on its device, for the work that another was given so far. A stream that waits for
/// one that captures becomes a part of the capture.
pub(crate) fn order(stream: StreamId, earlier: StreamId) -> Result<(), CudaError> {
    if let Some(ordered) = order_outside_of_captures(stream, earlier) {
        return ordered;
    }
    match record(earlier) {
        Ok(event) => wait(stream, event).inspect_err(|_| forget(event)),
        Err(error @ CudaError::Capturing { .. }) => order_in_capture(stream, earlier, error),
        Err(error) => Err(error),
    }
}

/// Orders two streams if the waiting one does not capture, and neither is a default stream, which cannot be
/// a part of a capture. Then it does not matter whether the earlier one captures, and the driver is not
/// asked.
fn order_outside_of_captures(stream: StreamId, earlier: StreamId) -> Option<Result<(), CudaError>> {
    let (
        StreamTarget::Stream { device, handle, _entry },
        StreamTarget::Stream { device: of, handle: earlier, _entry: _earlier_entry },
    ) = (resolve(stream).ok()?, resolve(earlier).ok()?)
    else {
        return None;
    };
    if handle.is_null() || earlier.is_null() || device.is_capturing(handle) != Ok(false) {
        return None;
    }
    // SAFETY: the target keeps the stream.
    let event = match unsafe { of.record_anyway(earlier) } {
        Ok(event) => event,
        Err(error) => return Some(Err(error)),
    };
    let waited = match of.events.handle(event) {
        Some(event) => device.on_stream(handle, |driver| {
            // SAFETY: the target keeps the stream, and the pool the event.
            unsafe { call!(driver, cuStreamWaitEvent(handle, event, 0)) }
        }),
        None => Ok(()),
    };
    of.events.forget(event);
    Some(waited)
}

/// Makes a stream wait for one that captures, if it can be a part of that capture.
fn order_in_capture(stream: StreamId, earlier: StreamId, refused: CudaError) -> Result<(), CudaError> {
    let (
        StreamTarget::Stream { device, handle, _entry },
        StreamTarget::Stream { device: earlier, handle: captured, _entry: _earlier_entry },
    ) = (resolve(stream)?, resolve(earlier)?)
    else {
        return Err(refused);
    };
    let capture = earlier.enter()?.capture_id(captured)?;
    let scope = device.enter()?;
    let own = scope.capture_id(handle)?;
    // A default stream cannot capture, and two captures cannot become one.
    if handle.is_null()
        || captured.is_null()
        || capture.is_none()
        || own.is_some_and(|own| Some(own) != capture)
    {
        return Err(refused);
    }
    // SAFETY: the target keeps the stream.
    let event = unsafe { earlier.record_anyway(captured) }?;
    let waited = match earlier.events.handle(event) {
        // SAFETY: the target keeps the stream, and the pool the event.
        Some(event) => unsafe { call!(scope.driver(), cuStreamWaitEvent(handle, event, 0)) },
        None => Ok(()),
    };
    // It is a place in the graph, and never queried.
    earlier.events.forget(event);
    Ok(waited?)
}
