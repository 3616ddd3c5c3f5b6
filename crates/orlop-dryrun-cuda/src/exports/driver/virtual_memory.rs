//! Virtual memory management: what expandable segments are made of.

use crate::abi::{In, Out};
use crate::call::library_calls;
use crate::code::{Failure, Outcome};
use crate::machine::Machine;

const GRANULARITY: usize = 2 << 20;

/// Handles for other processes that a dry run can give: none, or file descriptors, which are not exported.
const HANDLE_TYPES: [i32; 2] = [0, 1];

/// `CUmemAllocationProp`, up to the location.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(in crate::exports::driver) struct Properties {
    kind: i32,
    handle_types: i32,
    location_kind: i32,
    location: i32,
}

fn device_of(machine: &Machine, properties: &In<Properties>) -> Outcome<usize> {
    let properties = properties.get()?;
    if properties.kind != 1 || properties.location_kind != 1 {
        return Err(Failure::INVALID_VALUE);
    }
    if !HANDLE_TYPES.contains(&properties.handle_types) {
        return Err(Failure::NOT_SUPPORTED);
    }
    machine.device(properties.location)
}

library_calls! {
    fn cuMemGetAllocationGranularity(bytes: Out<usize>, properties: In<Properties>, _option: i32) |machine| {
        device_of(machine, &properties)?;
        bytes.set(GRANULARITY)
    }

    fn cuMemAddressReserve(
        address: Out<usize>,
        bytes: usize,
        _alignment: usize,
        _wanted: usize,
        _flags: u64,
    ) |machine| {
        if address.is_null() || bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return Err(Failure::INVALID_VALUE);
        }
        address.set(machine.memory.reserve(bytes)?)
    }

    fn cuMemAddressFree(address: usize, bytes: usize) |machine| { machine.memory.unreserve(address, bytes) }

    fn cuMemCreate(handle: Out<usize>, bytes: usize, properties: In<Properties>, _flags: u64) |machine| {
        let device = device_of(machine, &properties)?;
        if handle.is_null() || bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
            return Err(Failure::INVALID_VALUE);
        }
        let created = machine.handle();
        machine.memory.create(created, device, bytes)?;
        handle.set(created)
    }

    fn cuMemRelease(handle: usize) |machine| { machine.memory.release(handle) }

    fn cuMemMap(address: usize, bytes: usize, _offset: usize, handle: usize, _flags: u64) |machine| {
        machine.memory.map(address, bytes, handle)
    }

    fn cuMemUnmap(address: usize, bytes: usize) |machine| {
        machine.memory.unmap(address, bytes)?;
        machine.forget(address, bytes);
        Ok(())
    }

    fn cuMemSetAccess(_address: usize, _bytes: usize, _access: usize, _count: usize) |_machine| { Ok(()) }

    fn cuMemRetainAllocationHandle(handle: Out<usize>, address: usize) |machine| {
        handle.set(machine.memory.retain(address)?)
    }
}
