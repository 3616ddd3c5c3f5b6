//! [`BufferSpec`]: what a buffer holds, and where.

use crate::Result;
use orlop_core::{Alignment, DType, Device, MemoryKind, Shape};
use orlop_tensor::IntoShape;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A buffer of a plan: the number that [`PlanBuilder`](crate::PlanBuilder) gave it.
///
/// A plan for other shapes has the same ids: it declares the same buffers in the same order, with the same
/// names, dtypes, devices and memory kinds. Any other plan refuses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId {
    pub(crate) index: usize,
    pub(crate) declarations: Declarations,
}

impl BufferId {
    /// Returns the number of buffers that were declared before this one.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index
    }
}

/// A fingerprint of a buffer and of all that were declared before it, whatever their shapes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Declarations(u64);

impl Declarations {
    /// Returns the fingerprint with one more buffer.
    pub(crate) fn and(self, spec: &BufferSpec) -> Self {
        let mut hasher = DefaultHasher::new();
        (self, &spec.name, spec.dtype, spec.device, spec.kind).hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// What a buffer holds, and where: a row-major tensor with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct BufferSpec {
    pub(crate) name: Box<str>,
    pub(crate) shape: Shape,
    pub(crate) dtype: DType,
    pub(crate) device: Device,
    pub(crate) kind: MemoryKind,
    pub(crate) align: Alignment,
}

impl BufferSpec {
    /// Describes a tensor on the CPU, of [`MemoryKind::Workspace`], aligned to 256 bytes. Names are for
    /// reports and errors, and need not be unique.
    ///
    /// # Errors
    ///
    /// [`ExecError::Tensor`](crate::ExecError::Tensor) for invalid sizes.
    pub fn new(name: &str, shape: impl IntoShape, dtype: DType) -> Result<Self> {
        let shape = shape.into_shape()?;
        shape.checked_bytes(dtype.size()).map_err(orlop_tensor::Error::from)?;
        Ok(Self {
            name: name.into(),
            shape,
            dtype,
            device: Device::CPU,
            kind: MemoryKind::Workspace,
            align: Alignment::PLANNED,
        })
    }

    /// Sets the device.
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// Sets the memory kind.
    pub fn kind(mut self, kind: MemoryKind) -> Self {
        self.kind = kind;
        self
    }

    /// Sets the alignment of the address; less than the dtype's has no effect.
    pub fn align(mut self, align: Alignment) -> Self {
        self.align = align;
        self
    }

    /// Returns the bytes of the elements.
    #[must_use]
    pub fn bytes(&self) -> usize {
        // Checked by `new`.
        self.shape.checked_bytes(self.dtype.size()).unwrap_or(usize::MAX)
    }
}
