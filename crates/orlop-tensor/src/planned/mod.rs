//! Planned memory: tensors in one block, each at its place and during its time.
//!
//! A static plan gives buffers the same bytes at different times. [`PlannedMemory`] has one tensor per value
//! of the plan, prepared once, and a clock. A tensor is lent while the clock is inside its lifetime, as a
//! reference that ends before the clock moves on. So nothing is created, counted or locked in a step: moving
//! the clock only checks that the tensors whose time is over are not held any more.
//!
//! ```
//! use orlop_alloc::Request;
//! use orlop_context::Context;
//! use orlop_core::{DType, Device, Layout, Shape};
//! use orlop_tensor::planned::{PlannedMemory, PlannedPart, PlannedTensor};
//!
//! let layout = Layout::contiguous(Shape::new(&[64])?);
//! let part = |offset, lifetime| {
//!     PlannedPart::new(offset, 256, [PlannedTensor::new(layout.clone(), DType::F32, lifetime)])
//! };
//! // The third gets the bytes of the first.
//! let parts = [part(0, 0..2), part(256, 1..3), part(0, 2..4)];
//! let block = Context::new().allocate(Device::CPU, &Request::new(512))?;
//! let mut memory = PlannedMemory::new(block, &parts)?;
//!
//! memory.tensor(0)?.fill_(1.0)?;
//! memory.advance(1)?;
//! memory.tensor(1)?.copy_(memory.tensor(0)?)?;
//! assert!(memory.tensor(2).is_err());
//! memory.advance(2)?;
//! memory.tensor(2)?.copy_(memory.tensor(1)?)?;
//! assert!(memory.tensor(0).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What cannot go wrong
//!
//! Two tensors that share bytes are never accessible at once: their lifetimes do not overlap, which
//! [`PlannedMemory::new`] checks. References are gone when the clock moves, because that takes `&mut self`.
//! Clones and views that were made of a tensor and are still held then are *revoked*: every access through
//! them fails with [`Error::Unbound`](crate::Error::Unbound). If that is impossible (one of them is being
//! read or written, an address or an export is in use), the clock does not move, and the call can be
//! repeated. Clones that are held when the whole memory is dropped keep it alive.
//!
//! Tensors in one part share its storage, for views and for outputs that are written over an input: they are
//! borrowed as one, and revoked as one.

mod error;
#[cfg(all(test, not(loom)))]
mod tests;

pub use self::error::PlannedError;

use crate::storage::Storage;
use crate::tensor::Tensor;
use orlop_alloc::{Block, MemoryBlock};
use orlop_core::{Alignment, DType, Device, Layout, MemoryKind};
use orlop_plan::{Buffer, Plan, ProblemBuilder, verify};
use std::ops::Range;

/// A tensor of planned memory: where in its part, and when.
#[derive(Debug, Clone)]
pub struct PlannedTensor {
    layout: Layout,
    dtype: DType,
    lifetime: Range<u64>,
}

impl PlannedTensor {
    /// Describes a tensor with this layout, whose offset counts from the start of the part. It is lent while
    /// the clock is in `lifetime`. A lifetime that ends at `u64::MAX` never ends: the tensor keeps its bytes
    /// when the clock starts again.
    #[must_use]
    pub fn new(layout: Layout, dtype: DType, lifetime: Range<u64>) -> Self {
        Self { layout, dtype, lifetime }
    }
}

/// A part of planned memory, with the tensors over it. It is live from the first start to the last end of
/// their lifetimes.
#[derive(Debug, Clone)]
pub struct PlannedPart {
    offset: usize,
    bytes: usize,
    tensors: Vec<PlannedTensor>,
}

impl PlannedPart {
    /// Describes the part `offset .. offset + bytes` of the block.
    #[must_use]
    pub fn new(offset: usize, bytes: usize, tensors: impl Into<Vec<PlannedTensor>>) -> Self {
        Self { offset, bytes, tensors: tensors.into() }
    }

    fn lifetime(&self) -> Range<u64> {
        let starts = self.tensors.iter().map(|tensor| tensor.lifetime.start);
        let ends = self.tensors.iter().map(|tensor| tensor.lifetime.end);
        starts.min().unwrap_or(0)..ends.max().unwrap_or(u64::MAX)
    }
}

/// The end of a lifetime that never ends.
const NEVER: u64 = u64::MAX;

/// A prepared tensor.
#[derive(Debug)]
struct Slot {
    tensor: Tensor,
    lifetime: Range<u64>,
    part: usize,
}

/// A block of memory with the tensors of a plan; see the [module](self).
#[derive(Debug)]
pub struct PlannedMemory {
    root: MemoryBlock,
    /// The tensors, those of a part one after the other.
    slots: Box<[Slot]>,
    /// For each part, the slots of its tensors.
    parts: Box<[Range<usize>]>,
    /// The slots whose lifetimes end, by time.
    ends: Box<[usize]>,
    /// The number of slots at the start of `ends` whose time is over.
    ended: usize,
    now: u64,
}

impl PlannedMemory {
    /// Divides a block into these parts. Tensors are numbered in order of the parts, and within them. The
    /// clock is at 0.
    ///
    /// # Errors
    ///
    /// [`PlannedError::Plan`] if a lifetime is empty, or parts that share bytes are live at once;
    /// [`PlannedError::OutsideBlock`], [`PlannedError::OutsidePart`], [`PlannedError::Misaligned`]. The block
    /// is dropped.
    pub fn new(block: Block, parts: &[PlannedPart]) -> Result<Self, PlannedError> {
        check(parts, block.len(), block.align())?;
        Ok(Self::of_checked(block.share(), parts))
    }

    fn of_checked(root: MemoryBlock, parts: &[PlannedPart]) -> Self {
        let (mut slots, mut ranges) = (Vec::new(), Vec::with_capacity(parts.len()));
        for (index, part) in parts.iter().enumerate() {
            // SAFETY: 1. checked. 2. parts that share bytes are not live at once (checked). The handles can
            // be used while the clock is inside of the part's lifetime: `tensor` lends no others, and
            // `advance` revokes what is left of them. Nothing else has access to the block.
            let storage = unsafe { Storage::planned(&root, part.offset, part.bytes) };
            let first = slots.len();
            slots.extend(part.tensors.iter().map(|tensor| Slot {
                tensor: Tensor::new(storage.clone(), tensor.layout.clone(), tensor.dtype),
                lifetime: tensor.lifetime.clone(),
                part: index,
            }));
            ranges.push(first..slots.len());
        }
        let mut ends: Vec<usize> =
            (0..slots.len()).filter(|&slot| slots[slot].lifetime.end != NEVER).collect();
        ends.sort_by_key(|&slot| slots[slot].lifetime.end);
        Self { root, slots: slots.into(), parts: ranges.into(), ends: ends.into(), ended: 0, now: 0 }
    }

    /// Moves the clock to `step`, and ends the tensors whose lifetimes are over by then. Clones and views of
    /// them that are still held are revoked.
    ///
    /// # Errors
    ///
    /// [`PlannedError::Backwards`]; [`PlannedError::InUse`] if a tensor cannot be ended: the clock then has
    /// not moved.
    pub fn advance(&mut self, step: u64) -> Result<(), PlannedError> {
        if step < self.now {
            return Err(PlannedError::Backwards { step, now: self.now });
        }
        self.end_until(step)?;
        self.now = step;
        Ok(())
    }

    /// Ends all tensors but those whose lifetimes never end, and sets the clock to 0.
    ///
    /// # Errors
    ///
    /// [`PlannedError::InUse`]; the clock then has not moved.
    pub fn restart(&mut self) -> Result<(), PlannedError> {
        self.end_until(NEVER)?;
        (self.ended, self.now) = (0, 0);
        Ok(())
    }

    #[inline]
    fn end_until(&mut self, step: u64) -> Result<(), PlannedError> {
        while let Some(&slot) = self.ends.get(self.ended)
            && self.slots[slot].lifetime.end <= step
        {
            if !self.is_settled(slot) {
                self.revoke(slot)?;
            }
            self.ended += 1;
        }
        Ok(())
    }

    /// Returns `true` if nothing but the prepared tensors is left of what was done with a tensor.
    #[inline]
    fn is_settled(&mut self, slot: usize) -> bool {
        let Slot { tensor, part, .. } = &self.slots[slot];
        let handles = self.parts[*part].len();
        // SAFETY: each tensor of the part has one handle, and this function borrows them exclusively.
        tensor.has_one_handle() && tensor.imp().is_ok_and(|imp| unsafe { imp.storage().is_settled(handles) })
    }

    #[cold]
    #[inline(never)]
    fn revoke(&mut self, slot: usize) -> Result<(), PlannedError> {
        let range = self.parts[self.slots[slot].part].clone();
        let in_use = |source| PlannedError::InUse { tensor: slot, source };
        let storage = self.slots[slot].tensor.imp().map_err(in_use)?.storage().clone();
        // A clone of a tensor does not count a handle of the storage.
        let cloned = self.slots[range.clone()].iter().any(|slot| !slot.tensor.has_one_handle());
        let handles = if cloned { 0 } else { range.len() + 1 };
        // SAFETY: each tensor of the part has one handle and `storage` is one, and this function borrows them
        // exclusively. (With a clone of a tensor, none of the handles is the caller's alone: no count is 0.)
        let renewed = unsafe { storage.revoke(handles) }.map_err(in_use)?;
        for slot in &mut self.slots[range] {
            if let Ok(imp) = slot.tensor.imp() {
                slot.tensor = Tensor::new(renewed.clone(), imp.layout.clone(), imp.dtype);
            }
        }
        Ok(())
    }

    /// Returns a tensor.
    ///
    /// # Errors
    ///
    /// [`PlannedError::NotLive`] if the clock is not inside its lifetime; [`PlannedError::Unknown`].
    #[inline]
    pub fn tensor(&self, tensor: usize) -> Result<&Tensor, PlannedError> {
        match self.slots.get(tensor) {
            Some(slot) if slot.lifetime.contains(&self.now) => Ok(&slot.tensor),
            other => Err(self.refuse(tensor, other)),
        }
    }

    #[cold]
    fn refuse(&self, tensor: usize, slot: Option<&Slot>) -> PlannedError {
        match slot {
            Some(slot) => PlannedError::NotLive { tensor, lifetime: slot.lifetime.clone(), now: self.now },
            None => PlannedError::Unknown { tensor, tensors: self.slots.len() },
        }
    }

    /// Replaces the parts, in the same block. The clock is at 0 afterwards.
    ///
    /// # Errors
    ///
    /// Those of [`PlannedMemory::new`]; [`PlannedError::InUse`] if a tensor, also one whose lifetime never
    /// ends, is used. The parts are then as before.
    pub fn divide(&mut self, parts: &[PlannedPart]) -> Result<(), PlannedError> {
        check(parts, self.root.requested, self.root.align)?;
        self.restart()?;
        for slot in 0..self.slots.len() {
            if self.slots[slot].lifetime.end == NEVER && !self.is_settled(slot) {
                self.revoke(slot)?;
            }
        }
        let root = self.root.clone();
        *self = Self::of_checked(root, parts);
        Ok(())
    }

    /// Returns the time of the clock.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Returns the number of tensors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns `true` if there are no tensors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the bytes of the block.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.root.requested
    }

    /// Returns the alignment of the block.
    #[must_use]
    pub fn align(&self) -> Alignment {
        self.root.align
    }

    /// Returns the device of the memory.
    #[must_use]
    pub fn device(&self) -> Device {
        self.root.device
    }

    /// Returns the kind of the memory.
    #[must_use]
    pub fn memory_kind(&self) -> MemoryKind {
        self.root.kind
    }
}

/// Checks that parts are inside a block of `bytes` bytes with this alignment, tensors inside their parts and
/// aligned, and that parts which share bytes are not live at once.
fn check(parts: &[PlannedPart], bytes: usize, align: Alignment) -> Result<(), PlannedError> {
    let mut problem = ProblemBuilder::new();
    let mut tensors = 0;
    for (index, part) in parts.iter().enumerate() {
        if part.offset.checked_add(part.bytes).is_none_or(|end| end > bytes) {
            let range = part.offset..part.offset.saturating_add(part.bytes);
            return Err(PlannedError::OutsideBlock { part: index, range, bytes });
        }
        for tensor in &part.tensors {
            let refused = |source| PlannedError::OutsidePart { tensor: tensors, source };
            tensor.layout.check_within(part.bytes, tensor.dtype.size()).map_err(refused)?;
            let needed = tensor.dtype.alignment();
            if part.bytes > 0 && (needed > align || !needed.is_aligned(part.offset)) {
                return Err(PlannedError::Misaligned { tensor: tensors, offset: part.offset, align: needed });
            }
            if tensor.lifetime.is_empty() {
                return Err(PlannedError::EmptyLifetime {
                    tensor: tensors,
                    lifetime: tensor.lifetime.clone(),
                });
            }
            tensors += 1;
        }
        problem.push(Buffer::unaligned(part.lifetime(), part.bytes as u64)).map_err(PlannedError::problem)?;
    }
    let problem = problem.finish();
    let offsets = parts.iter().map(|part| part.offset as u64).collect();
    let plan = Plan::new(&problem, offsets)?;
    Ok(verify(&problem, &plan)?)
}
