//! Streams, events and captures, as the runtime has them.

use crate::abi::Out;
use crate::call::library_calls;
use crate::code::Failure;

library_calls! {
    fn cuStreamCreate(stream: Out<usize>, _flags: u32) |machine| {
        let (handle, device) = (machine.handle(), machine.current_device());
        machine.work.create_stream(handle, device, 0);
        stream.set(handle)
    }

    fn cuStreamDestroy_v2(stream: usize) |machine| { machine.work.destroy_stream(stream) }

    fn cuStreamSynchronize(stream: usize) |machine| { machine.work.wait_for_stream(stream) }

    fn cuStreamWaitEvent(stream: usize, event: usize, _flags: u32) |machine| {
        machine.work.order(stream, event)
    }

    fn cuStreamIsCapturing(stream: usize, is_capturing: Out<i32>) |machine| {
        is_capturing.set(i32::from(machine.work.capture(stream)?.is_some()))
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<i32>) |_machine| {
        // As of the runtime: what the caller exchanges it for is global again.
        mode.set(0)
    }

    fn cuEventCreate(event: Out<usize>, _flags: u32) |machine| {
        let handle = machine.handle();
        machine.work.create_event(handle);
        event.set(handle)
    }

    fn cuEventDestroy_v2(event: usize) |machine| { machine.work.destroy_event(event) }

    fn cuEventRecord(event: usize, stream: usize) |machine| { machine.work.record(event, stream) }

    fn cuEventQuery(event: usize) |machine| {
        if machine.work.is_recorded(event)? { Ok(()) } else { Err(Failure::NOT_READY) }
    }

    fn cuEventSynchronize(event: usize) |machine| { machine.work.wait_for_event(event) }
}
