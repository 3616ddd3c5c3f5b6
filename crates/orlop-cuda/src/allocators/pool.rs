//! [`MemoryPool`]: a pool of the driver, from which memory is allocated in the order of a stream.

use crate::device::CudaDevice;
use crate::driver::{abi, call};
use crate::error::CudaError;
use orlop_alloc::engine_support::trace_guarded;
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A pool of the driver. It keeps freed memory up to its release threshold; what is above goes back to the
/// device when the host waits for it. A new pool keeps everything.
///
/// Dropping it destroys the pool; memory that is still allocated from it goes back when it is freed.
pub struct MemoryPool {
    device: CudaDevice,
    handle: abi::Handle,
    pub(super) account: PoolAccount,
}

/// Selects the allocator that counts the pool's memory outside of all blocks, so that it counts once.
#[derive(Debug, Default)]
pub(super) struct PoolAccount {
    /// Bytes in blocks of all of them.
    pub(super) in_blocks: Arc<AtomicU64>,
    /// The number of the allocator, or 0.
    holder: AtomicUsize,
}

impl PoolAccount {
    /// Returns `true` if the allocator with this number counts the rest. The first that calls it does.
    pub(super) fn is_held_by(&self, number: usize) -> bool {
        // Relaxed: nothing else depends on it.
        let taken = self.holder.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed);
        taken == Ok(0) || taken == Err(number)
    }

    /// Leaves it to the next allocator.
    pub(super) fn leave(&self, number: usize) {
        // Relaxed: as above. Another one's stays.
        let _left = self.holder.compare_exchange(number, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

// SAFETY: the driver's functions for pools may be called from any thread.
unsafe impl Send for MemoryPool {}
// SAFETY: as above.
unsafe impl Sync for MemoryPool {}

/// The memory of a [`MemoryPool`], in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PoolUsage {
    /// Taken from the device.
    pub reserved: u64,
    /// The peak of that since the last reset.
    pub peak_reserved: u64,
    /// Allocated from the pool.
    pub used: u64,
    /// The peak of that since the last reset.
    pub peak_used: u64,
}

impl MemoryPool {
    /// Creates a pool of a device.
    ///
    /// # Errors
    ///
    /// [`CudaError::Unsupported`] if the device has no memory pools; failures of the driver.
    pub fn new(device: &CudaDevice) -> Result<Self, CudaError> {
        device.state().require(abi::ATTRIBUTE_MEMORY_POOLS, "memory pools")?;
        let properties = abi::PoolProperties::on_device(device.state().number());
        let mut handle = ptr::null_mut();
        let scope = device.state().enter()?;
        // SAFETY: it reads the properties, and writes one handle.
        unsafe { call!(scope.driver(), cuMemPoolCreate(&raw mut handle, &raw const properties)) }?;
        drop(scope);
        let pool = Self { device: device.clone(), handle, account: PoolAccount::default() };
        pool.set_release_threshold(u64::MAX)?;
        Ok(pool)
    }

    /// Returns the device.
    #[must_use]
    pub fn device(&self) -> &CudaDevice {
        &self.device
    }

    /// Returns the driver's handle, a `CUmemoryPool`. It is valid as long as the pool.
    #[must_use]
    pub fn handle(&self) -> *mut std::ffi::c_void {
        self.handle
    }

    /// Returns the bytes that the pool keeps when the host waits for the device.
    ///
    /// # Errors
    ///
    /// Failures of the driver.
    pub fn release_threshold(&self) -> Result<u64, CudaError> {
        self.attribute(abi::POOL_RELEASE_THRESHOLD)
    }

    /// Sets the bytes that the pool keeps when the host waits for the device.
    ///
    /// # Errors
    ///
    /// Failures of the driver.
    pub fn set_release_threshold(&self, bytes: u64) -> Result<(), CudaError> {
        self.set_attribute(abi::POOL_RELEASE_THRESHOLD, bytes)
    }

    /// Returns the memory of the pool, that of other code that allocates from it included.
    ///
    /// # Errors
    ///
    /// Failures of the driver.
    pub fn usage(&self) -> Result<PoolUsage, CudaError> {
        Ok(PoolUsage {
            reserved: self.attribute(abi::POOL_RESERVED)?,
            peak_reserved: self.attribute(abi::POOL_RESERVED_HIGH)?,
            used: self.attribute(abi::POOL_USED)?,
            peak_used: self.attribute(abi::POOL_USED_HIGH)?,
        })
    }

    /// Sets the peaks to the current values.
    ///
    /// # Errors
    ///
    /// Failures of the driver.
    pub fn reset_peaks(&self) -> Result<(), CudaError> {
        self.set_attribute(abi::POOL_RESERVED_HIGH, 0)?;
        self.set_attribute(abi::POOL_USED_HIGH, 0)
    }

    /// Gives memory that is not in use back to the device, until the pool has at most `reserved` bytes.
    ///
    /// # Errors
    ///
    /// Failures of the driver.
    pub fn trim(&self, reserved: u64) -> Result<(), CudaError> {
        let keep = usize::try_from(reserved).unwrap_or(usize::MAX);
        let scope = self.device.state().enter()?;
        // SAFETY: the pool exists.
        Ok(unsafe { call!(scope.driver(), cuMemPoolTrimTo(self.handle, keep)) }?)
    }

    /// Makes it the current pool of its device until the result is dropped: `cuMemAllocAsync`, by which
    /// cudarc allocates, takes memory from it. [`MemoryPool::usage`] counts that. The pool that was made
    /// current last and is not dropped is the current one.
    ///
    /// # Errors
    ///
    /// Failures of the driver.
    pub fn make_current(self: &Arc<Self>) -> Result<CurrentPool, CudaError> {
        let scope = self.device.state().enter()?;
        let mut pools = self.device.state().current_pools();
        // SAFETY: a pool of this device, which the result keeps.
        unsafe { call!(scope.driver(), cuDeviceSetMemPool(self.device.state().number(), self.handle)) }?;
        let number = pools.last().map_or(0, |last| last.number + 1);
        pools.push(MadeCurrent { number, handle: self.handle.expose_provenance() });
        // Unlocked before the scope ends, which can report something.
        drop(pools);
        Ok(CurrentPool { pool: Arc::clone(self), number })
    }

    /// Lets kernels of another device access the memory of the pool.
    ///
    /// # Errors
    ///
    /// Failures of the driver, if the devices have no path.
    pub fn allow(&self, peer: &CudaDevice) -> Result<(), CudaError> {
        let access = abi::AccessDescriptor::read_write(peer.state().number());
        let scope = self.device.state().enter()?;
        // SAFETY: the pool exists; it reads one descriptor.
        Ok(unsafe { call!(scope.driver(), cuMemPoolSetAccess(self.handle, &raw const access, 1)) }?)
    }

    fn attribute(&self, name: i32) -> Result<u64, CudaError> {
        let mut value = 0_u64;
        let scope = self.device.state().enter()?;
        let place = (&raw mut value).cast();
        // SAFETY: these attributes are numbers of eight bytes, which it writes.
        unsafe { call!(scope.driver(), cuMemPoolGetAttribute(self.handle, name, place)) }?;
        Ok(value)
    }

    fn set_attribute(&self, name: i32, mut value: u64) -> Result<(), CudaError> {
        let scope = self.device.state().enter()?;
        let place = (&raw mut value).cast();
        // SAFETY: these attributes are numbers of eight bytes, which it reads.
        Ok(unsafe { call!(scope.driver(), cuMemPoolSetAttribute(self.handle, name, place)) }?)
    }
}

impl Drop for MemoryPool {
    fn drop(&mut self) {
        let Ok(scope) = self.device.state().enter() else { return };
        // SAFETY: it is destroyed once, and nothing allocates from it any more; the driver keeps memory that
        // is in use until it is freed.
        let destroyed = unsafe { call!(scope.driver(), cuMemPoolDestroy(self.handle)) };
        if let Err(failure) = destroyed {
            trace_guarded(|| tracing::error!(%failure, "a memory pool was not destroyed"));
        }
    }
}

impl fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryPool").field("device", &self.device.device()).finish_non_exhaustive()
    }
}

/// A pool of a device that was made current. Its [`CurrentPool`] keeps it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MadeCurrent {
    number: u64,
    /// The driver's handle, as a number.
    handle: usize,
}

/// The current pool of a device, from [`MemoryPool::make_current`]. Dropping it makes the pool current that
/// was made current before it, or the device's default pool, unless another one has been set meanwhile.
#[derive(Debug)]
#[must_use = "the pool is current until it is dropped"]
pub struct CurrentPool {
    pool: Arc<MemoryPool>,
    number: u64,
}

impl CurrentPool {
    /// Returns the pool.
    #[must_use]
    pub fn pool(&self) -> &Arc<MemoryPool> {
        &self.pool
    }

    fn end(&self) -> Result<(), CudaError> {
        let state = self.pool.device.state();
        let (scope, device) = (state.enter(), state.number());
        let mut pools = state.current_pools();
        let was_last = pools.last().is_some_and(|last| last.number == self.number);
        pools.retain(|pool| pool.number != self.number);
        let scope = scope.as_ref().map_err(|&error| error)?;
        if !was_last {
            return Ok(());
        }
        let (mut current, mut next) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: it writes one handle.
        unsafe { call!(scope.driver(), cuDeviceGetMemPool(&raw mut current, device)) }?;
        if current != self.pool.handle {
            return Ok(());
        }
        match pools.last() {
            Some(last) => next = ptr::with_exposed_provenance_mut(last.handle),
            // SAFETY: it writes one handle.
            None => unsafe { call!(scope.driver(), cuDeviceGetDefaultMemPool(&raw mut next, device)) }?,
        }
        // SAFETY: the default pool always exists, and other ones are kept.
        Ok(unsafe { call!(scope.driver(), cuDeviceSetMemPool(device, next)) }?)
    }
}

impl Drop for CurrentPool {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            trace_guarded(|| tracing::error!(%error, "the device's pool before this was not made current"));
        }
    }
}
