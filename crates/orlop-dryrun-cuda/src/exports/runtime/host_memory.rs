//! Pinned and managed memory: real memory of the host.

use crate::abi::Out;
use crate::call::runtime_calls;
use crate::code::Failure;
use crate::state::host_memory::HostKind;

runtime_calls! {
    fn cudaHostAlloc(address: Out<usize>, bytes: usize, _flags: u32) |machine| {
        address.set(machine.host.allocate(bytes, HostKind::Pinned).ok_or(Failure::OUT_OF_MEMORY)?)
    }

    fn cudaMallocHost(address: Out<usize>, bytes: usize) |machine| {
        address.set(machine.host.allocate(bytes, HostKind::Pinned).ok_or(Failure::OUT_OF_MEMORY)?)
    }

    fn cudaMallocManaged(address: Out<usize>, bytes: usize, _flags: u32) |machine| {
        address.set(machine.host.allocate(bytes, HostKind::Managed).ok_or(Failure::OUT_OF_MEMORY)?)
    }

    fn cudaFreeHost(address: usize) |machine| {
        machine.work.wait_for_all();
        if address == 0 || machine.host.free(address) { Ok(()) } else { Err(Failure::INVALID_VALUE) }
    }

    fn cudaHostRegister(address: usize, bytes: usize, _flags: u32) |machine| {
        machine.host.register(address, bytes);
        Ok(())
    }

    fn cudaHostUnregister(address: usize) |machine| {
        if machine.host.unregister(address) { Ok(()) } else { Err(Failure::INVALID_VALUE) }
    }

    fn cudaHostGetDevicePointer(device: Out<usize>, host: usize, _flags: u32) |_machine| { device.set(host) }
}
