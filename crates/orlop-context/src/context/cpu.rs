//! CPU-specific parts of a context: the switch of its log, memory that is certainly pinned, collections.

use super::Context;
use crate::observe::LogSwitch;
use orlop_alloc::bare::BlockSource;
use orlop_alloc::{Allocator as _, Block, Error, Request, Result};
use orlop_core::{Device, MemoryKind};

impl Context {
    /// Returns the switch of the allocation log, which
    /// [`AllocatorConfig::logged`](super::AllocatorConfig::logged) or `ORLOP_CPU_LOG` turns on. `None`
    /// without a log.
    #[must_use]
    pub fn cpu_log(&self) -> Option<&LogSwitch> {
        self.inner.cpu.log()
    }

    /// Allocates a block of kind [`HostPinned`](MemoryKind::HostPinned) whose pages are locked for DMA.
    /// [`Context::allocate`] falls back to ordinary host memory if the process cannot pin; this does not.
    ///
    /// # Errors
    ///
    /// [`Error::NotPinned`] if the allocator for that kind does not pin; else as for [`Context::allocate`].
    pub fn allocate_pinned(&self, request: &Request) -> Result<Block> {
        let request = request.kind(MemoryKind::HostPinned);
        let allocator = self.allocator(Device::CPU, MemoryKind::HostPinned)?;
        if !allocator.semantics().pinned {
            return Err(Error::NotPinned { allocator: allocator.name().into() });
        }
        self.allocate(Device::CPU, &request)
    }
}

/// Collections in a context: within its budgets, with its reclaim ladder. The context stays alive with the
/// allocator of the collection.
///
/// ```
/// use orlop_alloc::Request;
/// use orlop_alloc::bare::BlockSource;
/// use orlop_context::{Budget, Context};
/// use orlop_core::{Device, MemoryKind};
///
/// let context = Context::new();
/// context.set_budget(Device::CPU, MemoryKind::Workspace, Budget::hard(1 << 20))?;
/// let request = Request::new(2 << 20).kind(MemoryKind::Workspace);
/// assert!(context.allocate_block(&request).is_err());
/// # Ok::<(), orlop_alloc::Error>(())
/// ```
///
/// With the feature `allocator-api2`, `CollectionAllocator::new(context)` is an allocator for collections.
impl BlockSource for Context {
    fn allocate_block(&self, request: &Request) -> Result<Block> {
        self.allocate(Device::CPU, request)
    }
}
