//! Memory and events of other processes.

use crate::abi::{IpcHandle, Out};
use crate::call::calls;
use crate::codes::Failure;
use crate::memory::{ExportedMemory, HandleMark, SimMemory};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
const LAZY_PEER_ACCESS: u32 = 1;

calls! {
    fn cuIpcGetMemHandle(handle: Out<IpcHandle>, address: usize) Context |driver| {
        let found = driver.memory.allocations.get(&address).copied().ok_or(Failure::INVALID_VALUE)?;
        // Neither managed memory nor that of pools.
        if found.kind != SimMemory::Device || found.pool != 0 {
            return Err(Failure::INVALID_VALUE);
        }
        handle.set(driver.memory.export(&found)?.pack(HandleMark::Allocation))
    }

    fn cuIpcOpenMemHandle_v2(address: Out<usize>, handle: IpcHandle, flags: u32) Unsafe |driver| {
        if address.is_null() || flags != LAZY_PEER_ACCESS {
            return Err(Failure::INVALID_VALUE);
        }
        let memory = ExportedMemory::unpack(&handle, HandleMark::Allocation)?;
        // A process cannot open its own memory.
        if memory.process == std::process::id() {
            return Err(Failure::INVALID_CONTEXT);
        }
        if memory.device != driver.current_device()? {
            return Err(Failure::INVALID_DEVICE);
        }
        address.set(driver.memory.import(memory)?)
    }

    fn cuIpcCloseMemHandle(address: usize) Unsafe |driver| {
        if driver.memory.is_last_user(address)? {
            let found = driver.locate(address).ok_or(Failure::INVALID_VALUE)?;
            driver.before_free("cuIpcCloseMemHandle", found)?;
            for place in driver.places(address, found.bytes) {
                driver.races.past.forget(place);
            }
        }
        driver.memory.close_import(address)
    }

    fn cuIpcGetEventHandle(handle: Out<IpcHandle>, event: u64) Context |driver| {
        let exported = driver.export_event(event)?;
        handle.set(exported.pack(HandleMark::Event))
    }

    fn cuIpcOpenEventHandle(event: Out<u64>, handle: IpcHandle) Context |driver| {
        if event.is_null() {
            return Err(Failure::INVALID_VALUE);
        }
        let exported = ExportedMemory::unpack(&handle, HandleMark::Event)?;
        event.set(driver.import_event(exported)?)
    }
}
