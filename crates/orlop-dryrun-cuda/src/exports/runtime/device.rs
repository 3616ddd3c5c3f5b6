//! Devices and versions.

use super::properties::{self, PropertiesForm};
use crate::abi::Out;
use crate::call::{runtime_calls, set_device};
use crate::code::Failure;
use crate::exports::driver::DRIVER_VERSION;

runtime_calls! {
    fn cudaGetDeviceCount(count: Out<i32>) |machine| {
        count.set(i32::try_from(machine.memory.devices()).unwrap_or(i32::MAX))
    }

    fn cudaGetDevice(device: Out<i32>) |machine| {
        device.set(i32::try_from(machine.current_device()).unwrap_or(i32::MAX))
    }

    fn cudaSetDevice(device: i32) |machine| {
        set_device(machine.device(device)?);
        Ok(())
    }

    fn cudaInitDevice(device: i32, _flags: u32, _other: u32) |machine| { machine.device(device).map(drop) }

    fn cudaGetDeviceProperties(properties: Out<u8>, device: i32) |machine| {
        let device = machine.device(device)?;
        properties::write(machine, device, &PropertiesForm::CUDA_13, &properties);
        Ok(())
    }

    fn cudaGetDeviceProperties_v2(properties: Out<u8>, device: i32) |machine| {
        let device = machine.device(device)?;
        properties::write(machine, device, &PropertiesForm::CUDA_12, &properties);
        Ok(())
    }

    fn cudaDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) |machine| {
        let device = machine.device(device)?;
        value.set(properties::attribute(machine.gpu(), device, attribute))
    }

    fn cudaDeviceGetPCIBusId(text: Out<u8>, capacity: i32, device: i32) |machine| {
        let device = machine.device(device)?;
        text.write_text(&properties::bus_address(device), usize::try_from(capacity).unwrap_or(0));
        Ok(())
    }

    fn cudaDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) |machine| {
        let (device, peer) = (machine.device(device)?, machine.device(peer)?);
        can.set(i32::from(device != peer))
    }

    fn cudaDeviceEnablePeerAccess(peer: i32, _flags: u32) |machine| { machine.device(peer).map(drop) }

    fn cudaDeviceGetStreamPriorityRange(lowest: Out<i32>, highest: Out<i32>) |_machine| {
        lowest.set_optional(0);
        highest.set_optional(-5);
        Ok(())
    }

    fn cudaDeviceSynchronize() |machine| {
        machine.work.wait_for_all();
        Ok(())
    }

    fn cudaDeviceGetDefaultMemPool(pool: Out<usize>, device: i32) |machine| {
        pool.set(0x100 + machine.device(device)?)
    }

    fn cudaDriverGetVersion(version: Out<i32>) |_machine| { version.set(DRIVER_VERSION) }

    fn cudaRuntimeGetVersion(version: Out<i32>) |_machine| { version.set(DRIVER_VERSION) }

    fn cudaGetDeviceFlags(flags: Out<u32>) |_machine| { flags.set(0) }

    fn cudaSetDeviceFlags(_flags: u32) |_machine| { Ok(()) }

    fn cudaProfilerStart() |_machine| { Ok(()) }

    fn cudaProfilerStop() |_machine| { Ok(()) }

    fn cudaDeviceReset() |_machine| { Err(Failure::NOT_SUPPORTED) }
}
