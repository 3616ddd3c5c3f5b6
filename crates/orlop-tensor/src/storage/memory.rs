//! Where a storage's block comes from: the one way from a number of bytes to memory (L7).

use super::hooks;
use crate::error::Result;
use orlop_alloc::{Allocator as _, AllocatorRef, Context, MemoryBlock, Request, Tag};
use orlop_core::{Alignment, Device, MemoryKind, StreamId};

/// Which memory is wanted. What is left open is the context's to say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory<'a> {
    pub(crate) device: Option<Device>,
    pub(crate) align: Option<Alignment>,
    pub(crate) stream: Option<StreamId>,
    pub(crate) kind: MemoryKind,
    pub(crate) tag: Tag,
    pub(crate) zeroed: bool,
    pub(crate) context: Option<&'a Context>,
    /// Instead of the context's.
    pub(crate) allocator: Option<&'a AllocatorRef>,
}

impl Memory<'_> {
    /// A block of at least so many bytes: rounded up to the alignment (M8).
    #[inline]
    pub(crate) fn allocate(&self, bytes: usize) -> Result<MemoryBlock> {
        match (self.allocator, self.context) {
            (Some(allocator), _) => {
                let request = self.request(bytes, allocator.device(), self.stream.unwrap_or_default())?;
                Ok(allocator.allocate(&request)?.share())
            }
            (None, Some(context)) => self.allocate_in(context, bytes),
            (None, None) => Context::with_current(|context| self.allocate_in(context, bytes)),
        }
    }

    #[inline]
    fn allocate_in(&self, context: &Context, bytes: usize) -> Result<MemoryBlock> {
        let device = self.device.unwrap_or_else(|| context.default_device());
        let stream = match self.stream {
            Some(stream) => stream,
            None if device.is_cpu() => StreamId::DEFAULT,
            None => context.stream(device),
        };
        let request = self.request(bytes, device, stream)?;
        let block = match hooks::of(device) {
            None => context.allocate(device, &request)?,
            Some(hook) => hook.allocate(context, device, &request)?,
        };
        Ok(block.share())
    }

    #[inline]
    fn request(&self, bytes: usize, device: Device, stream: StreamId) -> Result<Request> {
        let usual = if device.is_cpu() { Alignment::CPU } else { Alignment::PLANNED };
        let align = self.align.unwrap_or(usual);
        let mut request =
            Request::new(align.round_up(bytes)?).align(align).kind(self.kind).tag(self.tag).stream(stream);
        request.zeroed = self.zeroed;
        Ok(request)
    }

    /// Memory of the same device, kind, alignment, stream and tag.
    pub(super) fn like(block: &MemoryBlock) -> Self {
        Self {
            device: Some(block.device),
            align: Some(block.align),
            stream: Some(block.stream),
            kind: block.kind,
            tag: block.tag,
            zeroed: false,
            context: None,
            allocator: None,
        }
    }
}
