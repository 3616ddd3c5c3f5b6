//! The hook through which recording sees every allocation; one relaxed load when nobody looks.

use crate::context::LadderStep;
use crate::{Error, Found, OutOfMemory, RawBlock};
use orlop_core::MemoryKind;
use std::fmt;
use std::sync::Arc;

/// Something that happened in an allocator.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A block was handed out.
    Allocated {
        /// The block.
        block: &'a RawBlock,
        /// By whom.
        allocator: &'a str,
    },
    /// A block is coming back.
    Freed {
        /// The block.
        block: &'a RawBlock,
        /// To whom.
        allocator: &'a str,
    },
    /// A block came back by its bare address.
    RawFreed {
        /// Where it began.
        address: usize,
        /// What it was.
        found: &'a Found,
        /// To whom.
        allocator: &'a str,
    },
    /// A free was refused; the memory stays as it was.
    FreeRefused {
        /// Why.
        error: &'a Error,
        /// By whom.
        allocator: &'a str,
    },
    /// An allocator could not serve a request. A context's ladder may still rescue it.
    OutOfMemory {
        /// The story.
        report: &'a OutOfMemory,
    },
    /// The reclaim ladder took a step for a request that did not fit.
    Reclaimed {
        /// Which.
        step: LadderStep,
        /// The kind that needed memory.
        kind: MemoryKind,
        /// Bytes that came back.
        bytes: u64,
    },
}

/// Is told what happens, on the thread where it happens, with no lock of the allocator held. It must be
/// quick, and must not allocate from the allocator it watches without expecting its own events.
pub trait Observer: Send + Sync {
    /// Takes note.
    fn observe(&self, event: &Event<'_>);
}

impl fmt::Debug for dyn Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// Where an observer is put: one relaxed load while it is empty.
pub(crate) type ObserverSlot = crate::replaceable::Replaceable<Arc<dyn Observer>>;
