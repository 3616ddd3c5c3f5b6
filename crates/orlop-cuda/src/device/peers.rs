//! Access of one device's kernels to the memory of another.

use super::{CudaDevice, DeviceState};
use crate::driver::{abi, call};
use crate::error::CudaError;
use crate::memory::DevicePages;
use orlop_core::Device;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The devices whose kernels can access the memory of a device, and the pages they got access to.
#[derive(Debug, Default)]
pub(crate) struct PeerAccess {
    ordinals: Mutex<Vec<u16>>,
    pages: Mutex<Vec<Weak<DevicePages>>>,
}

fn lock<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CudaDevice {
    /// Lets kernels of this device access the memory of another one: regions and pages of its allocators,
    /// those from before too, and [`DriverAllocator::direct`](crate::DriverAllocator::direct)'s. For a pool
    /// of the driver there is [`MemoryPool::allow`](crate::MemoryPool::allow). It lasts until the device of
    /// the memory is closed; the other direction is a call of its own.
    ///
    /// From then on [`KernelPointer::of`](crate::KernelPointer::of), and what else orders work on a block,
    /// takes streams of this device for blocks of the other one. Copies need no access.
    ///
    /// # Errors
    ///
    /// [`CudaError::NoPeerAccess`] if the devices have no path; failures of the driver.
    pub fn enable_peer_access(&self, peer: &Self) -> Result<(), CudaError> {
        let (own, peer) = (self.state(), peer.state());
        let mut can = 0;
        let scope = own.enter()?;
        // SAFETY: it writes one number.
        unsafe { call!(scope.driver(), cuDeviceCanAccessPeer(&raw mut can, own.number(), peer.number())) }?;
        if can == 0 {
            return Err(CudaError::NoPeerAccess { device: own.device(), peer: peer.device() });
        }
        // SAFETY: the peer's context exists as long as its device.
        match unsafe { call!(scope.driver(), cuCtxEnablePeerAccess(peer.context_handle(), 0)) } {
            Err(failure) if failure.code == abi::PEER_ACCESS_ALREADY_ENABLED => {}
            enabled => enabled?,
        }
        drop(scope);
        let access = &peer.access;
        // Pages that are mapped from here on are given to it, and then those from before.
        let mut ordinals = lock(&access.ordinals);
        if !ordinals.contains(&own.ordinal) {
            ordinals.push(own.ordinal);
        }
        drop(ordinals);
        let pages: Vec<Arc<DevicePages>> = lock(&access.pages).iter().filter_map(Weak::upgrade).collect();
        pages.iter().try_for_each(|pages| pages.give_access_again(peer))
    }
}

impl DeviceState {
    /// Notes pages whose access follows [`CudaDevice::enable_peer_access`].
    pub(crate) fn follow_access(&self, pages: &Arc<DevicePages>) {
        let mut all = lock(&self.access.pages);
        all.retain(|pages| pages.strong_count() > 0);
        all.push(Arc::downgrade(pages));
    }

    /// Returns the driver's numbers of the devices that can access the memory of this one, itself first.
    pub(crate) fn accessors(&self) -> Vec<i32> {
        let others = lock(&self.access.ordinals);
        [self.number()].into_iter().chain(others.iter().map(|&ordinal| i32::from(ordinal))).collect()
    }

    /// Returns `true` if kernels of this device can access memory of another one, or of itself.
    pub(crate) fn can_access(&self, memory: Device) -> bool {
        let is_enabled = |peer: Arc<Self>| lock(&peer.access.ordinals).contains(&self.ordinal);
        self.device() == memory
            || (memory.device_type() == self.device().device_type()
                && super::in_use(memory.index()).is_some_and(is_enabled))
    }
}
