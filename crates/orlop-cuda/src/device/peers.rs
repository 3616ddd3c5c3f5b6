//! Access of one device's kernels to the memory of another.

use super::{CudaDevice, DeviceState};
use crate::driver::{abi, call};
use crate::error::CudaError;
use crate::memory::DevicePages;
#[cfg(target_os = "linux")]
use crate::memory::MappedPages;
use orlop_core::Device;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The devices whose kernels can access the memory of a device, and the pages they got access to.
#[derive(Debug, Default)]
pub(crate) struct PeerAccess {
    /// The devices that can access all of the memory. Locked while one is added, before the other lists.
    enabled: Mutex<Vec<Accessor>>,
    /// Those, and the one that is being added: pages that are mapped meanwhile are given to it too.
    mapped_for: Mutex<Vec<Accessor>>,
    pages: Mutex<Vec<Weak<DevicePages>>>,
}

/// One use of a device: a later use with the same ordinal has another context, and another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Accessor {
    ordinal: u16,
    key: u16,
}

fn lock<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CudaDevice {
    /// Lets kernels of this device access the memory of another one: regions and pages of its allocators,
    /// those from before too, and [`DriverAllocator::direct`](crate::DriverAllocator::direct)'s. For a pool
    /// of the driver there is [`MemoryPool::allow`](crate::MemoryPool::allow). It lasts until one of the two
    /// devices is closed; the other direction is a call of its own.
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
        peer.add_accessor(Accessor { ordinal: own.ordinal, key: own.key })
    }
}

impl DeviceState {
    /// Lets a device access the pages of this one: those that are mapped from here on, and then those from
    /// before. After a failure it is no accessor, but may have access to some pages.
    fn add_accessor(&self, accessor: Accessor) -> Result<(), CudaError> {
        let access = &self.access;
        let mut enabled = lock(&access.enabled);
        if enabled.contains(&accessor) {
            return Ok(());
        }
        let mut mapped_for = lock(&access.mapped_for);
        // Its earlier uses have ended.
        mapped_for.retain(|other| other.ordinal != accessor.ordinal);
        mapped_for.push(accessor);
        drop(mapped_for);
        let pages: Vec<Arc<DevicePages>> = lock(&access.pages).iter().filter_map(Weak::upgrade).collect();
        let given = pages.iter().try_for_each(|pages| pages.give_access_again(self));
        match given {
            Ok(()) => {
                enabled.retain(|other| other.ordinal != accessor.ordinal);
                enabled.push(accessor);
            }
            Err(_) => lock(&access.mapped_for).retain(|other| *other != accessor),
        }
        given
    }

    /// Notes pages whose access follows [`CudaDevice::enable_peer_access`].
    pub(crate) fn follow_access(&self, pages: &Arc<DevicePages>) {
        let mut all = lock(&self.access.pages);
        all.retain(|pages| pages.strong_count() > 0);
        all.push(Arc::downgrade(pages));
    }

    /// Returns the pages that a range is in. `None` if it is not in pages.
    #[cfg(target_os = "linux")]
    pub(crate) fn pages_of(&self, address: usize, bytes: usize) -> Option<MappedPages> {
        let all: Vec<Arc<DevicePages>> = lock(&self.access.pages).iter().filter_map(Weak::upgrade).collect();
        all.iter().find_map(|pages| pages.pages_of(address, bytes))
    }

    /// Returns the driver's numbers of the devices that can access the memory of this one, itself first.
    pub(crate) fn accessors(&self) -> Vec<i32> {
        let others = lock(&self.access.mapped_for);
        [self.number()].into_iter().chain(others.iter().map(|other| i32::from(other.ordinal))).collect()
    }

    /// Returns `true` if kernels of this device can access memory of another one, or of itself.
    pub(crate) fn can_access(&self, memory: Device) -> bool {
        let accessor = Accessor { ordinal: self.ordinal, key: self.key };
        let is_enabled = |peer: Arc<Self>| lock(&peer.access.enabled).contains(&accessor);
        self.device() == memory
            || (memory.device_type() == self.device().device_type()
                && super::in_use(memory.index()).is_some_and(is_enabled))
    }
}
