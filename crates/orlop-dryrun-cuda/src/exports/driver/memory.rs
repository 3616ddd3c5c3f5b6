//! Memory, copies and pointers.

use super::{Located, locate};
use crate::abi::Out;
use crate::call::library_calls;
use crate::code::Failure;
use crate::exports::runtime::copy::{copy, fill};

library_calls! {
    fn cuMemGetInfo_v2(free: Out<u64>, total: Out<u64>) |machine| {
        let (free_bytes, all_bytes) = machine.memory_info();
        free.set_optional(free_bytes);
        total.set_optional(all_bytes);
        Ok(())
    }

    fn cuMemAlloc_v2(address: Out<usize>, bytes: usize) |machine| {
        if bytes == 0 || address.is_null() {
            return Err(Failure::INVALID_VALUE);
        }
        let device = machine.current_device();
        address.set(machine.memory.allocate(device, bytes)?)
    }

    fn cuMemFree_v2(address: usize) |machine| { machine.free_after_work(address) }

    fn cuMemcpyHtoD_v2(to: usize, from: usize, bytes: usize) |machine| {
        copy(machine, to, from, bytes);
        Ok(())
    }

    fn cuMemcpyDtoH_v2(to: usize, from: usize, bytes: usize) |machine| {
        copy(machine, to, from, bytes);
        Ok(())
    }

    fn cuMemsetD8_v2(to: usize, value: u8, bytes: usize) |machine| {
        fill(machine, to, value, bytes);
        Ok(())
    }

    fn cuMemsetD32Async(to: usize, _value: u32, count: usize, stream: usize) |machine| {
        machine.work.submit(stream)?;
        machine.forget(to, count.saturating_mul(4));
        Ok(())
    }

    fn cuMemGetAddressRange_v2(start: Out<usize>, bytes: Out<usize>, address: usize) |machine| {
        let (_, first, length) = machine.memory.locate(address).ok_or(Failure::NOT_FOUND)?;
        start.set_optional(first);
        bytes.set_optional(length);
        Ok(())
    }

    fn cuPointerGetAttribute(value: Out<u64>, attribute: i32, address: usize) |machine| {
        let found = locate(machine, address);
        // The kind of memory (host or device), the address on the device, the device, whether it is managed.
        // The caller's value has the size of the attribute: numbers have four bytes.
        let number = match (attribute, found) {
            (_, Located::Unknown) => return Err(Failure::INVALID_VALUE),
            (3, _) => return value.set(address as u64),
            (2, Located::Device(_)) => 2,
            (2, _) => 1,
            (9, Located::Device(device)) => u32::try_from(device).unwrap_or(0),
            (8, Located::Managed) => return value.cast::<u8>().set(1),
            (8, _) => return value.cast::<u8>().set(0),
            _ => 0,
        };
        value.cast::<u32>().set(number)
    }
}
