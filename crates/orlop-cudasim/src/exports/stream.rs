//! Streams.

use crate::abi::{HostFunction, Out};
use crate::call::calls;
use crate::codes::{Failure, Outcome};
use crate::guard::DriverGuard;
use crate::state::device::primary;
use crate::state::stream::{NON_BLOCKING, Stream};
use crate::state::work::{HostCallback, Submission, Work};

fn create(driver: &mut DriverGuard, stream: &Out<u64>, flags: u32, priority: i32) -> Outcome {
    if flags & !NON_BLOCKING != 0 || stream.is_null() {
        return Err(Failure::INVALID_VALUE);
    }
    let device = driver.current_device()?;
    // Priorities outside of the range are clamped to it, as the real driver does.
    let handle = driver.add_stream(device, Stream::new(flags, priority.clamp(-5, 0)));
    stream.set(handle)
}

calls! {
    fn cuStreamCreate(stream: Out<u64>, flags: u32) Context |driver| { create(driver, &stream, flags, 0) }

    fn cuStreamCreateWithPriority(stream: Out<u64>, flags: u32, priority: i32) Context |driver| {
        create(driver, &stream, flags, priority)
    }

    fn cuStreamDestroy_v2(stream: u64) Context |driver| {
        let id = driver.stream_of(stream)?;
        if driver.stream(id)?.is_legacy || id != stream {
            return Err(Failure::INVALID_HANDLE);
        }
        if let Some((capture, _)) = driver.stream(id)?.capture {
            driver.invalidate(capture);
        }
        driver.destroy_stream(id)
    }

    fn cuStreamSynchronize(stream: u64) Context |driver| {
        let id = driver.stream_of(stream)?;
        driver.refuse_capturing(id)?;
        driver.refuse_in_capture()?;
        driver.synchronize_stream(id)
    }

    fn cuStreamQuery(stream: u64) Context |driver| {
        let id = driver.stream_of(stream)?;
        driver.refuse_capturing(id)?;
        driver.refuse_in_capture()?;
        if !driver.is_idle(id) {
            return Err(Failure::NOT_READY);
        }
        driver.host_waits_for(id);
        Ok(())
    }

    fn cuStreamWaitEvent(stream: u64, event: u64, flags: u32) Context |driver| {
        if flags & !1 != 0 {
            return Err(Failure::INVALID_VALUE);
        }
        let id = driver.stream_of(stream)?;
        driver.wait_event(id, event)
    }

    fn cuStreamGetCtx(stream: u64, context: Out<u64>) Context |driver| {
        let id = driver.stream_of(stream)?;
        context.set(primary(driver.stream(id)?.device))
    }

    fn cuStreamGetDevice(stream: u64, device: Out<i32>) Context |driver| {
        let id = driver.stream_of(stream)?;
        device.set(i32::try_from(driver.stream(id)?.device).unwrap_or(i32::MAX))
    }

    fn cuStreamGetFlags(stream: u64, flags: Out<u32>) Context |driver| {
        let id = driver.stream_of(stream)?;
        flags.set(driver.stream(id)?.flags)
    }

    fn cuStreamGetPriority(stream: u64, priority: Out<i32>) Context |driver| {
        let id = driver.stream_of(stream)?;
        priority.set(driver.stream(id)?.priority)
    }

    fn cuStreamGetId(stream: u64, number: Out<u64>) Context |driver| {
        let id = driver.stream_of(stream)?;
        number.set(driver.stream(id)?.number)
    }

    fn cuLaunchHostFunc(stream: u64, function: HostFunction, data: usize) Context |driver| {
        let function = function.ok_or(Failure::INVALID_VALUE)?;
        let id = driver.stream_of(stream)?;
        let work = Work::Host { function: HostCallback { function, data } };
        driver.submit(id, Submission::new("cuLaunchHostFunc", work, Vec::new()))
    }

    fn cuStreamAttachMemAsync(stream: u64, address: usize, _length: usize, _flags: u32) Context |driver| {
        let id = driver.stream_of(stream)?;
        driver.locate(address).ok_or(Failure::INVALID_VALUE)?;
        driver.submit(id, Submission::new("cuStreamAttachMemAsync", Work::Nothing, Vec::new()))
    }
}
