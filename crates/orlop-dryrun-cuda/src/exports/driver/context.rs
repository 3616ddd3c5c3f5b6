//! Initialization, devices, contexts and errors.

use super::DRIVER_VERSION;
use crate::abi::Out;
use crate::call::{library_calls, set_device};
use crate::code::{Failure, texts};
use crate::exports::runtime::properties;

/// The handle of the primary context of device 0. That of the next device is one step further.
const FIRST_CONTEXT: usize = 0xC0DE_0000;
const CONTEXT_STEP: usize = 0x1000;

/// The bytes of the buffer for the output of kernels, which is the limit that Triton reads.
const PRINTF_BYTES: usize = 1 << 20;

/// Returns the device of a context.
fn device_of(context: usize) -> Option<usize> {
    context.checked_sub(FIRST_CONTEXT).map(|offset| offset / CONTEXT_STEP)
}

/// Returns the handle of the primary context of a device.
pub(super) fn context_of(device: usize) -> usize {
    FIRST_CONTEXT + CONTEXT_STEP * device
}

library_calls! {
    fn cuInit(_flags: u32) |_machine| { Ok(()) }

    fn cuDriverGetVersion(version: Out<i32>) |_machine| { version.set(DRIVER_VERSION) }

    fn cuDeviceGetCount(count: Out<i32>) |machine| {
        count.set(i32::try_from(machine.memory.devices()).unwrap_or(i32::MAX))
    }

    fn cuDeviceGet(device: Out<i32>, number: i32) |machine| {
        machine.device(number)?;
        device.set(number)
    }

    fn cuDeviceGetName(text: Out<u8>, capacity: i32, device: i32) |machine| {
        machine.device(device)?;
        text.write_text(machine.gpu().name, usize::try_from(capacity).unwrap_or(0));
        Ok(())
    }

    fn cuDeviceGetUuid(uuid: Out<u8>, device: i32) |machine| {
        uuid.write(&properties::uuid_of(machine.device(device)?));
        Ok(())
    }

    fn cuDeviceGetUuid_v2(uuid: Out<u8>, device: i32) |machine| {
        uuid.write(&properties::uuid_of(machine.device(device)?));
        Ok(())
    }

    fn cuDeviceTotalMem_v2(bytes: Out<u64>, device: i32) |machine| {
        machine.device(device)?;
        bytes.set(machine.gpu().memory)
    }

    fn cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) |machine| {
        let device = machine.device(device)?;
        value.set(properties::attribute(machine.gpu(), device, attribute))
    }

    fn cuDevicePrimaryCtxRetain(context: Out<usize>, device: i32) |machine| {
        context.set(context_of(machine.device(device)?))
    }

    fn cuDevicePrimaryCtxRelease_v2(device: i32) |machine| { machine.device(device).map(drop) }

    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, is_active: Out<i32>) |machine| {
        let device = machine.device(device)?;
        flags.set_optional(0);
        is_active.set(i32::from(machine.memory.is_used(device)))
    }

    fn cuCtxGetCurrent(context: Out<usize>) |machine| { context.set(context_of(machine.current_device())) }

    fn cuCtxSetCurrent(context: usize) |machine| {
        if let Some(device) = device_of(context) {
            set_device(device.min(machine.memory.devices() - 1));
        }
        Ok(())
    }

    fn cuCtxGetDevice(device: Out<i32>) |machine| {
        device.set(i32::try_from(machine.current_device()).unwrap_or(i32::MAX))
    }

    fn cuCtxPushCurrent_v2(context: usize) |machine| {
        let device = device_of(context).filter(|&device| device < machine.memory.devices());
        let device = device.ok_or(Failure::INVALID_CONTEXT)?;
        let below = machine.current_device();
        machine.thread().contexts.push(below);
        set_device(device);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(context: Out<usize>) |machine| {
        let current = machine.current_device();
        let below = machine.thread().contexts.pop();
        set_device(below.ok_or(Failure::INVALID_CONTEXT)?);
        context.set_optional(context_of(current));
        Ok(())
    }

    fn cuCtxSetLimit(_limit: i32, _value: usize) |_machine| { Ok(()) }

    fn cuCtxGetLimit(value: Out<usize>, _limit: i32) |_machine| { value.set(PRINTF_BYTES) }

    fn cuLogsRegisterCallback(_callback: usize, _data: usize, handle: Out<usize>) |machine| {
        // Nothing is logged.
        handle.set_optional(machine.handle());
        Ok(())
    }

    fn cuLogsUnregisterCallback(_handle: usize) |_machine| { Ok(()) }

    fn cuCtxSynchronize() |machine| {
        machine.work.wait_for_all();
        Ok(())
    }

    fn cuGetErrorString(code: i32, text: Out<usize>) |_machine| {
        text.set(texts(code).1.as_ptr().expose_provenance())
    }

    fn cuGetErrorName(code: i32, text: Out<usize>) |_machine| {
        text.set(texts(code).0.as_ptr().expose_provenance())
    }
}
