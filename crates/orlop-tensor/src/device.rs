//! Elements of tensors on devices other than the processor.
//!
//! Devices copy, fill and zero runs of bytes ([`DeviceOps`](orlop_alloc::DeviceOps)). What lies densely is done with one
//! of these; for all else the bytes go through the host.

use crate::error::Result;
use crate::tensor::{TensorImpl, copy_or_cast, pattern};
use crate::transfer::{self, Run, transfer};
use crate::{host, kernels};
use orlop_alloc::MemoryBlock;
use orlop_core::{Layout, Scalar, Shape, Strides};
use std::ops::Range;
use std::ptr::NonNull;

/// A storage's block and its bytes in use.
type Memory<'a> = (&'a MemoryBlock, usize);

/// Copies where at least one side is no host memory. Both are held by guards; `layout` is the source's, with the shape of
/// the destination.
pub(crate) fn copy(
    to: &TensorImpl,
    to_memory: Memory<'_>,
    from: &TensorImpl,
    from_memory: Memory<'_>,
    layout: &Layout,
) -> Result<()> {
    let (to_bytes, from_bytes) = (bytes_of(to, &to.layout, to_memory)?, bytes_of(from, layout, from_memory)?);
    if to.layout.is_empty() {
        return Ok(());
    }
    let same = to.dtype == from.dtype && to.layout.strides() == layout.strides();
    if same && to.layout.is_non_overlapping_and_dense() {
        let (to, from) =
            (Run::Block(to_memory.0, to_bytes.start), Run::Block(from_memory.0, from_bytes.start));
        // SAFETY: both inside their blocks, which are two (the writer's has no other owner) and held by guards; as many
        // bytes, because dense layouts with the same strides reach as far.
        return unsafe { transfer(to, from, to_bytes.len()) };
    }
    // Through the host: only what the layouts reach. What is between the destination's elements stays.
    let mut source = host::zeros(from_bytes.len())?;
    fetch(&mut source, from_memory.0, &from_bytes)?;
    let mut destination = host::zeros(to_bytes.len())?;
    if !to.layout.is_non_overlapping_and_dense() {
        fetch(&mut destination, to_memory.0, &to_bytes)?;
    }
    let (to_layout, from_layout) = (from_zero(&to.layout)?, from_zero(layout)?);
    let (to_ptr, from_ptr) = (first(&mut destination), first(&mut source));
    // SAFETY: the vectors are what the layouts reach; the destination has no overlap (the caller has checked).
    unsafe { copy_or_cast(to_ptr, &to_layout, to.dtype, from_ptr, &from_layout, from.dtype) };
    send(to_memory.0, &to_bytes, &mut destination)
}

/// Copies to host memory of the same dtype. Without an error each element of `layout` is written.
///
/// # Safety
///
/// `to` is valid for writes of all that `layout` reaches, and nobody else's; the layout has the tensor's shape and no
/// overlap.
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
    // SAFETY: the vector is what the source's layout reaches; the caller's promise.
    unsafe { copy_or_cast(to, layout, imp.dtype, first(&mut source), &from_layout, imp.dtype) };
    Ok(())
}

/// Fills a tensor whose elements are apart. It is held by a writer's guard.
pub(crate) fn fill(imp: &TensorImpl, block: &MemoryBlock, bytes: usize, value: Scalar) -> Result<()> {
    let range = bytes_of(imp, &imp.layout, (block, bytes))?;
    if imp.layout.is_empty() {
        return Ok(());
    }
    if imp.layout.is_non_overlapping_and_dense() {
        let (pattern, size) = pattern(value, imp.dtype);
        let count = range.len() / size;
        // SAFETY: inside the block, and ours by the writer's guard.
        return unsafe { transfer::fill(block, range.start, &pattern[..size], count) };
    }
    let mut bytes = host::zeros(range.len())?;
    fetch(&mut bytes, block, &range)?;
    let layout = from_zero(&imp.layout)?;
    // SAFETY: the vector is what the layout reaches, and its elements are apart (the caller has checked).
    unsafe { kernels::fill(first(&mut bytes).as_ptr(), &layout, imp.dtype, value) };
    send(block, &range, &mut bytes)
}

/// The bytes of the block that a layout of the tensor's storage reaches.
fn bytes_of(imp: &TensorImpl, layout: &Layout, (_, bytes): Memory<'_>) -> Result<Range<usize>> {
    let itemsize = imp.dtype.size();
    layout.check_within(imp.storage().bytes_of(bytes), itemsize)?;
    let range = layout.byte_range(itemsize)?;
    if range.is_empty() {
        return Ok(0..0);
    }
    let start = imp.storage().start();
    Ok(start + range.start..start + range.end)
}

/// The layout with its first element at zero.
fn from_zero(layout: &Layout) -> Result<Layout> {
    let (shape, strides): (Shape, Strides) = (layout.shape().clone(), layout.strides().clone());
    Ok(Layout::new(shape, strides, 0)?)
}

fn first(bytes: &mut [u8]) -> NonNull<u8> {
    NonNull::from(bytes).cast()
}

fn fetch(to: &mut Vec<u8>, block: &MemoryBlock, range: &Range<usize>) -> Result<()> {
    let bytes = to.len();
    // SAFETY: the vector is as long as the range (the callers), which lies inside the block; the block is held by a guard.
    unsafe { transfer(Run::Host(to), Run::Block(block, range.start), bytes) }
}

fn send(block: &MemoryBlock, range: &Range<usize>, from: &mut Vec<u8>) -> Result<()> {
    let bytes = from.len();
    // SAFETY: as in `fetch`; the block is held by the writer's guard.
    unsafe { transfer(Run::Block(block, range.start), Run::Host(from), bytes) }
}
