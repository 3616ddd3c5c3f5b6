//! Copies of bytes between blocks, and between blocks and host memory.
//!
//! How a block can be accessed depends on its [`Access`](orlop_alloc::Access) and not on its device: address space can be
//! registered for the CPU too. Memory that the CPU cannot access, or that nothing can access, is an error.
//!
//! A device accesses memory until its stream is done. The host does not wait for that: the stream is recorded
//! on the blocks, and dropping them defers their reuse. It waits, for this stream only, if the destination is
//! host memory, and if an allocator does not wait for streams. If waiting fails or panics, the end is
//! unknown: the memory is leaked, and the host cannot access a destination any more.

use super::StorageCell;
use crate::error::Result;
use orlop_alloc::{
    MemoryBlock,
    engine_support::{DeviceOps, DevicePtr, StridedLoops},
};
use orlop_context::Context;
use orlop_core::{DType, Device, StreamId};
use std::mem;
use std::ptr::NonNull;

/// The start of a range of bytes.
pub(crate) enum ByteRun<'a> {
    /// In a block, at this offset.
    Block(&'a MemoryBlock, usize),
    /// In a block of host memory, at this offset, which is kept until the stream has read it. Writers of the
    /// storage wait for that.
    Kept(&'a MemoryBlock, usize, &'a StorageCell),
    /// In host memory outside any block. It is left empty (leaked) if the device may still be using it.
    Host(&'a mut Vec<u8>),
}

impl ByteRun<'_> {
    fn device(&self) -> Device {
        match self {
            Self::Block(block, _) | Self::Kept(block, ..) => block.device,
            Self::Host(_) => Device::CPU,
        }
    }

    fn place(&mut self) -> Result<DevicePtr> {
        let device = self.device();
        let ptr = match self {
            Self::Block(block, start) | Self::Kept(block, start, _) => {
                block.check_reachable()?;
                // SAFETY: inside the block (guaranteed by the caller of `transfer`).
                unsafe { block.ptr.add(*start) }
            }
            Self::Host(bytes) => NonNull::from(bytes.as_mut_slice()).cast(),
        };
        Ok(DevicePtr { ptr, device, is_kept: matches!(self, Self::Kept(..)) })
    }

    fn keep_for_good(&mut self, is_destination: bool) {
        match self {
            Self::Block(block, _) | Self::Kept(block, ..) if is_destination => block.record_unfinished(),
            // The host can still read it.
            Self::Block(block, _) | Self::Kept(block, ..) => mem::forget(block.clone()),
            Self::Host(bytes) => mem::forget(mem::take(*bytes)),
        }
    }
}

/// Copies `bytes` bytes. If the destination is host memory, they are there when this returns.
///
/// # Errors
///
/// [`NotHostAccessible`](orlop_alloc::Error::NotHostAccessible), before anything is accessed; the errors of the
/// device.
///
/// # Safety
///
/// Both ranges have at least `bytes` bytes and do not overlap; nothing else writes the source or accesses the
/// destination, other than by streams that the caller orders.
pub(crate) unsafe fn transfer(mut to: ByteRun<'_>, mut from: ByteRun<'_>, bytes: usize) -> Result<()> {
    let (to_place, from_place) = (to.place()?, from.place()?);
    let worker = if to_place.device.is_cpu() { from_place.device } else { to_place.device };
    if worker.is_cpu() {
        // SAFETY: the CPU can access both (`place`); the rest is guaranteed by the caller.
        unsafe { to_place.ptr.copy_from_nonoverlapping(from_place.ptr, bytes) };
        return Ok(());
    }
    submit(worker, &mut [to, from], |ops, stream| {
        // SAFETY: guaranteed by the caller until the stream is done, for which the ranges are kept.
        unsafe { ops.copy(to_place, from_place, bytes, stream) }
    })
}

/// Copies or casts elements between two ranges, of which the first is not on the CPU. The second may be if
/// the dtypes are the same.
///
/// # Errors
///
/// Those of [`transfer`]; [`CannotCast`](orlop_alloc::Error::CannotCast).
///
/// # Safety
///
/// As for [`transfer`], for the elements that the loops reach from the starts of the ranges; those of the
/// destination do not overlap.
pub(crate) unsafe fn copy_elements(
    mut to: (ByteRun<'_>, DType),
    mut from: (ByteRun<'_>, DType),
    loops: StridedLoops<'_>,
) -> Result<()> {
    let (to_place, from_place) = (to.0.place()?, from.0.place()?);
    let (to_dtype, from_dtype) = (to.1, from.1);
    submit(to_place.device, &mut [to.0, from.0], |ops, stream| {
        if to_dtype == from_dtype {
            // SAFETY: guaranteed by the caller until the stream is done, for which the ranges are kept.
            return unsafe { ops.copy_strided(to_place, from_place, to_dtype.size(), loops, stream) };
        }
        // SAFETY: as above.
        unsafe { ops.cast((to_place, to_dtype), (from_place, from_dtype), loops, stream) }
    })
}

/// Writes `pattern` at every step of the loops, counted from `start` in the block, which is not on the CPU.
///
/// # Errors
///
/// Those of [`transfer`].
///
/// # Safety
///
/// The elements are inside the block and do not overlap, and nothing else accesses them, other than by
/// streams that the caller orders.
pub(crate) unsafe fn fill(
    block: &MemoryBlock,
    start: usize,
    pattern: &[u8],
    loops: StridedLoops<'_>,
) -> Result<()> {
    let mut run = ByteRun::Block(block, start);
    let to = run.place()?;
    let is_zero = pattern.iter().all(|&byte| byte == 0);
    submit(block.device, &mut [run], |ops, stream| match *loops.dims() {
        [] if is_zero => {
            // SAFETY: guaranteed by the caller until the stream is done, for which the block is kept.
            unsafe { ops.zero(to, pattern.len(), stream) }
        }
        [run] if is_zero && run.dst == pattern.len() => {
            // SAFETY: as above.
            unsafe { ops.zero(to, pattern.len() * run.size, stream) }
        }
        // SAFETY: as above.
        _ => unsafe { ops.fill_strided(to, pattern, loops, stream) },
    })
}

/// Memory that a device may be using when a call ends early.
struct InFlight<'a, 'b> {
    runs: &'a mut [ByteRun<'b>],
    /// Which of the ranges their allocators keep until the stream is done.
    is_kept: [bool; 2],
}

impl Drop for InFlight<'_, '_> {
    fn drop(&mut self) {
        let lost = self.runs.iter_mut().zip(self.is_kept).enumerate().filter(|(_, (_, is_kept))| !is_kept);
        lost.for_each(|(index, (run, _))| run.keep_for_good(index == 0));
    }
}

/// Submits an operation on these ranges, the destination first, to the current stream of a device. Waits for
/// it if the destination is host memory or an allocator does not wait for streams.
fn submit(
    device: Device,
    runs: &mut [ByteRun<'_>],
    launch: impl FnOnce(&dyn DeviceOps, StreamId) -> orlop_alloc::Result<()>,
) -> Result<()> {
    Context::with_current(|context| {
        let (ops, stream) = (context.ops(device)?, context.stream(device));
        let (mut is_kept, mut waits, mut submission) = ([false; 2], false, None);
        for (index, run) in runs.iter().enumerate().take(is_kept.len()) {
            match run {
                ByteRun::Block(block, _) if !block.device.is_cpu() => {
                    is_kept[index] = block.acquire_for(&*ops, stream)?;
                    waits |= !is_kept[index];
                }
                ByteRun::Kept(block, _, cell) => {
                    is_kept[index] = block.acquire_for(&*ops, stream)?;
                    submission = Some(cell.add_reader(stream, &ops));
                    // Another thread may have shared it since: its writers do not know of the stream.
                    waits |= !cell.keeps_for_streams(block);
                }
                // A source has been read when the operation returns, and a guard holds it until then.
                ByteRun::Block(..) | ByteRun::Host(_) => waits |= index == 0,
            }
        }
        let in_flight = InFlight { runs, is_kept };
        let launched = launch(&*ops, stream);
        drop(submission);
        // After an error, a part may have been submitted.
        let done = if waits { ops.synchronize(stream) } else { Ok(()) };
        if done.is_ok() {
            mem::forget(in_flight);
        }
        Ok(launched.and(done)?)
    })
}
