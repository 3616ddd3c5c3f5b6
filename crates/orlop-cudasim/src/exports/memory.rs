//! Device and managed memory.

use crate::abi::Out;
use crate::call::calls;
use crate::codes::Failure;
use crate::memory::SimMemory;

calls! {
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) Context |driver| {
        let device = driver.current_device()?;
        let found = &driver.devices[device];
        free.set_optional(usize::try_from(found.total - found.used).unwrap_or(usize::MAX));
        total.set_optional(usize::try_from(found.total).unwrap_or(usize::MAX));
        Ok(())
    }

    fn cuMemAlloc_v2(address: Out<usize>, bytes: usize) Unsafe |driver| {
        let device = driver.current_device()?;
        if address.is_null() {
            return Err(Failure::INVALID_VALUE);
        }
        address.set(driver.allocate_on_device(bytes, SimMemory::Device, device)?)
    }

    fn cuMemAllocPitch_v2(
        address: Out<usize>,
        pitch: Out<usize>,
        width: usize,
        height: usize,
        _element: u32,
    ) Unsafe |driver| {
        let device = driver.current_device()?;
        let row = width.checked_next_multiple_of(512).ok_or(Failure::OUT_OF_MEMORY)?;
        let bytes = row.checked_mul(height).ok_or(Failure::OUT_OF_MEMORY)?;
        address.set(driver.allocate_on_device(bytes, SimMemory::Device, device)?)?;
        pitch.set(row)
    }

    fn cuMemAllocManaged(address: Out<usize>, bytes: usize, flags: u32) Unsafe |driver| {
        let device = driver.current_device()?;
        // `CU_MEM_ATTACH_GLOBAL` or `CU_MEM_ATTACH_HOST`.
        if flags != 1 && flags != 2 {
            return Err(Failure::INVALID_VALUE);
        }
        address.set(driver.allocate_on_device(bytes, SimMemory::Managed, device)?)
    }

    fn cuMemFree_v2(address: usize) Unsafe |driver| {
        if address == 0 {
            return Ok(());
        }
        let found = driver.memory.allocations.get(&address).copied().ok_or(Failure::INVALID_VALUE)?;
        if !matches!(found.kind, SimMemory::Device | SimMemory::Managed) {
            return Err(Failure::INVALID_VALUE);
        }
        driver.before_free("cuMemFree", found)?;
        driver.release_memory(address)
    }

    fn cuMemGetAddressRange_v2(start: Out<usize>, bytes: Out<usize>, address: usize) Context |driver| {
        let found = driver.locate(address).ok_or(Failure::NOT_FOUND)?;
        start.set_optional(found.start);
        bytes.set_optional(found.bytes);
        Ok(())
    }
}
