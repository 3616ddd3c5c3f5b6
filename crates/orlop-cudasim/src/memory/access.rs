//! What an operation reads and writes.

use crate::control::SimAccess;
use orlop_race::AccessKind;

/// An access to tracked memory by an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MemoryAccess {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
    pub(crate) kind: AccessKind,
}

impl MemoryAccess {
    pub(crate) fn read(address: usize, bytes: usize) -> Self {
        Self { address, bytes, kind: AccessKind::Read }
    }

    pub(crate) fn write(address: usize, bytes: usize) -> Self {
        Self { address, bytes, kind: AccessKind::Write }
    }

    pub(crate) fn atomic(address: usize, bytes: usize) -> Self {
        Self { address, bytes, kind: AccessKind::Atomic }
    }
}

impl From<SimAccess> for MemoryAccess {
    fn from(access: SimAccess) -> Self {
        let SimAccess { address, bytes, is_write } = access;
        if is_write { Self::write(address, bytes) } else { Self::read(address, bytes) }
    }
}

/// How an operation reaches memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// By the processors of the device.
    Processors,
    /// By a copy, which reaches linear memory of every device.
    Copy,
    /// By a copy between two contexts, which has the rights of both.
    PeerCopy,
}

/// The rows of a copy; all lengths in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CopyShape {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) to_pitch: usize,
    pub(crate) to_slice: usize,
    pub(crate) from_pitch: usize,
    pub(crate) from_slice: usize,
}

impl CopyShape {
    pub(crate) fn line(bytes: usize) -> Self {
        let (to_pitch, to_slice, from_pitch, from_slice) = (0, 0, 0, 0);
        Self { width: bytes, height: 1, depth: 1, to_pitch, to_slice, from_pitch, from_slice }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.width.saturating_mul(self.height).saturating_mul(self.depth)
    }
}
