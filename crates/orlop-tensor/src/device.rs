//! Copies and fills of tensors on devices other than the CPU.
//!
//! Devices copy, fill and zero ranges of bytes ([`DeviceOps`](orlop_alloc::DeviceOps)). A dense layout takes
//! one such operation; all other layouts go through host memory.

use crate::error::Result;
use crate::tensor::{TensorImpl, copy_or_cast, pattern};
use crate::transfer::{self, ByteRun, transfer};
use crate::{host, kernels};
use orlop_alloc::MemoryBlock;
use orlop_core::{Layout, Scalar, Shape, Strides};
use std::ops::Range;
use std::ptr::NonNull;

/// A storage's block and its number of bytes in use.
type BlockInUse<'a> = (&'a MemoryBlock, usize);

/// Copies between tensors of which at least one is not in host memory. The caller holds guards on both.
/// `layout` is the source's, with the shape of the destination.
pub(crate) fn copy(
    to: &TensorImpl,
    to_memory: BlockInUse<'_>,
    from: &TensorImpl,
    from_memory: BlockInUse<'_>,
    layout: &Layout,
) -> Result<()> {
    let (to_bytes, from_bytes) = (bytes_of(to, &to.layout, to_memory)?, bytes_of(from, layout, from_memory)?);
    if to.layout.is_empty() {
        return Ok(());
    }
    let same = to.dtype == from.dtype && to.layout.strides() == layout.strides();
    if same && to.layout.is_non_overlapping_and_dense() {
        let (to, from) =
            (ByteRun::Block(to_memory.0, to_bytes.start), ByteRun::Block(from_memory.0, from_bytes.start));
        // SAFETY: both ranges are inside their blocks, which are distinct (the writer's has no other owner)
        // and held by guards; dense layouts with the same strides span the same number of bytes.
        return unsafe { transfer(to, from, to_bytes.len()) };
    }
    // Through the host: only the bytes that the layouts span. Bytes between the destination's elements keep
    // their values.
    let mut source = host::zeros(from_bytes.len())?;
    fetch(&mut source, from_memory.0, &from_bytes)?;
    let mut destination = host::zeros(to_bytes.len())?;
    if !to.layout.is_non_overlapping_and_dense() {
        fetch(&mut destination, to_memory.0, &to_bytes)?;
    }
    let (to_layout, from_layout) = (from_zero(&to.layout)?, from_zero(layout)?);
    let (to_ptr, from_ptr) = (first(&mut destination), first(&mut source));
    // SAFETY: the vectors have the spans of the layouts; the destination does not overlap itself (checked by
    // the caller).
    unsafe { copy_or_cast(to_ptr, &to_layout, to.dtype, from_ptr, &from_layout, from.dtype) };
    send(to_memory.0, &to_bytes, &mut destination)
}

/// Copies to host memory of the same dtype. On success each element of `layout` is written.
///
/// # Safety
///
/// `to` is valid for writes over the span of `layout`, and nothing else accesses it; the layout has the
/// tensor's shape and does not overlap itself.
pub(crate) unsafe fn copy_out(
    imp: &TensorImpl,
    block: &MemoryBlock,
    bytes: usize,
    to: NonNull<u8>,
    layout: &Layout,
) -> Result<()> {
    let range = bytes_of(imp, &imp.layout, (block, bytes))?;
    let mut source = host::zeros(range.len())?;
    fetch(&mut source, block, &range)?;
    let from_layout = from_zero(&imp.layout)?;
    // SAFETY: the vector has the span of the source's layout; the rest is guaranteed by the caller.
    unsafe { copy_or_cast(to, layout, imp.dtype, first(&mut source), &from_layout, imp.dtype) };
    Ok(())
}

/// Fills a tensor whose elements do not overlap. The caller holds a write guard.
pub(crate) fn fill(imp: &TensorImpl, block: &MemoryBlock, bytes: usize, value: Scalar) -> Result<()> {
    let range = bytes_of(imp, &imp.layout, (block, bytes))?;
    if imp.layout.is_empty() {
        return Ok(());
    }
    if imp.layout.is_non_overlapping_and_dense() {
        let (pattern, size) = pattern(value, imp.dtype);
        let count = range.len() / size;
        // SAFETY: inside the block, which the write guard gives exclusively.
        return unsafe { transfer::fill(block, range.start, &pattern[..size], count) };
    }
    let mut bytes = host::zeros(range.len())?;
    fetch(&mut bytes, block, &range)?;
    let layout = from_zero(&imp.layout)?;
    // SAFETY: the vector has the span of the layout, whose elements do not overlap (checked by the caller).
    unsafe { kernels::fill(first(&mut bytes).as_ptr(), &layout, imp.dtype, value) };
    send(block, &range, &mut bytes)
}

/// Returns the range of the block's bytes that a layout of the tensor's storage spans.
fn bytes_of(imp: &TensorImpl, layout: &Layout, (_, bytes): BlockInUse<'_>) -> Result<Range<usize>> {
    let itemsize = imp.dtype.size();
    layout.check_within(imp.storage().bytes_of(bytes), itemsize)?;
    let range = layout.byte_range(itemsize)?;
    if range.is_empty() {
        return Ok(0..0);
    }
    let start = imp.storage().start();
    Ok(start + range.start..start + range.end)
}

/// Returns the layout with an offset of zero.
fn from_zero(layout: &Layout) -> Result<Layout> {
    let (shape, strides): (Shape, Strides) = (layout.shape().clone(), layout.strides().clone());
    Ok(Layout::new(shape, strides, 0)?)
}

fn first(bytes: &mut [u8]) -> NonNull<u8> {
    NonNull::from(bytes).cast()
}

fn fetch(to: &mut Vec<u8>, block: &MemoryBlock, range: &Range<usize>) -> Result<()> {
    let bytes = to.len();
    // SAFETY: the vector is as long as the range (see the callers), which is inside the block; a guard holds
    // the block.
    unsafe { transfer(ByteRun::Host(to), ByteRun::Block(block, range.start), bytes) }
}

fn send(block: &MemoryBlock, range: &Range<usize>, from: &mut Vec<u8>) -> Result<()> {
    let bytes = from.len();
    // SAFETY: as in `fetch`; a write guard holds the block.
    unsafe { transfer(ByteRun::Block(block, range.start), ByteRun::Host(from), bytes) }
}
