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
//! them fails with [`Error::Unbound`]. If that is impossible (one of them is being read or written, an
//! address or an export is in use), the clock does not move, and the call can be repeated. Clones that are
//! held when the whole memory is dropped keep it alive.
//!
//! # Streams
//!
//! On a device, a part is like a block that is allocated when its lifetime begins and freed when it ends, on
//! the stream of the whole block. The first use by another stream waits for that stream
//! ([`MemoryBlock::acquire_for`], which the copies and fills of tensors call), and when the lifetime ends,
//! that stream waits for all others that were recorded. So work on the next part in the same bytes comes
//! after work on this one, whichever streams do it, and the host waits for none. While one stream does all
//! the work, and the block was allocated on it, there is nothing to wait for. When the memory is dropped, the
//! block is reused after the streams that used its parts.
//!
//! Kernels of the program must be announced, as with every tensor: [`MemoryBlock::acquire_for`] of
//! [`Storage::block`]; [`Tensor::record_stream`] if they are ordered after the block's stream otherwise. For
//! host memory that devices use (pinned), and if the allocator does not wait for streams, the host waits for
//! each copy.
//!
//! # Several tensors in one part
//!
//! They share its storage, for views and for outputs that are written over an input: they are borrowed as
//! one, and revoked as one. So the end of one of them revokes nothing while another one that was live with it
//! goes on: clones and views of an output in place outlive its input. A clone of the input that is still held
//! then sees the output, until the part ends.

mod check;
mod clock;
mod error;
mod handles;
mod part;
mod sanitizer;
#[cfg(all(test, not(loom)))]
mod tests;

pub use self::error::{PlannedError, StrayWrite, Unsanitizable};
pub use self::part::{PlannedPart, PlannedTensor};

use self::check::check;
use self::handles::LentSlots;
use self::sanitizer::Sanitizer;
use crate::error::{Error, Revocation, RevokedBy};
use crate::storage::Storage;
use crate::tensor::Tensor;
use orlop_alloc::{Block, MemoryBlock, engine_support::DeviceOps};
use orlop_context::Context;
use orlop_core::{Alignment, Device, MemoryKind};
use std::ops::Range;
use std::sync::Arc;

/// The end of a lifetime that never ends.
const NEVER: u64 = u64::MAX;

/// Returns `true` if the lifetime has begun and is not over.
#[inline]
fn is_live(lifetime: &Range<u64>, now: u64) -> bool {
    lifetime.start <= now && (now < lifetime.end || lifetime.end == NEVER)
}

/// A prepared tensor.
#[derive(Debug)]
struct Slot {
    tensor: Tensor,
    lifetime: Range<u64>,
    part: usize,
    name: Option<Box<str>>,
}

/// A part with its slots.
#[derive(Debug)]
struct Part {
    bytes: Range<usize>,
    lifetime: Range<u64>,
    /// The slots of its tensors.
    slots: Range<usize>,
    /// `None` if they are few: all of them are searched for clones.
    lent: Option<Box<LentSlots>>,
}

/// A block of memory with the tensors of a plan; see the [module](self).
#[derive(Debug)]
pub struct PlannedMemory {
    root: MemoryBlock,
    /// The tensors, those of a part one after the other.
    slots: Box<[Slot]>,
    parts: Box<[Part]>,
    /// The ends of lifetimes with their slots, by time.
    ends: Box<[(u64, usize)]>,
    /// The number of slots at the start of `ends` whose time is over.
    ended: usize,
    /// The same after the present move of the clock, if that is possible.
    settled: usize,
    now: u64,
    sanitizer: Option<Box<Sanitizer>>,
    /// Whether streams use the memory without the host waiting for them.
    is_streamed: bool,
    /// Those of the context in which it was created.
    ops: Option<Arc<dyn DeviceOps>>,
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
        let mut memory = Self::of_checked(block.share(), parts);
        if memory.is_streamed {
            memory.ops = Context::with_current(|now| now.ops(memory.root.device)).ok();
        }
        // Where that is impossible, there is no search.
        drop(memory.sanitize(cfg!(debug_assertions)));
        Ok(memory)
    }

    fn of_checked(root: MemoryBlock, parts: &[PlannedPart]) -> Self {
        let (mut slots, mut prepared) = (Vec::new(), Vec::with_capacity(parts.len()));
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
                name: tensor.name.clone(),
            }));
            let bytes = part.offset..part.offset + part.bytes;
            let lent = LentSlots::of(&slots, first).map(Box::new);
            prepared.push(Part { bytes, lifetime: part.lifetime(), slots: first..slots.len(), lent });
        }
        let is_streamed = !root.device.is_cpu() && root.honours_streams();
        let ends = slots.iter().enumerate().map(|(slot, Slot { lifetime, .. })| (lifetime.end, slot));
        let mut ends: Vec<_> = ends.filter(|&(end, _)| end != NEVER).collect();
        ends.sort_unstable();
        Self {
            root,
            slots: slots.into(),
            parts: prepared.into(),
            ends: ends.into(),
            ended: 0,
            settled: 0,
            now: 0,
            sanitizer: None,
            is_streamed,
            ops: None,
        }
    }

    /// Starts or stops the search for stray writes, which misses one kind: a write into a tensor between the
    /// time when a step first lends it and the end of that step, if the same step also writes that tensor.
    ///
    /// A stray write is what a kernel does with an address that it has kept, or beyond the end of its buffer:
    /// it changes bytes of a tensor that no step writes, or not this step. The bytes of a tensor must not
    /// change between two steps that lend it, nor until a step lends it, nor in a step that only reads it,
    /// and those of no live tensor must never change. The search takes a copy of the memory, and the time to
    /// compare it in each step. It is on in builds with debug assertions.
    ///
    /// An address is for the step that lends its tensor, and its use is over when the clock moves, unless the
    /// tensor never ends. One for writing comes from [`Storage::as_mut_ptr`] or a write guard: a step in
    /// which neither is acquired only reads the tensor. A stray write is reported by the next call that moves
    /// the clock, once, as [`PlannedError::StrayWrite`].
    ///
    /// # Errors
    ///
    /// [`Unsanitizable`] if the search cannot be started: it is off then.
    pub fn sanitize(&mut self, on: bool) -> Result<(), Unsanitizable> {
        self.sanitizer = None;
        if on {
            self.sanitizer = Some(Box::new(Sanitizer::new(self)?));
        }
        Ok(())
    }

    /// Orders the next parts in the bytes of this one after the streams that used it.
    #[cold]
    #[inline(never)]
    fn join_streams(&mut self, slot: usize) -> Result<(), PlannedError> {
        let part = self.slots[slot].part;
        // Otherwise another tensor ends now, too, and is the last.
        if !self.is_part_settled(part) {
            return Ok(());
        }
        let in_use = |source| PlannedError::InUse { tensor: slot, source };
        let (storage, device) = (self.slots[slot].tensor.imp().map_err(in_use)?.storage(), self.root.device);
        let ops = || match &self.ops {
            Some(ops) => Ok(Arc::clone(ops)),
            None => Ok(Context::with_current(|now| now.ops(device))?),
        };
        // SAFETY: the part is settled, so all its handles are the prepared ones, which this function borrows
        // exclusively.
        unsafe { storage.join_streams(ops) }.map_err(in_use)
    }

    /// Takes the memory of clones and views of the tensors in a part. `slot` is the one that ends it.
    #[cold]
    #[inline(never)]
    fn revoke(&mut self, slot: usize, by: RevokedBy) -> Result<(), PlannedError> {
        let range = self.parts[self.slots[slot].part].slots.clone();
        let in_use = |source| PlannedError::InUse { tensor: slot, source };
        let storage = self.slots[slot].tensor.imp().map_err(in_use)?.storage().clone();
        // A clone of a tensor does not count a handle of the storage.
        let cloned = self.slots[range.clone()].iter().any(|slot| !slot.tensor.has_one_handle());
        let handles = if cloned { 0 } else { range.len() + 1 };
        let revocation = || {
            let Slot { name, lifetime, .. } = &self.slots[slot];
            let name = name.as_ref().map_or_else(|| format!("tensor {slot}"), |name| format!("\"{name}\""));
            let last_step = (lifetime.end != NEVER).then(|| lifetime.end - 1);
            Revocation { tensor: name.into(), last_step, by }
        };
        // SAFETY: each tensor of the part has one handle and `storage` is one, and this function borrows them
        // exclusively. (With a clone of a tensor, none of the handles is the caller's alone: no count is 0.)
        let renewed = unsafe { storage.revoke(handles, revocation) }.map_err(in_use)?;
        self.prepare(range, &renewed);
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
            Some(slot) if is_live(&slot.lifetime, self.now) => {
                if let Some(sanitizer) = &self.sanitizer {
                    sanitizer.note(self, slot.part);
                }
                Ok(&slot.tensor)
            }
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

    /// Gives the memory of a live tensor to a storage that is [unbound](Storage::unbind): the tensors over it
    /// have these bytes until the lifetime of the part is over, and are unbound again then. The tensor that
    /// [`tensor`](Self::tensor) lends is over the same storage. If the planned memory is dropped before, the
    /// storage keeps them.
    ///
    /// # Errors
    ///
    /// [`PlannedError::NotLive`]; [`PlannedError::InUse`] if a clone or a view of the tensor is held, or the
    /// storage is bound, on another device, a part, or being accessed. Both are unchanged then.
    pub fn bind(&mut self, tensor: usize, storage: &Storage) -> Result<(), PlannedError> {
        let in_use = |source| PlannedError::InUse { tensor, source };
        let part = match self.slots.get(tensor) {
            Some(slot) if is_live(&slot.lifetime, self.now) => slot.part,
            other => return Err(self.refuse(tensor, other)),
        };
        if !self.is_part_settled(part) {
            return Err(in_use(Error::MemoryInUse));
        }
        let range = self.parts[part].slots.clone();
        // Before the tensor has the bytes: from then on other threads may write them.
        if let Some(sanitizer) = &self.sanitizer {
            sanitizer.note(self, part);
        }
        let planned = self.slots[tensor].tensor.imp().map_err(in_use)?.storage();
        // SAFETY: the part is settled, so all its handles are the prepared ones, which this function borrows
        // exclusively.
        unsafe { planned.move_planned(storage) }.map_err(in_use)?;
        self.prepare(range, storage);
        Ok(())
    }

    /// Makes the tensors of a part anew, over another storage.
    fn prepare(&mut self, slots: Range<usize>, storage: &Storage) {
        if let (Some(sanitizer), Some(first)) = (&mut self.sanitizer, self.slots.get(slots.start)) {
            sanitizer.renew(first.part);
        }
        for slot in &mut self.slots[slots] {
            if let Ok(imp) = slot.tensor.imp() {
                slot.tensor = Tensor::new(storage.clone(), imp.layout.clone(), imp.dtype);
            }
        }
    }

    /// Returns the number of writes to the storage of a part.
    fn version_of(&self, part: usize) -> Option<u64> {
        Some(self.slots[self.parts[part].slots.clone()].first()?.tensor.version())
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
