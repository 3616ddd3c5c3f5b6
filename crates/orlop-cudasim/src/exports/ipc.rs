//! Memory of other processes. Events of other processes are not simulated.

use crate::abi::{IpcHandle, Out};
use crate::call::calls;
use crate::codes::{Failure, Outcome};
use crate::memory::{ExportedMemory, SimMemory};

/// The first number of a handle: that it is one of this driver.
const MARK: u64 = 0x6f72_6c6f_7069_7063;

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
const LAZY_PEER_ACCESS: u32 = 1;

fn packed(memory: &ExportedMemory) -> IpcHandle {
    let descriptor = memory.descriptor.unsigned_abs();
    let (offset, bytes, device) = (memory.offset as u64, memory.bytes as u64, memory.device as u64);
    IpcHandle::of([MARK, memory.process.into(), descriptor.into(), offset, bytes, device, 0, 0])
}

fn unpacked(handle: &IpcHandle) -> Outcome<ExportedMemory> {
    fn number<T: TryFrom<u64>>(number: u64) -> Outcome<T> {
        T::try_from(number).map_err(|_| Failure::INVALID_VALUE)
    }
    let [MARK, process, descriptor, offset, bytes, device, 0, 0] = handle.numbers() else {
        return Err(Failure::INVALID_VALUE);
    };
    Ok(ExportedMemory {
        process: number(process)?,
        descriptor: number(descriptor)?,
        offset: number(offset)?,
        bytes: number(bytes)?,
        device: number(device)?,
    })
}

calls! {
    fn cuIpcGetMemHandle(handle: Out<IpcHandle>, address: usize) Context |driver| {
        let found = driver.memory.allocations.get(&address).copied().ok_or(Failure::INVALID_VALUE)?;
        // Neither managed memory nor that of pools.
        if found.kind != SimMemory::Device || found.pool != 0 {
            return Err(Failure::INVALID_VALUE);
        }
        handle.set(packed(&driver.memory.export(&found)?))
    }

    fn cuIpcOpenMemHandle_v2(address: Out<usize>, handle: IpcHandle, flags: u32) Unsafe |driver| {
        if address.is_null() || flags != LAZY_PEER_ACCESS {
            return Err(Failure::INVALID_VALUE);
        }
        let memory = unpacked(&handle)?;
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

    fn cuIpcOpenEventHandle(_event: Out<u64>, _handle: IpcHandle) Context |_driver| {
        Err(Failure::NOT_SUPPORTED)
    }

    fn cuIpcGetEventHandle(_handle: Out<IpcHandle>, _event: u64) Context |_driver| {
        Err(Failure::NOT_SUPPORTED)
    }
}
