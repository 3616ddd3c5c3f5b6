//! Allocation in the order of a stream, and memory pools.

use crate::abi::{AccessDescription, In, LOCATION_DEVICE, Out, PoolProperties};
use crate::call::calls;
use crate::codes::Failure;
use crate::state::pool::Pool;
use crate::state::virtual_memory::PROT_READ_WRITE;

calls! {
    fn cuMemAllocAsync(address: Out<usize>, bytes: usize, stream: u64) Context |driver| {
        let id = driver.stream_of(stream)?;
        let device = driver.stream(id)?.device;
        let pool = driver.devices[device].current_pool;
        address.set(driver.allocate_in_stream(pool, bytes, id)?)
    }

    fn cuMemAllocFromPoolAsync(address: Out<usize>, bytes: usize, pool: u64, stream: u64) Context |driver| {
        let id = driver.stream_of(stream)?;
        address.set(driver.allocate_in_stream(pool, bytes, id)?)
    }

    fn cuMemFreeAsync(address: usize, stream: u64) Context |driver| {
        if address == 0 {
            return Ok(());
        }
        let id = driver.stream_of(stream)?;
        driver.free_in_stream(address, id)
    }

    fn cuDeviceGetDefaultMemPool(pool: Out<u64>, device: i32) Init |driver| {
        let device = driver.device(device)?;
        if !driver.config.has_pools {
            return Err(Failure::NOT_SUPPORTED);
        }
        pool.set(driver.devices[device].default_pool)
    }

    fn cuDeviceGetMemPool(pool: Out<u64>, device: i32) Init |driver| {
        let device = driver.device(device)?;
        if !driver.config.has_pools {
            return Err(Failure::NOT_SUPPORTED);
        }
        pool.set(driver.devices[device].current_pool)
    }

    fn cuDeviceSetMemPool(device: i32, pool: u64) Init |driver| {
        let device = driver.device(device)?;
        if driver.pool(pool)?.device != device {
            return Err(Failure::INVALID_DEVICE);
        }
        driver.devices[device].current_pool = pool;
        Ok(())
    }

    fn cuMemPoolCreate(pool: Out<u64>, properties: In<PoolProperties>) Init |driver| {
        let properties = properties.get()?;
        if !driver.config.has_pools {
            return Err(Failure::NOT_SUPPORTED);
        }
        // `CU_MEM_ALLOCATION_TYPE_PINNED`; handles for other processes are not simulated.
        if properties.kind != 1 || properties.location.kind != LOCATION_DEVICE {
            return Err(Failure::INVALID_VALUE);
        }
        if properties.handle_types != 0 {
            return Err(Failure::NOT_SUPPORTED);
        }
        let device = driver.device(properties.location.id)?;
        let handle = driver.free_or_new_handle();
        driver.pools.insert(handle, Pool::new(device, false));
        pool.set(handle)
    }

    fn cuMemPoolDestroy(pool: u64) Init |driver| { driver.destroy_pool(pool) }

    fn cuMemPoolTrimTo(pool: u64, keep: usize) Unsafe |driver| {
        driver.pool(pool)?;
        driver.trim_pool(pool, keep as u64);
        Ok(())
    }

    fn cuMemPoolGetAttribute(pool: u64, name: i32, value: Out<u64>) Init |driver| {
        let pool = driver.pool(pool)?;
        let found = match name {
            1..=3 => {
                let index = usize::try_from(name - 1).unwrap_or(0);
                // These attributes are of 32 bits.
                return value.cast::<i32>().set(pool.reuse[index]);
            }
            4 => pool.threshold,
            5 => pool.reserved(),
            6 => pool.reserved_high,
            7 => pool.used,
            8 => pool.used_high,
            _ => return Err(Failure::INVALID_VALUE),
        };
        value.set(found)
    }

    fn cuMemPoolSetAttribute(pool: u64, name: i32, value: Out<u64>) Init |driver| {
        let pool = driver.pool(pool)?;
        match name {
            1..=3 => {
                let index = usize::try_from(name - 1).unwrap_or(0);
                pool.reuse[index] = value.cast::<i32>().get()?;
            }
            4 => pool.threshold = value.get()?,
            // The marks can only be set to zero, which means to the current value.
            6 if value.get()? == 0 => pool.reserved_high = pool.reserved(),
            8 if value.get()? == 0 => pool.used_high = pool.used,
            _ => return Err(Failure::INVALID_VALUE),
        }
        Ok(())
    }

    fn cuMemPoolSetAccess(pool: u64, descriptions: In<AccessDescription>, count: usize) Init |driver| {
        driver.pool(pool)?;
        for description in descriptions.list(count)? {
            let device = driver.device(description.location.id)?;
            if description.location.kind != LOCATION_DEVICE {
                return Err(Failure::INVALID_VALUE);
            }
            if driver.pool(pool)?.device == device {
                // "Revoking access to the memory of the device that the pool resides on is not allowed."
                let is_kept = description.flags == PROT_READ_WRITE;
                is_kept.then_some(()).ok_or(Failure::INVALID_VALUE)?;
            } else if !driver.config.has_peer_access {
                return Err(Failure::INVALID_DEVICE);
            } else if description.flags == PROT_READ_WRITE {
                driver.pool(pool)?.peers.insert(device);
            } else {
                driver.pool(pool)?.peers.remove(&device);
            }
        }
        Ok(())
    }
}
