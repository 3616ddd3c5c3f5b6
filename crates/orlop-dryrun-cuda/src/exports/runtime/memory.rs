//! Memory of devices.

use crate::abi::Out;
use crate::call::runtime_calls;
use crate::code::Failure;
use crate::exports::driver::{Located, locate};

runtime_calls! {
    fn cudaMalloc(address: Out<usize>, bytes: usize) |machine| {
        if address.is_null() {
            return Err(Failure::INVALID_VALUE);
        }
        let device = machine.current_device();
        address.set(if bytes == 0 { 0 } else { machine.memory.allocate(device, bytes)? })
    }

    fn cudaFree(address: usize) |machine| { machine.free_after_work(address) }

    fn cudaMallocAsync(address: Out<usize>, bytes: usize, stream: usize) |machine| {
        let device = machine.work.device_of(stream)?;
        machine.work.submit(stream)?;
        address.set(if bytes == 0 { 0 } else { machine.memory.allocate(device, bytes)? })
    }

    fn cudaFreeAsync(address: usize, stream: usize) |machine| {
        machine.work.submit(stream)?;
        machine.free(address)
    }

    fn cudaMemGetInfo(free: Out<u64>, total: Out<u64>) |machine| {
        let (free_bytes, all_bytes) = machine.memory_info();
        free.set_optional(free_bytes);
        total.set_optional(all_bytes);
        Ok(())
    }

    fn cudaPointerGetAttributes(attributes: Out<u64>, address: usize) |machine| {
        // The type and the device, the address on the device, the address on the host.
        let (kind, device, on_device, on_host) = match locate(machine, address) {
            Located::Device(device) => (2, device, address, 0),
            Located::Pinned => (1, 0, address, address),
            Located::Managed => (3, 0, address, address),
            Located::Unknown => (0, 0, 0, address),
        };
        attributes.set(kind | (device as u64) << 32)?;
        attributes.set_at(1, on_device as u64)?;
        attributes.set_at(2, on_host as u64)
    }

    fn cudaMemPoolSetAttribute(_pool: usize, _attribute: i32, _value: usize) |_machine| { Ok(()) }

    fn cudaMemPoolGetAttribute(_pool: usize, _attribute: i32, value: Out<u64>) |_machine| { value.set(0) }

    fn cudaMemPoolSetAccess(_pool: usize, _access: usize, _count: usize) |_machine| { Ok(()) }

    fn cudaMemPoolTrimTo(_pool: usize, _bytes: usize) |_machine| { Ok(()) }
}
