//! Copies and fills of tensors on devices other than the CPU.
//!
//! On one device, elements are copied, cast and filled by its operations, over any strides. Between a device
//! and the host, bytes travel in one run: elements that are not adjacent are packed before it, where they
//! are, and unpacked after it, where they go. The host casts; devices cast if they can, else the host does.
//!
//! Nothing here waits for a device, except for bytes that the host is about to read.

use super::ops::{copy_or_cast, pattern};
use crate::error::{Error, Result};
use crate::host;
use crate::storage::transfer::{self, ByteRun, copy_elements, transfer};
use crate::storage::{StorageCell, TensorImpl};
use orlop_alloc::{Error as AllocError, MemoryBlock, Request, engine_support::StridedLoops};
use orlop_context::Context;
use orlop_core::{Alignment, DType, Device, Layout, MemoryKind, Scalar};
use std::ptr::NonNull;

/// A storage's block and its number of bytes in use.
type BlockInUse<'a> = (&'a MemoryBlock, usize);

/// The elements of a tensor in its block.
struct BlockElements<'a> {
    block: &'a MemoryBlock,
    /// The bytes before the first element.
    start: usize,
    /// Counted from the first element.
    layout: Layout,
    dtype: DType,
    /// The bytes from the first element to the end of the last.
    span: usize,
}

impl<'a> BlockElements<'a> {
    /// Returns the elements of a layout of the tensor's storage.
    fn new(imp: &TensorImpl, layout: &Layout, (block, bytes): BlockInUse<'a>) -> Result<Self> {
        block.check_reachable()?;
        let itemsize = imp.dtype.size();
        layout.check_within(imp.storage().bytes_of(bytes), itemsize)?;
        let range = layout.byte_range(itemsize)?;
        let start = if range.is_empty() { 0 } else { imp.storage().start() + range.start };
        Ok(Self { block, start, layout: from_zero(layout)?, dtype: imp.dtype, span: range.len() })
    }

    /// Returns the elements of a whole block.
    fn whole(block: &'a MemoryBlock, layout: Layout, dtype: DType) -> Result<Self> {
        let span = layout.byte_range(dtype.size())?.len();
        Ok(Self { block, start: 0, layout, dtype, span })
    }

    fn device(&self) -> Device {
        self.block.device
    }

    fn run(&self) -> ByteRun<'a> {
        ByteRun::Block(self.block, self.start)
    }

    /// The address of the first element, for host memory.
    fn first(&self) -> NonNull<u8> {
        // SAFETY: inside the block (`new`, `whole`).
        unsafe { self.block.ptr.add(self.start) }
    }

    fn is_dense(&self) -> bool {
        self.layout.is_non_overlapping_and_dense()
    }

    /// Returns the layout in which elements travel to these: as they are if they are dense.
    fn packed(&self) -> Layout {
        if self.is_dense() { self.layout.clone() } else { Layout::contiguous(self.layout.shape().clone()) }
    }

    fn packed_bytes(&self) -> usize {
        self.layout.numel() * self.dtype.size()
    }

    /// Returns `true` if the elements have this layout and dtype, so that their bytes are copied as they are.
    fn is_like(&self, layout: &Layout, dtype: DType) -> bool {
        self.dtype == dtype && is_same_order(&self.layout, layout)
    }
}

/// Copies between tensors of which at least one is not in host memory. The caller holds guards on both.
/// `layout` is the source's, with the shape of the destination.
pub(crate) fn copy(
    to: &TensorImpl,
    to_memory: BlockInUse<'_>,
    from: &TensorImpl,
    from_memory: BlockInUse<'_>,
    layout: &Layout,
) -> Result<()> {
    let to = BlockElements::new(to, &to.layout, to_memory)?;
    let (source, from) = (from.storage(), BlockElements::new(from, layout, from_memory)?);
    if to.layout.is_empty() {
        return Ok(());
    }
    if to.is_dense() && from.is_like(&to.layout, to.dtype) && !from.device().is_cpu() {
        // SAFETY: both ranges are inside their blocks, which are distinct (the writer's has no other owner)
        // and held by guards; dense layouts with the same strides span the same number of bytes.
        let copied = unsafe { transfer(to.run(), from.run(), to.span) };
        if !matches!(copied, Err(Error::Alloc(AllocError::NoCopyPath { .. }))) {
            return copied;
        }
    } else if to.device() == from.device() {
        let copied = copy_there(&to, &from);
        if !matches!(copied, Err(Error::Alloc(AllocError::CannotCast { .. }))) {
            return copied;
        }
    }
    if from.device().is_cpu() && !to.device().is_cpu() {
        return send(&to, from, source.cell());
    }
    let (mut bytes, layout) = fetch(&from)?;
    if to.device().is_cpu() {
        // SAFETY: the vector has the span of its layout, and the destination is inside its block, on the host
        // (`Record::check_reachable`), held by a write guard; its elements do not overlap (checked by the caller).
        unsafe { copy_or_cast(to.first(), &to.layout, to.dtype, first(&mut bytes), &layout, from.dtype) };
        return Ok(());
    }
    send_bytes(&to, bytes, &layout, from.dtype)
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
    let from = BlockElements::new(imp, &imp.layout, (block, bytes))?;
    if from.layout.is_empty() {
        return Ok(());
    }
    let (mut bytes, from_layout) = fetch(&from)?;
    // SAFETY: the vector has the span of its layout; the rest is guaranteed by the caller.
    unsafe { copy_or_cast(to, layout, imp.dtype, first(&mut bytes), &from_layout, imp.dtype) };
    Ok(())
}

/// Fills a tensor whose elements do not overlap. The caller holds a write guard.
pub(crate) fn fill(imp: &TensorImpl, block: &MemoryBlock, bytes: usize, value: Scalar) -> Result<()> {
    let to = BlockElements::new(imp, &imp.layout, (block, bytes))?;
    if to.layout.is_empty() {
        return Ok(());
    }
    let (pattern, size) = pattern(value, imp.dtype);
    StridedLoops::with((&to.layout, size), None, |loops| {
        // SAFETY: inside the block, which the write guard gives exclusively.
        unsafe { transfer::fill(block, to.start, &pattern[..size], loops) }
    })?
}

/// Copies or casts between elements on one device, which do not overlap.
fn copy_there(to: &BlockElements<'_>, from: &BlockElements<'_>) -> Result<()> {
    let sides = ((&to.layout, to.dtype.size()), Some((&from.layout, from.dtype.size())));
    StridedLoops::with(sides.0, sides.1, |loops| {
        // SAFETY: all elements are inside their blocks, which are distinct and held by the caller; those of
        // the destination do not overlap (checked by the caller).
        unsafe { copy_elements((to.run(), to.dtype), (from.run(), from.dtype), loops) }
    })?
}

/// Copies elements of a device to the host. Returns their bytes and the layout in them.
fn fetch(from: &BlockElements<'_>) -> Result<(Vec<u8>, Layout)> {
    // A layout that repeats elements spans fewer bytes than they would have when packed. A device without
    // room for them can still be read.
    let packed = (from.span > from.packed_bytes()).then(|| temporary(from.device(), from.packed_bytes()));
    let Some(Ok(packed)) = packed else {
        let mut bytes = host::zeros(from.span)?;
        // SAFETY: the vector is as long as the span, which is inside the block; a guard holds the block.
        unsafe { transfer(ByteRun::Host(&mut bytes), from.run(), from.span) }?;
        return Ok((bytes, from.layout.clone()));
    };
    let packed = BlockElements::whole(&packed, from.packed(), from.dtype)?;
    copy_there(&packed, from)?;
    let mut bytes = host::zeros(packed.span)?;
    // SAFETY: as above; the block is new.
    unsafe { transfer(ByteRun::Host(&mut bytes), packed.run(), packed.span) }?;
    Ok((bytes, packed.layout))
}

/// Copies elements of a storage of the host to a device.
fn send(to: &BlockElements<'_>, from: BlockElements<'_>, storage: &StorageCell) -> Result<()> {
    if from.is_like(&to.packed(), to.dtype) {
        let is_kept = storage.keeps_for_streams(from.block);
        let kept = ByteRun::Kept(from.block, from.start, storage);
        return send_run(to, if is_kept { kept } else { from.run() });
    }
    let (mut bytes, packed) = (host::zeros(to.packed_bytes())?, to.packed());
    // SAFETY: the vector has the span of the packed layout, which does not overlap itself; the source is
    // inside its block, on the host (`Record::check_reachable`), held by a read guard.
    unsafe {
        copy_or_cast(first(&mut bytes), &packed, to.dtype, from.first(), &from.layout, from.dtype);
    };
    send_run(to, ByteRun::Host(&mut bytes))
}

/// Copies elements in a vector to a device.
fn send_bytes(to: &BlockElements<'_>, mut from: Vec<u8>, layout: &Layout, dtype: DType) -> Result<()> {
    let packed = to.packed();
    if dtype == to.dtype && is_same_order(layout, &packed) {
        return send_run(to, ByteRun::Host(&mut from));
    }
    let mut bytes = host::zeros(to.packed_bytes())?;
    // SAFETY: both vectors have the spans of their layouts; the packed one does not overlap itself.
    unsafe { copy_or_cast(first(&mut bytes), &packed, to.dtype, first(&mut from), layout, dtype) };
    send_run(to, ByteRun::Host(&mut bytes))
}

/// Copies packed elements of the host to a device, and unpacks them there.
fn send_run(to: &BlockElements<'_>, from: ByteRun<'_>) -> Result<()> {
    if to.is_dense() {
        // SAFETY: the source has the elements in the layout of the destination, which spans their bytes; a
        // write guard holds the block.
        return unsafe { transfer(to.run(), from, to.span) };
    }
    let Ok(packed) = temporary(to.device(), to.packed_bytes()) else {
        // Run by run: slow, but without memory of the device.
        let (size, packed) = (to.dtype.size(), to.packed());
        return StridedLoops::with((&to.layout, size), Some((&packed, size)), |loops| {
            // SAFETY: the source has the packed elements; a write guard holds the block.
            unsafe { copy_elements((to.run(), to.dtype), (from, to.dtype), loops) }
        })?;
    };
    let packed = BlockElements::whole(&packed, to.packed(), to.dtype)?;
    // SAFETY: the source has the packed elements; the block is new.
    unsafe { transfer(packed.run(), from, packed.span) }?;
    copy_there(to, &packed)
}

/// Allocates memory of a device for use on its current stream.
fn temporary(device: Device, bytes: usize) -> Result<MemoryBlock> {
    Context::with_current(|context| {
        let request = Request::new(bytes).kind(MemoryKind::Workspace).align(Alignment::PLANNED);
        Ok(context.allocate(device, &request.stream(context.stream(device)))?.share())
    })
}

/// Returns `true` if two layouts of one shape have their elements at the same places. The strides of
/// dimensions of size 1 are never used.
fn is_same_order(one: &Layout, other: &Layout) -> bool {
    let strides = one.strides().iter().zip(other.strides().iter());
    one.shape().iter().zip(strides).all(|(&size, (one, other))| size == 1 || one == other)
}

/// Returns the layout with an offset of zero.
fn from_zero(layout: &Layout) -> Result<Layout> {
    Ok(Layout::new(layout.shape().clone(), layout.strides().clone(), 0)?)
}

fn first(bytes: &mut [u8]) -> NonNull<u8> {
    NonNull::from(bytes).cast()
}
