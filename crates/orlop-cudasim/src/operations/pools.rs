//! Memory pools: what they take of their device, keep, and give back.
//!
//! Up to the release threshold a pool keeps memory that was freed; above, it goes back to the device when the
//! host next waits for a stream of the device.

use crate::codes::{Failure, Outcome};
use crate::driver::Driver;
use crate::state::pool::Pool;
use crate::state::work::Work;

impl Driver {
    pub(crate) fn pool(&mut self, handle: u64) -> Outcome<&mut Pool> {
        let pool = self.pools.get_mut(&handle).filter(|pool| !pool.is_destroyed);
        pool.ok_or(Failure::INVALID_VALUE)
    }

    /// Takes memory for a pool: kept bytes first, then the device's.
    pub(crate) fn charge_pool(&mut self, handle: u64, bytes: usize) -> Outcome {
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

    /// Takes memory of a device; if too little is left, and that suffices, what its pools keep.
    pub(crate) fn charge(&mut self, device: usize, bytes: usize) -> Outcome {
        let charged = self.charge_free(device, bytes);
        if charged != Err(Failure::OUT_OF_MEMORY) {
            return charged;
        }
        let pools = self.pools.values().filter(|pool| pool.device == device);
        let kept = pools.map(|pool| pool.kept).sum::<u64>();
        let free = self.devices[device].total - self.devices[device].used;
        if (bytes as u64) > free + kept {
            return charged;
        }
        // "a call to cudaMalloc or cuMemCreate could cause CUDA to free unused memory from any memory pool"
        self.trim_pools(device, Some(0));
        self.charge_free(device, bytes)
    }

    /// Returns `true` if a stream is going to return memory to a pool.
    pub(crate) fn awaits_memory(&self, handle: u64) -> bool {
        let mut pending = self.streams.values().flat_map(|stream| &stream.operations);
        pending.any(|operation| match operation.work {
            Work::Free { address } => {
                self.memory.allocations.get(&address).is_some_and(|found| found.pool == handle)
            }
            _ => false,
        })
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
            self.free_handle(handle);
        }
    }

    /// Gives back what the pools of a device keep above their thresholds, or above another number of bytes.
    pub(crate) fn trim_pools(&mut self, device: usize, keep: Option<u64>) {
        let pools: Vec<(u64, u64)> = self
            .pools
            .iter()
            .filter(|(_, pool)| pool.device == device && pool.kept > 0)
            .map(|(&handle, pool)| (handle, keep.unwrap_or(pool.threshold)))
            .collect();
        for (handle, keep) in pools {
            self.trim_pool(handle, keep);
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
}
