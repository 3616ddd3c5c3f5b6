//! Where a storage's block comes from: the one way from a number of bytes to memory (L7).

use super::hooks;
use crate::error::Result;
use orlop_alloc::{Allocator as _, AllocatorRef, Block, Context, MemoryBlock, Request};
use orlop_core::{Alignment, Device, MemoryKind};

/// Which memory is wanted. What is left open is the context's to say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory<'a> {
    /// All but the bytes; alignment and stream only if they were chosen.
    pub(crate) request: Request,
    pub(crate) align_chosen: bool,
    pub(crate) stream_chosen: bool,
    pub(crate) device: Option<Device>,
    pub(crate) context: Option<&'a Context>,
    /// Instead of the context's.
    pub(crate) allocator: Option<&'a AllocatorRef>,
}

impl Memory<'_> {
    /// Of any kind, anywhere.
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

    /// A block of at least so many bytes: rounded up to the alignment (M8).
    #[inline(always)]
    pub(crate) fn allocate(&mut self, bytes: usize) -> Result<MemoryBlock> {
        match self.at_hand(bytes) {
            Some(block) => Ok(block),
            None => self.allocate_slowly(bytes),
        }
    }

    /// What most ask for, and get: memory for the processor that the thread has cached. In words that fit into
    /// registers: no error to be carried through, and the request is changed where it is.
    #[inline(always)]
    pub(super) fn at_hand(&mut self, bytes: usize) -> Option<MemoryBlock> {
        if self.allocator.is_some() || hooks::any() {
            return None;
        }
        self.request.bytes = self.request.align.round_up(bytes).ok()?;
        let cached = |context: &Context| {
            if !self.device.unwrap_or_else(|| context.default_device()).is_cpu() {
                return None;
            }
            context.allocate_cached(Device::CPU, &self.request).map(Block::share)
        };
        match self.context {
            Some(context) => cached(context),
            None => Context::with_current(cached),
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn allocate_slowly(&self, bytes: usize) -> Result<MemoryBlock> {
        match (self.allocator, self.context) {
            (None, None) => Context::with_current(|context| self.allocate_in(context, bytes)),
            (None, Some(context)) => self.allocate_in(context, bytes),
            (Some(allocator), None) => {
                Context::with_current(|context| self.allocate_from(allocator, context, bytes))
            }
            (Some(allocator), Some(context)) => self.allocate_from(allocator, context, bytes),
        }
    }

    /// From this allocator, under the budgets of the context, which counts it.
    fn allocate_from(
        &self,
        allocator: &AllocatorRef,
        context: &Context,
        bytes: usize,
    ) -> Result<MemoryBlock> {
        let mut request = self.request;
        self.adjust(&mut request, allocator.device(), None);
        request.bytes = request.align.round_up(bytes)?;
        Ok(context.allocate_from(allocator, &request)?.share())
    }

    fn allocate_in(&self, context: &Context, bytes: usize) -> Result<MemoryBlock> {
        let device = self.device.unwrap_or_else(|| context.default_device());
        let mut request = self.request;
        if !device.is_cpu() {
            self.adjust(&mut request, device, Some(context));
        }
        request.bytes = request.align.round_up(bytes)?;
        let block = match hooks::of(device) {
            None => context.allocate(device, &request)?,
            Some(hook) => hooks::allocate(&*hook, context, device, &request)?,
        };
        Ok(block.share())
    }

    /// What is usual on a device other than the processor (M4).
    #[cold]
    fn adjust(&self, request: &mut Request, device: Device, context: Option<&Context>) {
        if !self.align_chosen && !device.is_cpu() {
            request.align = Alignment::PLANNED;
        }
        if let Some(context) = context.filter(|_| !self.stream_chosen) {
            request.stream = context.stream(device);
        }
    }

    /// Memory of the same device, kind, alignment, stream and tag.
    fn like(block: &MemoryBlock) -> Self {
        // Memory from outside may be aligned to less than elements need.
        let align = block.align.max(Alignment::CPU);
        let request = Request::new(0).kind(block.kind).align(align).tag(block.tag).stream(block.stream);
        Self { request, align_chosen: true, stream_chosen: true, device: Some(block.device), ..Self::new() }
    }
}

/// Where the memory of a storage is to come from that has none, or needs other.
#[derive(Debug)]
pub(super) struct Origin {
    /// Without what is in `source`.
    memory: Memory<'static>,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// The context that is current when the memory is needed.
    Current,
    /// This context.
    Context(Context),
    /// This allocator: it was asked for by name.
    Allocator(AllocatorRef),
    /// This allocator: a block came from it. By way of the current context if that leads there, because then its budgets,
    /// its retries and the hooks of its backend apply.
    Block(AllocatorRef),
}

impl Origin {
    /// As the options say, on the device where that was to be.
    pub(super) fn of(memory: &Memory<'_>, device: Device) -> Self {
        let source = match (memory.allocator, memory.context) {
            (Some(allocator), _) => Source::Allocator(allocator.clone()),
            (None, Some(context)) => Source::Context(context.clone()),
            (None, None) => Source::Current,
        };
        let memory = Memory {
            request: memory.request,
            align_chosen: memory.align_chosen,
            stream_chosen: memory.stream_chosen,
            device: Some(device),
            ..Memory::new()
        };
        Self { memory, source }
    }

    /// Like this block, from the allocator that it is from (P25). The handle is taken now: the block may be gone when the
    /// memory is needed. Without one (memory from outside, allocators whose last handle went) it is the context's to say.
    pub(super) fn of_block(block: &MemoryBlock) -> Self {
        Self { memory: Memory::like(block), source: block.allocator().map_or(Source::Current, Source::Block) }
    }

    /// [`Origin::of_block`] while the block lives: mostly its allocator is the context's, and no handle has to be counted.
    pub(super) fn like(block: &MemoryBlock) -> Self {
        if leads_to(block.device, block.kind, |allocator| block.is_from(allocator)) {
            return Self { memory: Memory::like(block), source: Source::Current };
        }
        Self::of_block(block)
    }

    /// Whether it says more than an empty block does.
    pub(super) fn is_chosen(&self) -> bool {
        !matches!(self.source, Source::Current)
    }

    /// A block of at least so many bytes.
    pub(super) fn allocate(&self, bytes: usize) -> Result<MemoryBlock> {
        let (mut memory, request) = (self.memory, &self.memory.request);
        match &self.source {
            Source::Current => memory.allocate(bytes),
            Source::Context(context) => Memory { context: Some(context), ..memory }.allocate(bytes),
            Source::Block(from) if leads_to(from.device(), request.kind, |it| it.same_as(from)) => {
                memory.allocate(bytes)
            }
            Source::Allocator(from) | Source::Block(from) => {
                Memory { allocator: Some(from), ..memory }.allocate(bytes)
            }
        }
    }
}

/// Whether the current context leads to an allocator, or to a hook, which stands before all allocators of its devices.
fn leads_to(device: Device, kind: MemoryKind, is: impl Fn(&AllocatorRef) -> bool) -> bool {
    hooks::of(device).is_some() || Context::with_current(|context| context.is_served_by(device, kind, is))
}
