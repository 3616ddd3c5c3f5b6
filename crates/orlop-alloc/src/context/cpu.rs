//! What a context offers for the CPU beside other devices: the switch of its log, and memory that is pinned for certain.

use super::Context;
use crate::adaptor::LogSwitch;
use crate::{Allocator as _, Block, Error, Request, Result};
use orlop_core::{Device, MemoryKind};

impl Context {
    /// The switch of the allocation log that [`CpuConfig`](super::CpuConfig) was asked for, by
    /// [`logged`](super::CpuConfig::logged) or `ORLOP_CPU_LOG`. `None` without a log.
    #[must_use]
    pub fn cpu_log(&self) -> Option<&LogSwitch> {
        self.inner.cpu.log()
    }

    /// Gets a block of kind [`HostPinned`](MemoryKind::HostPinned) whose pages are locked for DMA.
    /// [`Context::allocate`] falls back to plain host memory where the process cannot pin; this does not.
    ///
    /// # Errors
    ///
    /// [`Error::NotPinned`] where the allocator that serves pinned memory has none; else as for [`Context::allocate`].
    pub fn allocate_pinned(&self, request: &Request) -> Result<Block> {
        let request = request.kind(MemoryKind::HostPinned);
        let allocator = self.allocator(Device::CPU, MemoryKind::HostPinned)?;
        if !allocator.semantics().pinned {
            return Err(Error::NotPinned { allocator: allocator.name().into() });
        }
        self.allocate(Device::CPU, &request)
    }
}
