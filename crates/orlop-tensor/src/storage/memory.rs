//! Allocation of a storage's block: the only path from a number of bytes to memory.

use super::hooks;
use crate::error::Result;
use orlop_alloc::{Allocator as _, AllocatorRef, MemoryBlock, Request};
use orlop_context::{Context, ContextId};
use orlop_core::{Alignment, Device, MemoryKind};

/// The requested memory. The context decides what is not set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryRequest<'a> {
    /// Everything but the bytes; alignment and stream only if they were set.
    pub(crate) request: Request,
    pub(crate) align_chosen: bool,
    pub(crate) stream_chosen: bool,
    pub(crate) device: Option<Device>,
    pub(crate) context: Option<&'a Context>,
    /// Replaces the context's allocator.
    pub(crate) allocator: Option<&'a AllocatorRef>,
}

impl MemoryRequest<'_> {
    /// Creates a request for memory of the default kind, on the default device.
    pub(crate) const fn new() -> Self {
        let request = Request::new(0);
        Self {
            request,
            align_chosen: false,
            stream_chosen: false,
            device: None,
            context: None,
            allocator: None,
        }
    }

    /// Allocates a block of at least `bytes` bytes, rounded up to the alignment.
    #[inline(always)]
    pub(crate) fn allocate(&mut self, bytes: usize) -> Result<MemoryBlock> {
        match self.allocate_cached(bytes) {
            Some((block, _)) => Ok(block),
            None => Ok(self.allocate_slowly(bytes)?.0),
        }
    }

    /// [`MemoryRequest::allocate`] for memory that the reclaim ladder may make unnecessary: see
    /// [`Context::allocate_while`].
    fn allocate_while(&mut self, bytes: usize, is_needed: &dyn Fn() -> bool) -> Result<MemoryBlock> {
        match self.allocate_cached(bytes) {
            Some((block, _)) => Ok(block),
            None => Ok(self.allocate_slowly_while(bytes, is_needed)?.0),
        }
    }

    /// The fast path: CPU memory from the thread cache. Its arguments and result fit into registers: no error
    /// value, and the request is changed in place. Returns the context's id too.
    #[inline(always)]
    pub(super) fn allocate_cached(&mut self, bytes: usize) -> Option<(MemoryBlock, ContextId)> {
        if self.allocator.is_some() || hooks::any() {
            return None;
        }
        self.request.bytes = self.request.align.round_up(bytes).ok()?;
        let cached = |context: &Context| {
            if !self.device.unwrap_or_else(|| context.default_device()).is_cpu() {
                return None;
            }
            let block = context.allocate_cached(Device::CPU, &self.request)?;
            Some((block.share(), context.id()))
        };
        Context::with_current_or(self.context, cached)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn allocate_slowly(&self, bytes: usize) -> Result<(MemoryBlock, ContextId)> {
        self.allocate_slowly_while(bytes, &|| true)
    }

    fn allocate_slowly_while(
        &self,
        bytes: usize,
        is_needed: &dyn Fn() -> bool,
    ) -> Result<(MemoryBlock, ContextId)> {
        Context::with_current_or(self.context, |context| {
            let block = match self.allocator {
                None => self.allocate_in(context, bytes, is_needed),
                Some(allocator) => self.allocate_from(allocator, context, bytes, is_needed),
            };
            Ok((block?, context.id()))
        })
    }

    /// Allocates from this allocator, under the budgets of the context, which counts the block.
    fn allocate_from(
        &self,
        allocator: &AllocatorRef,
        context: &Context,
        bytes: usize,
        is_needed: &dyn Fn() -> bool,
    ) -> Result<MemoryBlock> {
        let mut request = self.request;
        let device = allocator.device();
        self.adjust(&mut request, device, Some(context).filter(|_| !device.is_cpu()));
        request.bytes = request.align.round_up(bytes)?;
        Ok(context.allocate_from_while(allocator, &request, is_needed)?.share())
    }

    fn allocate_in(
        &self,
        context: &Context,
        bytes: usize,
        is_needed: &dyn Fn() -> bool,
    ) -> Result<MemoryBlock> {
        let device = self.device.unwrap_or_else(|| context.default_device());
        let mut request = self.request;
        if !device.is_cpu() {
            self.adjust(&mut request, device, Some(context));
        }
        request.bytes = request.align.round_up(bytes)?;
        let block = match hooks::of(device) {
            None => context.allocate_while(device, &request, is_needed)?,
            Some(hook) => hooks::allocate(&*hook, context, device, &request)?,
        };
        Ok(block.share())
    }

    /// Applies the defaults of devices other than the CPU.
    #[cold]
    fn adjust(&self, request: &mut Request, device: Device, context: Option<&Context>) {
        if !self.align_chosen && !device.is_cpu() {
            request.align = Alignment::PLANNED;
        }
        if let Some(context) = context.filter(|_| !self.stream_chosen) {
            request.stream = context.stream(device);
        }
    }

    /// Creates a request for memory of the same device, kind, alignment, stream and tag.
    fn like(block: &MemoryBlock) -> Self {
        // Foreign memory may have less alignment than elements need.
        let align = block.align.max(Alignment::CPU);
        let request = Request::new(0).kind(block.kind).align(align).tag(block.tag).stream(block.stream);
        Self { request, align_chosen: true, stream_chosen: true, device: Some(block.device), ..Self::new() }
    }
}

/// The source of memory for a storage that has none, or has to grow, in the context of the storage: allocate
/// from it in [`StorageCell::in_context`](super::StorageCell::in_context).
#[derive(Debug)]
pub(super) struct Origin {
    /// Without the fields that are in `source`.
    memory: MemoryRequest<'static>,
    source: OriginSource,
}

#[derive(Debug)]
enum OriginSource {
    /// The context.
    Context,
    /// This allocator, which was set explicitly.
    Allocator(AllocatorRef),
    /// This allocator, from which a block came. If the context selects it, allocation goes through the
    /// context, so that its retries and the hooks of its backend apply.
    Block(AllocatorRef),
}

impl Origin {
    /// Creates the origin that the options describe, on the given device.
    pub(super) fn of(memory: &MemoryRequest<'_>, device: Device) -> Self {
        let chosen = memory.allocator.cloned();
        let source = chosen.map_or(OriginSource::Context, OriginSource::Allocator);
        let memory = MemoryRequest {
            request: memory.request,
            align_chosen: memory.align_chosen,
            stream_chosen: memory.stream_chosen,
            device: Some(device),
            ..MemoryRequest::new()
        };
        Self { memory, source }
    }

    /// Creates the origin of this block: its allocator. The handle is taken now, because the block may be
    /// gone when memory is needed. Without an allocator (foreign memory, allocators whose last handle was
    /// dropped), the context decides.
    pub(super) fn of_block(block: &MemoryBlock) -> Self {
        Self {
            memory: MemoryRequest::like(block),
            source: block.allocator().map_or(OriginSource::Context, OriginSource::Block),
        }
    }

    /// [`Origin::of_block`] while the block exists: usually its allocator is the context's, and no handle has
    /// to be counted.
    pub(super) fn like(block: &MemoryBlock) -> Self {
        if leads_to(block.device, block.kind, |allocator| block.is_from(allocator)) {
            return Self { memory: MemoryRequest::like(block), source: OriginSource::Context };
        }
        Self::of_block(block)
    }

    /// Returns `true` if it contains more than an empty block does.
    pub(super) fn is_chosen(&self) -> bool {
        !matches!(self.source, OriginSource::Context)
    }

    /// Allocates a block of at least `bytes` bytes.
    pub(super) fn allocate(&self, bytes: usize) -> Result<MemoryBlock> {
        self.allocate_while(bytes, &|| true)
    }

    /// [`Origin::allocate`] for memory that the reclaim ladder may make unnecessary.
    pub(super) fn allocate_while(&self, bytes: usize, is_needed: &dyn Fn() -> bool) -> Result<MemoryBlock> {
        let (mut memory, request) = (self.memory, &self.memory.request);
        match &self.source {
            OriginSource::Context => memory.allocate_while(bytes, is_needed),
            OriginSource::Block(from) if leads_to(from.device(), request.kind, |it| it.same_as(from)) => {
                memory.allocate_while(bytes, is_needed)
            }
            OriginSource::Allocator(from) | OriginSource::Block(from) => {
                MemoryRequest { allocator: Some(from), ..memory }.allocate_while(bytes, is_needed)
            }
        }
    }
}

/// Returns `true` if the current context selects an allocator for which `is` holds. A hook comes before all
/// allocators of its devices.
fn leads_to(device: Device, kind: MemoryKind, is: impl Fn(&AllocatorRef) -> bool) -> bool {
    hooks::of(device).is_some() || Context::with_current(|context| context.is_served_by(device, kind, is))
}
