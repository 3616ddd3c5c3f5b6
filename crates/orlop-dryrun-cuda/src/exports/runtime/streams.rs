//! Streams and events.

use crate::abi::Out;
use crate::call::{enter, runtime_calls, status};
use crate::code::{Failure, Outcome};
use crate::machine::Machine;

fn create(machine: &mut Machine, stream: &Out<usize>, priority: i32) -> Outcome {
    let (handle, device) = (machine.handle(), machine.current_device());
    machine.work.create_stream(handle, device, priority.clamp(-5, 0));
    stream.set(handle)
}

fn create_event(machine: &mut Machine, event: &Out<usize>) -> Outcome {
    let handle = machine.handle();
    machine.work.create_event(handle);
    event.set(handle)
}

runtime_calls! {
    fn cudaStreamCreate(stream: Out<usize>) |machine| { create(machine, &stream, 0) }

    fn cudaStreamCreateWithFlags(stream: Out<usize>, _flags: u32) |machine| { create(machine, &stream, 0) }

    fn cudaStreamCreateWithPriority(stream: Out<usize>, _flags: u32, priority: i32) |machine| {
        create(machine, &stream, priority)
    }

    fn cudaStreamDestroy(stream: usize) |machine| { machine.work.destroy_stream(stream) }

    fn cudaStreamQuery(stream: usize) |machine| {
        if machine.work.is_idle(stream)? { Ok(()) } else { Err(Failure::NOT_READY) }
    }

    fn cudaStreamSynchronize(stream: usize) |machine| { machine.work.wait_for_stream(stream) }

    fn cudaStreamWaitEvent(stream: usize, event: usize, _flags: u32) |machine| {
        machine.work.order(stream, event)
    }

    fn cudaStreamGetPriority(stream: usize, priority: Out<i32>) |machine| {
        priority.set(machine.work.priority(stream)?)
    }

    fn cudaEventCreate(event: Out<usize>) |machine| { create_event(machine, &event) }

    fn cudaEventCreateWithFlags(event: Out<usize>, _flags: u32) |machine| { create_event(machine, &event) }

    fn cudaEventDestroy(event: usize) |machine| { machine.work.destroy_event(event) }

    fn cudaEventRecord(event: usize, stream: usize) |machine| { machine.work.record(event, stream) }

    fn cudaEventRecordWithFlags(event: usize, stream: usize, _flags: u32) |machine| {
        machine.work.record(event, stream)
    }

    fn cudaEventQuery(event: usize) |machine| {
        if machine.work.is_recorded(event)? { Ok(()) } else { Err(Failure::NOT_READY) }
    }

    fn cudaEventSynchronize(event: usize) |machine| { machine.work.wait_for_event(event) }

    fn cudaEventElapsedTime(milliseconds: Out<f32>, start: usize, end: usize) |machine| {
        machine.work.is_recorded(start)?;
        machine.work.is_recorded(end)?;
        // Nothing takes time. A program may divide by it.
        milliseconds.set(1e-3)
    }
}

/// A function of a program that the runtime calls.
type HostFunction = Option<unsafe extern "C" fn(usize)>;
type StreamCallback = Option<unsafe extern "C" fn(usize, i32, usize)>;

/// Calls a function of the program, which on a device would wait for the stream.
#[allow(non_snake_case)] // The names are CUDA's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaLaunchHostFunc(stream: usize, function: HostFunction, data: usize) -> i32 {
    let outcome = enter(|machine| machine.work.submit(stream));
    if let (Ok(()), Some(function)) = (outcome, function) {
        // SAFETY: the program passes a function for this data; no lock is held.
        unsafe { function(data) };
    }
    status(outcome)
}

/// Calls a function of the program with the stream and its status.
#[allow(non_snake_case)] // The names are CUDA's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn cudaStreamAddCallback(
    stream: usize,
    callback: StreamCallback,
    data: usize,
    _flags: u32,
) -> i32 {
    let outcome = enter(|machine| machine.work.submit(stream));
    if let (Ok(()), Some(callback)) = (outcome, callback) {
        // SAFETY: the program passes a function for this data; no lock is held.
        unsafe { callback(stream, 0, data) };
    }
    status(outcome)
}
