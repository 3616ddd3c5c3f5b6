//! Memory pools: what they take of their device, keep, and give back.
//!
//! Up to the release threshold a pool keeps memory that was freed; above, it goes back to the device when the
//! host next waits for a stream of the device.

use crate::codes::{Failure, Outcome};
use crate::driver::Driver;
use crate::state::pool::Pool;

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
}
