//! Runs of bytes between blocks, and between blocks and the host's own memory.
//!
//! How a block may be reached is for its [`Access`] to say and not for its device: address space can be registered for the
//! processor too. What the processor cannot touch there, and what nobody can touch anywhere, is refused.
//!
//! A device reads and writes memory until a stream is done. If waiting for it fails, or panics, it may never be known when
//! that is, and the memory is kept for good.

use crate::error::Result;
use orlop_alloc::{Access, Context, DeviceOps, DevicePtr, Error as AllocError, MemoryBlock};
use orlop_core::{Device, StreamId};
use std::mem;
use std::ptr::NonNull;

/// Where a run of bytes begins.
pub(crate) enum Run<'a> {
    /// In a block, at an offset.
    Block(&'a MemoryBlock, usize),
    /// In memory of the host that no block is about. It is empty if the device may still be using it.
    Host(&'a mut Vec<u8>),
}

impl Run<'_> {
    fn device(&self) -> Device {
        match self {
            Self::Block(block, _) => block.device,
            Self::Host(_) => Device::CPU,
        }
    }

    fn place(&mut self) -> Result<DevicePtr> {
        let device = self.device();
        let ptr = match self {
            Self::Block(block, start) => {
                check_reachable(block)?;
                // SAFETY: inside the block (the caller of `transfer`).
                unsafe { block.ptr.add(*start) }
            }
            Self::Host(bytes) => NonNull::from(bytes.as_mut_slice()).cast(),
        };
        Ok(DevicePtr { ptr, device })
    }

    fn keep_for_good(&mut self) {
        match self {
            Self::Block(block, _) => mem::forget(block.clone()),
            Self::Host(bytes) => mem::forget(mem::take(*bytes)),
        }
    }
}

/// Refuses blocks without bytes, and blocks of the processor's that it cannot touch.
pub(crate) fn check_reachable(block: &MemoryBlock) -> Result<()> {
    match block.access {
        Access::Host => Ok(()),
        Access::Device if !block.device.is_cpu() => Ok(()),
        Access::Device | Access::None => Err(AllocError::NotHostAccessible { device: block.device }.into()),
    }
}

/// Copies `bytes`, done when this returns.
///
/// # Errors
///
/// [`NotHostAccessible`](AllocError::NotHostAccessible), before anything is touched; what the device says.
///
/// # Safety
///
/// Both runs are at least so long and apart; nobody else writes the source or uses the destination.
pub(crate) unsafe fn transfer(mut to: Run<'_>, mut from: Run<'_>, bytes: usize) -> Result<()> {
    let (to_place, from_place) = (to.place()?, from.place()?);
    let worker = if to_place.device.is_cpu() { from_place.device } else { to_place.device };
    if worker.is_cpu() {
        // SAFETY: the processor can touch both (`place`); the caller's promise.
        unsafe { to_place.ptr.copy_from_nonoverlapping(from_place.ptr, bytes) };
        return Ok(());
    }
    work(worker, &mut [to, from], |ops, stream| {
        // SAFETY: the caller's promise, until the stream has been waited for; else both are kept for good.
        unsafe { ops.copy(to_place, from_place, bytes, stream) }
    })
}

/// Has a device write `pattern` over and over into a block, from `start` on, `count` times. Done when this returns.
///
/// # Errors
///
/// Those of [`transfer`].
///
/// # Safety
///
/// All of it lies inside the block, and nobody else uses it.
pub(crate) unsafe fn fill(block: &MemoryBlock, start: usize, pattern: &[u8], count: usize) -> Result<()> {
    let mut run = Run::Block(block, start);
    let to = run.place()?.ptr;
    work(block.device, &mut [run], |ops, stream| match pattern.iter().all(|&byte| byte == 0) {
        // SAFETY: the caller's promise, until the stream has been waited for; else the block is kept for good.
        true => unsafe { ops.zero(to, pattern.len() * count, stream) },
        // SAFETY: as above.
        false => unsafe { ops.fill(to, pattern, count, stream) },
    })
}

/// Has a device do something with these runs, and waits for it.
fn work(
    device: Device,
    runs: &mut [Run<'_>],
    launch: impl FnOnce(&dyn DeviceOps, StreamId) -> orlop_alloc::Result<()>,
) -> Result<()> {
    /// What the device may be using.
    struct InFlight<'a, 'b>(&'a mut [Run<'b>]);

    impl Drop for InFlight<'_, '_> {
        fn drop(&mut self) {
            self.0.iter_mut().for_each(Run::keep_for_good);
        }
    }

    Context::with_current(|context| {
        let (ops, stream) = (context.ops(device)?, context.stream(device));
        let in_flight = InFlight(runs);
        if let Err(error) = launch(&*ops, stream) {
            // Nothing was begun.
            mem::forget(in_flight);
            return Err(error.into());
        }
        ops.synchronize(stream)?;
        mem::forget(in_flight);
        Ok(())
    })
}
