//! [`TensorOptions`]: the properties of a new tensor.

use super::{MemoryRequest, TensorImpl};
use crate::error::Result;
use orlop_alloc::{Allocator as _, AllocatorRef, Tag};
use orlop_context::Context;
use orlop_core::{Alignment, DType, Device, MemoryFormat, MemoryKind, StreamId};

/// The properties of a new tensor: dtype, device, kind, memory format, alignment and more, each with a
/// default. A dtype alone converts to options. For functions with an existing tensor
/// ([`Tensor::to`](crate::Tensor::to), [`Tensor::empty_like_with`](crate::Tensor::empty_like_with)), unset
/// properties are those of the tensor.
///
/// ```
/// use orlop_core::{DType, MemoryKind};
/// use orlop_tensor::{Tensor, TensorOptions};
///
/// let options = TensorOptions::new().dtype(DType::BF16).kind(MemoryKind::Persistent);
/// let weights = Tensor::empty([256, 128], options)?;
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
    pub(crate) memory: MemoryRequest<'a>,
    named: ExplicitOptions,
}

/// Which properties were set, even to their defaults: with an existing tensor, the others are the tensor's.
#[derive(Debug, Clone, Copy)]
struct ExplicitOptions {
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
    /// Creates the default options: `float32`, row-major, on the context's default device.
    #[inline]
    pub const fn new() -> Self {
        let named = ExplicitOptions { dtype: false, format: false, kind: false };
        Self { dtype: DType::F32, format: MemoryFormat::Contiguous, memory: MemoryRequest::new(), named }
    }

    /// Sets the dtype.
    #[inline]
    pub const fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self.named.dtype = true;
        self
    }

    /// Sets the device. The default is the context's default device.
    pub const fn device(mut self, device: Device) -> Self {
        self.memory.device = Some(device);
        self
    }

    /// Sets the memory kind.
    pub const fn kind(mut self, kind: MemoryKind) -> Self {
        self.memory.request.kind = kind;
        self.named.kind = true;
        self
    }

    /// Sets the memory format.
    pub const fn memory_format(mut self, format: MemoryFormat) -> Self {
        self.format = format;
        self.named.format = true;
        self
    }

    /// Takes unset properties from a tensor: dtype, device, kind, and strides if they are dense. A host-only
    /// kind becomes the default kind on another device.
    pub(crate) fn or_as(mut self, imp: &TensorImpl) -> Self {
        let storage = imp.storage();
        if !self.named.dtype {
            self.dtype = imp.dtype;
        }
        if !self.named.format {
            self.format = MemoryFormat::Preserve;
        }
        // An allocator determines its device.
        let device = self.memory.allocator.map(|allocator| allocator.device()).or(self.memory.device);
        let device = device.unwrap_or_else(|| storage.device());
        self.memory.device = Some(device);
        if !self.named.kind {
            let kind = storage.memory_kind();
            self.memory.request.kind = if kind.check_on(device).is_ok() { kind } else { MemoryKind::Default };
        }
        self
    }

    /// Returns `true` if a tensor's memory has the properties that were set: kind, device, allocator and
    /// alignment.
    pub(crate) fn is_memory_of(&self, imp: &TensorImpl) -> Result<bool> {
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
        // The address of its first element counts, which differs from the storage's for parts and offsets.
        let offset = imp.layout.offset().wrapping_mul(imp.dtype.size()).wrapping_add(storage.start());
        let address = block.address().wrapping_add(offset);
        Ok(from_there && (!memory.align_chosen || memory.request.align.is_aligned(address)))
    }

    /// Sets the alignment. The default is 64 bytes on the CPU and 256 bytes elsewhere.
    pub const fn align(mut self, align: Alignment) -> Self {
        self.memory.request.align = align;
        self.memory.align_chosen = true;
        self
    }

    /// Requests zeroed memory.
    pub const fn zeroed(mut self) -> Self {
        self.memory.request.zeroed = true;
        self
    }

    /// Sets the tag that reports show.
    pub const fn tag(mut self, tag: Tag) -> Self {
        self.memory.request.tag = tag;
        self
    }

    /// Sets the stream that uses the memory. The default is the context's current one.
    pub const fn stream(mut self, stream: StreamId) -> Self {
        self.memory.request.stream = stream;
        self.memory.stream_chosen = true;
        self
    }

    /// Sets the context. The default is the thread's current one.
    pub const fn context(mut self, context: &'a Context) -> Self {
        self.memory.context = Some(context);
        self
    }

    /// Sets an allocator, such as an arena, and its device, instead of a context's.
    pub const fn allocator(mut self, allocator: &'a AllocatorRef) -> Self {
        self.memory.allocator = Some(allocator);
        self
    }
}
