//! The description of planned memory: parts, and the tensors over them.

use super::NEVER;
use orlop_core::{DType, Layout};
use std::ops::Range;

/// A tensor of planned memory: where in its part, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedTensor {
    pub(super) layout: Layout,
    pub(super) dtype: DType,
    pub(super) lifetime: Range<u64>,
    pub(super) name: Option<Box<str>>,
}

impl PlannedTensor {
    /// Describes a tensor with this layout, whose offset counts from the start of the part. It is lent while
    /// the clock is in `lifetime`. A lifetime that ends at `u64::MAX` never ends: the tensor keeps its bytes
    /// when the clock starts again, so no other part may have them in any step.
    #[must_use]
    pub fn new(layout: Layout, dtype: DType, lifetime: Range<u64>) -> Self {
        Self { layout, dtype, lifetime, name: None }
    }

    /// Sets the name, which errors of clones and views show when the tensor has ended. The default is the
    /// tensor's number.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }
}

/// A part of planned memory, with the tensors over it. It is live from the first start to the last end of
/// their lifetimes, and always if one of them never ends or there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedPart {
    pub(super) offset: usize,
    pub(super) bytes: usize,
    pub(super) tensors: Vec<PlannedTensor>,
}

impl PlannedPart {
    /// Describes the part `offset .. offset + bytes` of the block.
    #[must_use]
    pub fn new(offset: usize, bytes: usize, tensors: impl Into<Vec<PlannedTensor>>) -> Self {
        Self { offset, bytes, tensors: tensors.into() }
    }

    pub(super) fn lifetime(&self) -> Range<u64> {
        let starts = self.tensors.iter().map(|tensor| tensor.lifetime.start);
        match self.tensors.iter().map(|tensor| tensor.lifetime.end).max().unwrap_or(NEVER) {
            // What never ends is there when the clock starts again.
            NEVER => 0..NEVER,
            end => starts.min().unwrap_or(0)..end,
        }
    }
}
