//! Primary contexts and the current context of a thread. Other contexts are not simulated.

use crate::abi::Out;
use crate::call::calls;
use crate::codes::Failure;
use crate::state::device::primary;
use crate::state::host_thread::{current, pop, push, set_current};

calls! {
    fn cuDevicePrimaryCtxRetain(context: Out<u64>, device: i32) Init |driver| {
        let device = driver.device(device)?;
        context.set(primary(device))?;
        if driver.devices[device].retained == 0 {
            driver.devices[device].context_id = driver.handle();
        }
        driver.devices[device].retained += 1;
        Ok(())
    }

    fn cuDevicePrimaryCtxRelease_v2(device: i32) Init |driver| {
        let device = driver.device(device)?;
        let retained = &mut driver.devices[device].retained;
        *retained = retained.checked_sub(1).ok_or(Failure::INVALID_CONTEXT)?;
        if *retained == 0 {
            // Memory stays, so that what the program did not free is found.
            driver.modules.unload_of(device);
        }
        Ok(())
    }

    // What a reset frees is up to the simulation's own reset; here it only ends a sticky error.
    fn cuDevicePrimaryCtxReset_v2(device: i32) Init |driver| {
        let device = driver.device(device)?;
        driver.devices[device].sticky = None;
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) Init |driver| {
        let device = driver.device(device)?;
        flags.set_optional(driver.devices[device].context_flags);
        active.set(i32::from(driver.devices[device].retained > 0))
    }

    fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) Init |driver| {
        let device = driver.device(device)?;
        driver.devices[device].context_flags = flags;
        Ok(())
    }

    fn cuCtxGetCurrent(context: Out<u64>) Init |_driver| { context.set(current()) }

    fn cuCtxSetCurrent(context: u64) Init |driver| {
        if context != 0 {
            driver.device_of_context(context)?;
        }
        set_current(context);
        Ok(())
    }

    fn cuCtxPushCurrent_v2(context: u64) Init |driver| {
        driver.device_of_context(context)?;
        push(context);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(context: Out<u64>) Init |_driver| {
        let popped = pop().ok_or(Failure::INVALID_CONTEXT)?;
        context.set_optional(popped);
        Ok(())
    }

    fn cuCtxGetDevice(device: Out<i32>) Init |driver| {
        let current = driver.current_device()?;
        device.set(i32::try_from(current).unwrap_or(i32::MAX))
    }

    fn cuCtxGetFlags(flags: Out<u32>) Context |driver| {
        let device = driver.current_device()?;
        flags.set(driver.devices[device].context_flags)
    }

    fn cuCtxSetFlags(flags: u32) Context |driver| {
        let device = driver.current_device()?;
        driver.devices[device].context_flags = flags;
        Ok(())
    }

    fn cuCtxGetId(context: u64, id: Out<u64>) Init |driver| {
        let device = driver.device_of_context(if context == 0 { current() } else { context })?;
        if driver.devices[device].retained == 0 {
            return Err(Failure::CONTEXT_IS_DESTROYED);
        }
        id.set(driver.devices[device].context_id)
    }

    fn cuCtxGetApiVersion(_context: u64, version: Out<u32>) Init |_driver| { version.set(3020) }

    fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) Context |_driver| {
        least.set_optional(0);
        greatest.set_optional(-5);
        Ok(())
    }

    fn cuCtxSynchronize() Unsafe |driver| {
        let device = driver.current_device()?;
        driver.refuse_device_capturing(device)?;
        driver.synchronize_device(device)
    }
}
