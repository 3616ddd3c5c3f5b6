//! How a tensor is to be made.

use crate::storage::Memory;
use orlop_alloc::{AllocatorRef, Context, Tag};
use orlop_core::{Alignment, DType, Device, MemoryFormat, MemoryKind, StreamId};

/// What to make: dtype, device, kind, memory format, alignment and more, each with a default. A dtype alone will do where
/// options are asked for.
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
        Self { dtype: DType::F32, format: MemoryFormat::Contiguous, memory: Memory::new() }
    }

    /// Elements of this type.
    #[inline]
    pub const fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
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
        self
    }

    /// With the dimensions in this order in memory.
    pub const fn memory_format(mut self, format: MemoryFormat) -> Self {
        self.format = format;
        self
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
