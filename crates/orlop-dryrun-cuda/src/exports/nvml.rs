//! NVML: the devices, and that nothing else uses them.

use crate::abi::Out;
use crate::call::library_calls;
use crate::code::Failure;
use crate::exports::driver::DRIVER_VERSION;
use crate::exports::runtime::properties;
use std::ffi::c_char;

/// `NVML_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: Failure = Failure(3);

/// The handle of device 0; that of the next is one more.
const FIRST: usize = 0x4E00;

library_calls! {
    in enter_uninitialized;

    fn nvmlInit() |_machine| { Ok(()) }

    fn nvmlInit_v2() |_machine| { Ok(()) }

    fn nvmlInitWithFlags(_flags: u32) |_machine| { Ok(()) }

    fn nvmlShutdown() |_machine| { Ok(()) }

    fn nvmlDeviceGetCount_v2(count: Out<u32>) |machine| {
        count.set(u32::try_from(machine.memory.devices()).unwrap_or(u32::MAX))
    }

    fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: Out<usize>) |machine| {
        let index = machine.device(i32::try_from(index).unwrap_or(-1))?;
        device.set(FIRST + index)
    }

    fn nvmlDeviceGetHandleByPciBusId_v2(_address: usize, device: Out<usize>) |_machine| { device.set(FIRST) }

    fn nvmlDeviceGetName(_device: usize, text: Out<u8>, capacity: u32) |machine| {
        text.write_text(machine.gpu().name, capacity as usize);
        Ok(())
    }

    fn nvmlDeviceGetUUID(device: usize, text: Out<u8>, capacity: u32) |_machine| {
        let uuid = properties::uuid_of(device.saturating_sub(FIRST));
        text.write_text(&format!("GPU-{}", String::from_utf8_lossy(&uuid)), capacity as usize);
        Ok(())
    }

    fn nvmlDeviceGetMemoryInfo(device: usize, memory: Out<u64>) |machine| {
        let device = device.saturating_sub(FIRST).min(machine.memory.devices() - 1);
        let (total, free) = (machine.gpu().memory, machine.memory.free_bytes(device));
        let sizes = [total, free, total - free];
        sizes.into_iter().enumerate().try_for_each(|(index, bytes)| memory.set_at(index, bytes))
    }

    fn nvmlDeviceGetComputeRunningProcesses(_device: usize, count: Out<u32>, _processes: usize) |_machine| {
        count.set(0)
    }

    fn nvmlDeviceGetGpuFabricInfoV(_device: usize, _information: usize) |_machine| { Err(NOT_SUPPORTED) }

    fn nvmlDeviceGetNvLinkRemoteDeviceType(_device: usize, _link: u32, _kind: usize) |_machine| {
        Err(NOT_SUPPORTED)
    }

    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(_device: usize, _link: u32, _pci: usize) |_machine| {
        Err(NOT_SUPPORTED)
    }

    fn nvmlSystemGetCudaDriverVersion_v2(version: Out<i32>) |_machine| { version.set(DRIVER_VERSION) }

    fn nvmlSystemGetDriverVersion(text: Out<u8>, capacity: u32) |_machine| {
        text.write_text("580.0 (orlop dry-run)", capacity as usize);
        Ok(())
    }
}

/// Returns the text of an error.
#[allow(non_snake_case)] // The names are CUDA's.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn nvmlErrorString(_code: i32) -> *const c_char {
    c"not supported by a dry run".as_ptr()
}
