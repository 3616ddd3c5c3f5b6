//! Pinned host memory, and host memory of the program that is registered.

use crate::abi::Out;
use crate::call::calls;
use crate::codes::{Failure, Outcome};
use crate::guard::DriverGuard;
use crate::memory::SimMemory;

fn allocate(driver: &mut DriverGuard, bytes: usize, flags: u32) -> Outcome<usize> {
    let device = driver.current_device()?;
    if bytes == 0 || flags & !0b111 != 0 {
        return Err(Failure::INVALID_VALUE);
    }
    let limit = driver.config.pinned_limit;
    let pinned = driver.memory.pinned.checked_add(bytes as u64).filter(|&pinned| pinned <= limit);
    let pinned = pinned.ok_or(Failure::OUT_OF_MEMORY)?;
    let poison = driver.config.has_poison;
    let address = driver.memory.allocate(bytes, SimMemory::Pinned, device, 0, flags, poison)?;
    driver.memory.pinned = pinned;
    Ok(address)
}

calls! {
    fn cuMemAllocHost_v2(address: Out<usize>, bytes: usize) Unsafe |driver| {
        address.set(allocate(driver, bytes, 0)?)
    }

    fn cuMemHostAlloc(address: Out<usize>, bytes: usize, flags: u32) Unsafe |driver| {
        address.set(allocate(driver, bytes, flags)?)
    }

    fn cuMemFreeHost(address: usize) Unsafe |driver| {
        if address == 0 {
            return Ok(());
        }
        let found = driver.memory.allocations.get(&address).copied().ok_or(Failure::INVALID_VALUE)?;
        if found.kind != SimMemory::Pinned {
            return Err(Failure::INVALID_VALUE);
        }
        driver.before_free("cuMemFreeHost", found)?;
        driver.release_memory(address)
    }

    fn cuMemHostGetDevicePointer_v2(device: Out<usize>, host: usize, flags: u32) Context |driver| {
        let found = driver.locate(host).filter(|found| found.is_host()).ok_or(Failure::INVALID_VALUE)?;
        if flags != 0 || found.bytes == 0 {
            return Err(Failure::INVALID_VALUE);
        }
        device.set(host)
    }

    fn cuMemHostGetFlags(flags: Out<u32>, host: usize) Context |driver| {
        let found = driver.locate(host).filter(|found| found.is_host()).ok_or(Failure::INVALID_VALUE)?;
        flags.set(found.flags)
    }

    fn cuMemHostRegister_v2(address: usize, bytes: usize, flags: u32) Unsafe |driver| {
        let device = driver.current_device()?;
        if address == 0 || bytes == 0 || flags & !0b1111 != 0 {
            return Err(Failure::INVALID_VALUE);
        }
        driver.memory.register(address, bytes, device, flags)
    }

    fn cuMemHostUnregister(address: usize) Unsafe |driver| {
        let found = driver.memory.allocations.get(&address).copied();
        let found = found.filter(|found| found.kind == SimMemory::Registered);
        let found = found.ok_or(Failure::HOST_MEMORY_NOT_REGISTERED)?;
        driver.before_free("cuMemHostUnregister", found)?;
        driver.release_memory(address)
    }
}
