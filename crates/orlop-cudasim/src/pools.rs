//! Memory pools: allocation in the order of a stream.
//!
//! Memory that a stream frees goes back to its pool when the stream gets there. Up to the release threshold
//! the pool keeps it; above, it goes back to the device when the host next waits for a stream of the
//! device.

use crate::call::DriverGuard;
use crate::codes::{Failure, Outcome};
use crate::driver::Driver;
use crate::memory::MemoryAccess;
use crate::memory::{SimMemory, rounded};
use crate::streams::Submission;
use crate::work::Work;

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) device: usize,
    pub(crate) is_default: bool,
    /// Destroyed by the program, with memory still in use.
    pub(crate) is_destroyed: bool,
    pub(crate) threshold: u64,
    /// Bytes in allocations, and bytes kept for later ones.
    pub(crate) used: u64,
    pub(crate) kept: u64,
    pub(crate) used_high: u64,
    pub(crate) reserved_high: u64,
    /// The three attributes that allow reuse, which the simulation accepts and does not need.
    pub(crate) reuse: [i32; 3],
}

impl Pool {
    pub(crate) fn new(device: usize, is_default: bool) -> Self {
        Self {
            device,
            is_default,
            is_destroyed: false,
            threshold: 0,
            used: 0,
            kept: 0,
            used_high: 0,
            reserved_high: 0,
            reuse: [1; 3],
        }
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.used + self.kept
    }
}

impl Driver {
    pub(crate) fn pool(&mut self, handle: u64) -> Outcome<&mut Pool> {
        let pool = self.pools.get_mut(&handle).filter(|pool| !pool.is_destroyed);
        pool.ok_or(Failure::INVALID_VALUE)
    }

    /// Takes memory for a pool: kept bytes first, then the device's.
    fn charge_pool(&mut self, handle: u64, bytes: usize) -> Outcome {
        let pool = self.pool(handle)?;
        let (device, kept) = (pool.device, pool.kept.min(bytes as u64));
        let more = bytes as u64 - kept;
        self.charge(device, usize::try_from(more).unwrap_or(usize::MAX))?;
        let pool = self.pool(handle)?;
        pool.kept -= kept;
        pool.used += bytes as u64;
        pool.used_high = pool.used_high.max(pool.used);
        pool.reserved_high = pool.reserved_high.max(pool.reserved());
        Ok(())
    }

    /// Returns freed memory to its pool.
    pub(crate) fn return_to_pool(&mut self, handle: u64, bytes: usize) {
        if let Some(pool) = self.pools.get_mut(&handle) {
            pool.used -= bytes as u64;
            pool.kept += bytes as u64;
            if pool.is_destroyed {
                self.trim_pool(handle, 0);
            }
        }
    }

    /// Gives kept memory back to the device until `keep` bytes are reserved.
    pub(crate) fn trim_pool(&mut self, handle: u64, keep: u64) {
        let Some(pool) = self.pools.get_mut(&handle) else { return };
        let given = pool.kept.min(pool.reserved().saturating_sub(keep));
        let (device, is_gone) = (pool.device, pool.is_destroyed && pool.used == 0);
        pool.kept -= given;
        self.uncharge(device, usize::try_from(given).unwrap_or(usize::MAX));
        if is_gone {
            self.pools.remove(&handle);
        }
    }

    /// Gives back what the pools of a device keep above their thresholds.
    pub(crate) fn trim_pools(&mut self, device: usize) {
        let pools: Vec<(u64, u64)> = self
            .pools
            .iter()
            .filter(|(_, pool)| pool.device == device && pool.kept > 0)
            .map(|(&handle, pool)| (handle, pool.threshold))
            .collect();
        for (handle, threshold) in pools {
            self.trim_pool(handle, threshold);
        }
    }

    pub(crate) fn destroy_pool(&mut self, handle: u64) -> Outcome {
        let pool = self.pool(handle)?;
        if pool.is_default {
            return Err(Failure::NOT_PERMITTED);
        }
        pool.is_destroyed = true;
        let device = pool.device;
        if self.devices[device].current_pool == handle {
            self.devices[device].current_pool = self.devices[device].default_pool;
        }
        self.trim_pool(handle, 0);
        Ok(())
    }

    fn allocate_in_pool(&mut self, handle: u64, bytes: usize) -> Outcome<usize> {
        let taken = rounded(bytes)?;
        let device = self.pool(handle)?.device;
        if self.charge_pool(handle, taken).is_err() {
            for (other, _) in self.pools.iter().map(|(&other, pool)| (other, pool.device)).collect::<Vec<_>>()
            {
                self.trim_pool(other, 0);
            }
            self.charge_pool(handle, taken)?;
        }
        let poison = self.config.has_poison;
        let allocated = self.memory.allocate(bytes, SimMemory::Device, device, handle, 0, poison);
        if allocated.is_err() {
            self.return_to_pool(handle, taken);
        }
        allocated
    }

    /// Frees memory when a stream gets there.
    pub(crate) fn free_in_stream(&mut self, address: usize, stream: u64) -> Outcome {
        let found = self.memory.allocations.get(&address).copied().ok_or(Failure::INVALID_VALUE)?;
        if found.kind != SimMemory::Device {
            return Err(Failure::INVALID_VALUE);
        }
        let access = MemoryAccess::write(address, found.bytes);
        if let Some((capture, _)) = self.stream(stream)?.capture {
            let owned =
                self.captures.get(&capture).is_some_and(|found| found.graph.memory.contains(&address));
            // The graph keeps its memory for the next launch.
            let work = if owned { Work::Nothing } else { Work::Free { address } };
            return self.submit(stream, Submission::new("cuMemFreeAsync", work, vec![access]));
        }
        self.submit(stream, Submission::new("cuMemFreeAsync", Work::Free { address }, vec![access]))
    }
}

impl DriverGuard {
    /// Allocates from a pool in the order of a stream.
    pub(crate) fn allocate_in_stream(&mut self, handle: u64, bytes: usize, stream: u64) -> Outcome<usize> {
        if bytes == 0 {
            return Err(Failure::INVALID_VALUE);
        }
        if !self.config.has_pools {
            return Err(Failure::NOT_SUPPORTED);
        }
        let device = self.stream(stream)?.device;
        let mut allocated = self.allocate_in_pool(handle, bytes);
        if allocated == Err(Failure::OUT_OF_MEMORY) && !self.busy.is_empty() {
            // Memory may be on its way back. The driver waits for it; the host learns nothing by that.
            self.wait_until(|driver| {
                driver.streams.iter().all(|(id, stream)| stream.device != device || driver.is_idle(*id))
            })?;
            allocated = self.allocate_in_pool(handle, bytes);
        }
        let address = allocated?;
        let access = MemoryAccess::write(address, bytes);
        if let Some((capture, _)) = self.stream(stream)?.capture
            && let Some(capture) = self.captures.get_mut(&capture)
        {
            capture.graph.memory.push(address);
        }
        let submission = Submission::new("cuMemAllocAsync", Work::Nothing, vec![access]);
        if let Err(failure) = self.submit(stream, submission) {
            self.release_memory(address)?;
            return Err(failure);
        }
        Ok(address)
    }
}
