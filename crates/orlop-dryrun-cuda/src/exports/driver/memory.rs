//! Memory, copies and pointers.

use super::{Located, context_of, locate};
use crate::abi::Out;
use crate::call::library_calls;
use crate::code::{Failure, Outcome};
use crate::exports::runtime::copy::{copy, fill};
use crate::machine::Machine;

/// An attribute of an address, in the size that the caller's value has.
enum PointerAttribute {
    /// Eight bytes: addresses, sizes, handles, identifiers.
    Wide(u64),
    /// Four bytes.
    Number(u32),
    /// One byte.
    Flag(bool),
}

fn pointer_attribute(machine: &Machine, attribute: i32, address: usize) -> Outcome<PointerAttribute> {
    use PointerAttribute::{Flag, Number, Wide};
    let found = locate(machine, address);
    let device = match found {
        Located::Unknown => return Err(Failure::INVALID_VALUE),
        Located::Device(device) => device,
        Located::Pinned | Located::Managed => 0,
    };
    let is_device = matches!(found, Located::Device(_));
    let range = if is_device {
        machine.memory.locate(address).map(|(_, start, bytes)| (start, bytes))
    } else {
        machine.host.find(address).map(|(start, bytes, _)| (start, bytes))
    };
    let (start, bytes) = range.ok_or(Failure::INVALID_VALUE)?;
    Ok(match attribute {
        1 => Wide(context_of(device) as u64),
        2 => Number(if is_device { 2 } else { 1 }),
        3 => Wide(address as u64),
        // A device has no address on the host.
        4 if is_device => return Err(Failure::INVALID_VALUE),
        4 => Wide(address as u64),
        // The identifier of a buffer: no other buffer in use begins where it does.
        7 | 11 | 19 | 20 => Wide(start as u64),
        12 | 18 => Wide(bytes as u64),
        // Handles for other processes, pools: none.
        14 | 17 => Wide(0),
        8 => Flag(found == Located::Managed),
        13 => Flag(true),
        6 | 10 | 15 => Flag(false),
        9 => Number(u32::try_from(device).unwrap_or(0)),
        // It can be read and written.
        16 => Number(3),
        _ => return Err(Failure::INVALID_VALUE),
    })
}

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
        match pointer_attribute(machine, attribute, address)? {
            PointerAttribute::Wide(wide) => value.set(wide),
            PointerAttribute::Number(number) => value.cast().set(number),
            PointerAttribute::Flag(flag) => value.cast().set(u8::from(flag)),
        }
    }
}
