//! Copies of bytes between blocks, and between blocks and host memory.
//!
//! How a block can be accessed depends on its [`Access`] and not on its device: address space can be
//! registered for the CPU too. Memory that the CPU cannot access, or that nothing can access, is an error.
//!
//! A device accesses memory until its stream is done. If waiting for the stream fails or panics, the end is
//! unknown, and the memory is leaked.

use crate::error::Result;
use orlop_alloc::{Access, DeviceOps, DevicePtr, Error as AllocError, MemoryBlock};
use orlop_context::Context;
use orlop_core::{Device, StreamId};
use std::mem;
use std::ptr::NonNull;

/// The start of a range of bytes.
pub(crate) enum ByteRun<'a> {
    /// In a block, at this offset.
    Block(&'a MemoryBlock, usize),
    /// In host memory outside any block. It is left empty (leaked) if the device may still be using it.
    Host(&'a mut Vec<u8>),
}

impl ByteRun<'_> {
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
                // SAFETY: inside the block (guaranteed by the caller of `transfer`).
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

/// Fails for blocks without accessible memory, and for CPU blocks that the CPU cannot access.
pub(crate) fn check_reachable(block: &MemoryBlock) -> Result<()> {
    match block.access {
        Access::Host => Ok(()),
        Access::Device if !block.device.is_cpu() => Ok(()),
        Access::Device | Access::None => Err(AllocError::NotHostAccessible { device: block.device }.into()),
    }
}

/// Copies `bytes` bytes and waits for the copy.
///
/// # Errors
///
/// [`NotHostAccessible`](AllocError::NotHostAccessible), before anything is accessed; the errors of the
/// device.
///
/// # Safety
///
/// Both ranges have at least `bytes` bytes and do not overlap; nothing else writes the source or accesses the
/// destination.
pub(crate) unsafe fn transfer(mut to: ByteRun<'_>, mut from: ByteRun<'_>, bytes: usize) -> Result<()> {
    let (to_place, from_place) = (to.place()?, from.place()?);
    let worker = if to_place.device.is_cpu() { from_place.device } else { to_place.device };
    if worker.is_cpu() {
        // SAFETY: the CPU can access both (`place`); the rest is guaranteed by the caller.
        unsafe { to_place.ptr.copy_from_nonoverlapping(from_place.ptr, bytes) };
        return Ok(());
    }
    work(worker, &mut [to, from], |ops, stream| {
        // SAFETY: guaranteed by the caller until the stream is done; if that is never known, both are leaked.
        unsafe { ops.copy(to_place, from_place, bytes, stream) }
    })
}

/// Lets a device write `pattern` `count` times into a block, from `start`, and waits for it.
///
/// # Errors
///
/// Those of [`transfer`].
///
/// # Safety
///
/// The range is inside the block, and nothing else accesses it.
pub(crate) unsafe fn fill(block: &MemoryBlock, start: usize, pattern: &[u8], count: usize) -> Result<()> {
    let mut run = ByteRun::Block(block, start);
    let to = run.place()?.ptr;
    work(block.device, &mut [run], |ops, stream| match pattern.iter().all(|&byte| byte == 0) {
        // SAFETY: guaranteed by the caller until the stream is done; if that is never known, the block is
        // leaked.
        true => unsafe { ops.zero(to, pattern.len() * count, stream) },
        // SAFETY: as above.
        false => unsafe { ops.fill(to, pattern, count, stream) },
    })
}

/// Runs a device operation on these ranges, and waits for it.
fn work(
    device: Device,
    runs: &mut [ByteRun<'_>],
    launch: impl FnOnce(&dyn DeviceOps, StreamId) -> orlop_alloc::Result<()>,
) -> Result<()> {
    /// The ranges that the device may be using.
    struct InFlight<'a, 'b>(&'a mut [ByteRun<'b>]);

    impl Drop for InFlight<'_, '_> {
        fn drop(&mut self) {
            self.0.iter_mut().for_each(ByteRun::keep_for_good);
        }
    }

    Context::with_current(|context| {
        let (ops, stream) = (context.ops(device)?, context.stream(device));
        let in_flight = InFlight(runs);
        if let Err(error) = launch(&*ops, stream) {
            // The operation was not started.
            mem::forget(in_flight);
            return Err(error.into());
        }
        ops.synchronize(stream)?;
        mem::forget(in_flight);
        Ok(())
    })
}
