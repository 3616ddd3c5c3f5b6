//! How a tensor is to be made.

use super::TensorImpl;
use crate::error::Result;
use crate::storage::Memory;
use orlop_alloc::{Allocator as _, AllocatorRef, Context, Tag};
use orlop_core::{Alignment, DType, Device, MemoryFormat, MemoryKind, StreamId};

/// What to make: dtype, device, kind, memory format, alignment and more, each with a default. A dtype alone will do where
/// options are asked for. Where there is a tensor to go by ([`Tensor::to`](crate::Tensor::to),
/// [`Tensor::empty_like_with`](crate::Tensor::empty_like_with)), what is not named is as that has it.
///
/// ```
/// use orlop_core::{DType, MemoryKind};
/// use orlop_tensor::{Tensor, TensorOptions};
///
/// let weights = Tensor::empty([256, 128], TensorOptions::new().dtype(DType::BF16).kind(MemoryKind::Persistent))?;
/// assert_eq!((weights.nbytes(), weights.memory_kind()), (65536, MemoryKind::Persistent));
/// let plain = Tensor::empty([256, 128], DType::F32)?;
/// assert_eq!(plain.memory_kind(), MemoryKind::Default);
/// # Ok::<(), orlop_tensor::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct TensorOptions<'a> {
    pub(crate) dtype: DType,
    pub(crate) format: MemoryFormat,
    pub(crate) memory: Memory<'a>,
    named: Named,
}

/// What was named, though it may be what is usual: where there is a tensor to go by, all else is as that has it.
#[derive(Debug, Clone, Copy)]
struct Named {
    dtype: bool,
    format: bool,
    kind: bool,
}

impl Default for TensorOptions<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl From<DType> for TensorOptions<'_> {
    #[inline]
    fn from(dtype: DType) -> Self {
        Self::new().dtype(dtype)
    }
}

impl<'a> TensorOptions<'a> {
    /// Of `float32`, row-major, on the context's default device.
    #[inline]
    pub const fn new() -> Self {
        let named = Named { dtype: false, format: false, kind: false };
        Self { dtype: DType::F32, format: MemoryFormat::Contiguous, memory: Memory::new(), named }
    }

    /// Elements of this type.
    #[inline]
    pub const fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self.named.dtype = true;
        self
    }

    /// On this device; else on the context's default.
    pub const fn device(mut self, device: Device) -> Self {
        self.memory.device = Some(device);
        self
    }

    /// For this use.
    pub const fn kind(mut self, kind: MemoryKind) -> Self {
        self.memory.request.kind = kind;
        self.named.kind = true;
        self
    }

    /// With the dimensions in this order in memory.
    pub const fn memory_format(mut self, format: MemoryFormat) -> Self {
        self.format = format;
        self.named.format = true;
        self
    }

    /// The same with what was not named as a tensor has it: dtype, device, kind, and strides where they are dense. A kind that
    /// cannot be on another device becomes the default one.
    pub(super) fn or_as(mut self, imp: &TensorImpl) -> Self {
        let storage = imp.storage();
        if !self.named.dtype {
            self.dtype = imp.dtype;
        }
        if !self.named.format {
            self.format = MemoryFormat::Preserve;
        }
        // An allocator is on a device of its own.
        let device = self.memory.allocator.map(|allocator| allocator.device()).or(self.memory.device);
        let device = device.unwrap_or_else(|| storage.device());
        self.memory.device = Some(device);
        if !self.named.kind {
            let kind = storage.memory_kind();
            self.memory.request.kind = if kind.check_on(device).is_ok() { kind } else { MemoryKind::Default };
        }
        self
    }

    /// Whether a tensor is in the memory that was named: its kind, its device, its allocator and its alignment.
    pub(super) fn is_memory_of(&self, imp: &TensorImpl) -> Result<bool> {
        let (memory, storage) = (&self.memory, imp.storage());
        let there = memory.device.is_none_or(|device| device == storage.device());
        if !there || memory.request.kind != storage.memory_kind() {
            return Ok(false);
        }
        if memory.allocator.is_none() && !memory.align_chosen {
            return Ok(true);
        }
        let block = storage.block()?;
        let from_there = memory.allocator.is_none_or(|allocator| block.is_from(allocator));
        // Where its first element is, which a part of a storage has elsewhere.
        let offset = imp.layout.offset().wrapping_mul(imp.dtype.size()).wrapping_add(storage.start());
        let address = block.address().wrapping_add(offset);
        Ok(from_there && (!memory.align_chosen || memory.request.align.is_aligned(address)))
    }

    /// At a multiple of this; else of 64 bytes on the CPU and of 256 elsewhere (M4).
    pub const fn align(mut self, align: Alignment) -> Self {
        self.memory.request.align = align;
        self.memory.align_chosen = true;
        self
    }

    /// With every byte zero (M5).
    pub const fn zeroed(mut self) -> Self {
        self.memory.request.zeroed = true;
        self
    }

    /// On behalf of this tag, which reports name.
    pub const fn tag(mut self, tag: Tag) -> Self {
        self.memory.request.tag = tag;
        self
    }

    /// For work on this stream; else on the context's current one.
    pub const fn stream(mut self, stream: StreamId) -> Self {
        self.memory.request.stream = stream;
        self.memory.stream_chosen = true;
        self
    }

    /// From this context; else from the thread's current one.
    pub const fn context(mut self, context: &'a Context) -> Self {
        self.memory.context = Some(context);
        self
    }

    /// From this allocator, such as an arena (L17), and on its device, instead of a context's.
    pub const fn allocator(mut self, allocator: &'a AllocatorRef) -> Self {
        self.memory.allocator = Some(allocator);
        self
    }
}
