//! Events.

use crate::abi::Out;
use crate::call::calls;
use crate::codes::Failure;
use crate::state::event::Recorded;

calls! {
    fn cuEventCreate(event: Out<u64>, flags: u32) Context |driver| {
        let device = driver.current_device()?;
        event.set(driver.create_event(device, flags)?)
    }

    fn cuEventDestroy_v2(event: u64) Context |driver| {
        driver.destroy_event(event)
    }

    fn cuEventRecord(event: u64, stream: u64) Context |driver| {
        let id = driver.stream_of(stream)?;
        driver.record_event(event, id)
    }

    fn cuEventRecordWithFlags(event: u64, stream: u64, flags: u32) Context |driver| {
        if flags & !1 != 0 {
            return Err(Failure::INVALID_VALUE);
        }
        let id = driver.stream_of(stream)?;
        driver.record_event(event, id)
    }

    fn cuEventQuery(event: u64) Context |driver| {
        if let Recorded::InCapture { capture, .. } = driver.event(event)?.recorded {
            driver.invalidate(capture);
            return Err(Failure::CAPTURED_EVENT);
        }
        driver.refuse_in_capture()?;
        driver.query_event(event)
    }

    fn cuEventSynchronize(event: u64) Context |driver| {
        if let Recorded::InCapture { capture, .. } = driver.event(event)?.recorded {
            driver.invalidate(capture);
            return Err(Failure::CAPTURED_EVENT);
        }
        driver.refuse_in_capture()?;
        driver.synchronize_event(event)
    }

    fn cuEventElapsedTime(milliseconds: Out<f32>, start: u64, end: u64) Context |driver| {
        milliseconds.set(driver.elapsed(start, end)?)
    }

    fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: u64, end: u64) Context |driver| {
        milliseconds.set(driver.elapsed(start, end)?)
    }
}
