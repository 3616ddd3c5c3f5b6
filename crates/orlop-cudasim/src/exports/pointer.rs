//! What a pointer is.

use crate::abi::{In, Out};
use crate::call::calls;
use crate::codes::{Failure, Outcome};
use crate::guard::DriverGuard;
use crate::memory::SimMemory;
use crate::state::device::primary;

/// Writes an attribute of an address. Each has its own type, by the driver's interface.
fn write(driver: &DriverGuard, data: Out<u64>, attribute: i32, address: usize) -> Outcome {
    let found = driver.locate(address).ok_or(Failure::INVALID_VALUE)?;
    let is_host = found.is_host();
    let boolean = |value: bool| u8::from(value);
    match attribute {
        1 => data.set(primary(found.device)),
        // `CU_MEMORYTYPE_HOST` and `_DEVICE`.
        2 => data.cast::<u32>().set(if is_host { 1 } else { 2 }),
        3 => data.set(address as u64),
        4 if is_host || found.kind == SimMemory::Managed => data.set(address as u64),
        4 => Err(Failure::INVALID_VALUE),
        6 => data.cast::<u8>().set(0),
        7 => data.set(found.id),
        8 => data.cast::<u8>().set(boolean(found.kind == SimMemory::Managed)),
        9 => data.cast::<i32>().set(i32::try_from(found.device).unwrap_or(i32::MAX)),
        10 => data.cast::<u8>().set(0),
        11 => data.set(found.start as u64),
        12 => data.set(found.bytes as u64),
        13 => data.cast::<u8>().set(1),
        14 => data.set(0),
        15 => data.cast::<u8>().set(0),
        // `CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE`.
        16 => data.cast::<u32>().set(3),
        17 => data.set(found.pool),
        _ => Err(Failure::INVALID_VALUE),
    }
}

calls! {
    fn cuPointerGetAttribute(data: Out<u64>, attribute: i32, address: usize) Context |driver| {
        write(driver, data, attribute, address)
    }

    // Attributes of an unknown address are not an error here: each value is zero then.
    fn cuPointerGetAttributes(
        count: u32,
        attributes: In<i32>,
        data: In<usize>,
        address: usize,
    ) Context |driver| {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let (attributes, data) = (attributes.list(count)?, data.list(count)?);
        for (attribute, data) in attributes.into_iter().zip(data) {
            let out = || Out::<u64>::from_address(data);
            match write(driver, out(), attribute, address) {
                Ok(()) => {}
                Err(failure) if driver.locate(address).is_some() && attribute != 4 => return Err(failure),
                Err(_) if matches!(attribute, 6 | 8 | 10 | 13 | 15) => out().cast::<u8>().set(0)?,
                Err(_) if matches!(attribute, 2 | 9 | 16) => out().cast::<u32>().set(0)?,
                Err(_) => out().set(0)?,
            }
        }
        Ok(())
    }
}
