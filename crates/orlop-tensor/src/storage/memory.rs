//! Where a storage's block comes from: the one way from a number of bytes to memory (L7).

use super::hooks;
use crate::error::Result;
use orlop_alloc::{Allocator as _, AllocatorRef, Block, Context, MemoryBlock, Request};
use orlop_core::{Alignment, Device};

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
    fn at_hand(&mut self, bytes: usize) -> Option<MemoryBlock> {
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
    fn allocate_slowly(&self, bytes: usize) -> Result<MemoryBlock> {
        match (self.allocator, self.context) {
            (None, None) => Context::with_current(|context| self.allocate_in(context, bytes)),
            (None, Some(context)) => self.allocate_in(context, bytes),
            (Some(allocator), _) => {
                let mut request = self.request;
                self.adjust(&mut request, allocator.device(), None);
                request.bytes = request.align.round_up(bytes)?;
                Ok(allocator.allocate(&request)?.share())
            }
        }
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
            Some(hook) => hook.allocate(context, device, &request)?,
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
    pub(super) fn like(block: &MemoryBlock) -> Self {
        // Memory from outside may be aligned to less than elements need.
        let align = block.align.max(Alignment::CPU);
        let request = Request::new(0).kind(block.kind).align(align).tag(block.tag).stream(block.stream);
        Self { request, align_chosen: true, stream_chosen: true, device: Some(block.device), ..Self::new() }
    }
}
