//! Access between devices.

use crate::abi::Out;
use crate::call::calls;
use crate::codes::Failure;

calls! {
    fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) Init |driver| {
        let (device, peer) = (driver.device(device)?, driver.device(peer)?);
        can.set(i32::from(driver.config.has_peer_access && device != peer))
    }

    fn cuDeviceGetP2PAttribute(value: Out<i32>, attribute: i32, device: i32, peer: i32) Init |driver| {
        let (device, peer) = (driver.device(device)?, driver.device(peer)?);
        if device == peer || !(1..=5).contains(&attribute) {
            return Err(Failure::INVALID_VALUE);
        }
        value.set(i32::from(driver.config.has_peer_access && attribute == 2))
    }

    fn cuCtxEnablePeerAccess(peer: u64, flags: u32) Context |driver| {
        let (device, peer) = (driver.current_device()?, driver.device_of_context(peer)?);
        if flags != 0 {
            return Err(Failure::INVALID_VALUE);
        }
        if device == peer {
            return Err(Failure::INVALID_DEVICE);
        }
        if !driver.config.has_peer_access {
            return Err(Failure::PEER_ACCESS_UNSUPPORTED);
        }
        let is_new = driver.devices[device].peers.insert(peer);
        if is_new { Ok(()) } else { Err(Failure::PEER_ACCESS_ALREADY_ENABLED) }
    }

    fn cuCtxDisablePeerAccess(peer: u64) Context |driver| {
        let (device, peer) = (driver.current_device()?, driver.device_of_context(peer)?);
        let was_enabled = driver.devices[device].peers.remove(&peer);
        if was_enabled { Ok(()) } else { Err(Failure::PEER_ACCESS_NOT_ENABLED) }
    }
}
