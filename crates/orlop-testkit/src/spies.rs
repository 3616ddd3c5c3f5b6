//! An adaptor that writes down what it is asked and given back.

use orlop_alloc::{
    AllocationId, Allocator, Error, LookupResult, OutOfMemory, RawBlock, RegionWatch, Request, Result,
    Semantics, Usage,
};
use orlop_core::{Device, StreamId};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// A call to a [`Spy`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordedCall {
    /// A block was handed out.
    Allocated {
        /// What was asked.
        request: Request,
        /// Which block.
        id: AllocationId,
        /// Where.
        address: usize,
        /// Its bytes.
        granted: usize,
    },
    /// A request failed.
    Refused {
        /// What was asked.
        request: Request,
        /// Whether freeing memory may help.
        out_of_memory: bool,
    },
    /// A block came back.
    Returned {
        /// Which block.
        id: AllocationId,
        /// Where.
        address: usize,
        /// Bytes asked for, as the block says.
        requested: usize,
        /// Streams that used it beside its own, latest first.
        uses: Vec<StreamId>,
        /// Whether upstream took it.
        accepted: bool,
    },
    /// A bare pointer came back.
    ReturnedRaw {
        /// Where.
        address: usize,
        /// The size told.
        requested: Option<usize>,
        /// Whether upstream took it.
        accepted: bool,
    },
    /// Cached memory was to be given back.
    Trimmed {
        /// Down to so many bytes.
        target: u64,
    },
}

/// The calls to a [`Spy`], in order.
#[derive(Debug, Default)]
pub struct CallLog {
    seen: Mutex<Vec<RecordedCall>>,
}

impl CallLog {
    fn note(&self, seen: RecordedCall) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    }

    /// Everything since the last call.
    pub fn take(&self) -> Vec<RecordedCall> {
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Passes everything on and writes it down. It says that its blocks wait for streams, so that uses can be recorded and seen
/// coming back.
#[derive(Debug)]
pub struct Spy<A> {
    inner: A,
    log: Arc<CallLog>,
}

impl<A: Allocator> Spy<A> {
    /// Watches `inner`.
    pub fn new(inner: A) -> (Self, Arc<CallLog>) {
        let log = Arc::<CallLog>::default();
        (Self { inner, log: log.clone() }, log)
    }
}

// SAFETY: blocks are upstream's, unchanged, and go back to it.
unsafe impl<A: Allocator> Allocator for Spy<A> {
    fn allocate(&self, request: &Request) -> Result<RawBlock> {
        let result = self.inner.allocate(request);
        let request = *request;
        self.log.note(match &result {
            Ok(block) => RecordedCall::Allocated {
                request,
                id: block.id,
                address: block.address(),
                granted: block.granted,
            },
            Err(error) => RecordedCall::Refused { request, out_of_memory: Error::is_out_of_memory(error) },
        });
        result
    }

    unsafe fn deallocate(&self, block: RawBlock) -> Result<()> {
        let (id, address, requested) = (block.id, block.address(), block.requested);
        let uses = block.uses.iter().collect();
        // SAFETY: the caller's promises; upstream's own block.
        let result = unsafe { self.inner.deallocate(block) };
        self.log.note(RecordedCall::Returned { id, address, requested, uses, accepted: result.is_ok() });
        result
    }

    unsafe fn deallocate_raw(&self, ptr: NonNull<u8>, requested: Option<usize>) -> Result<LookupResult> {
        // SAFETY: the caller's promises; upstream's own block.
        let result = unsafe { self.inner.deallocate_raw(ptr, requested) };
        let address = ptr.as_ptr().addr();
        self.log.note(RecordedCall::ReturnedRaw { address, requested, accepted: result.is_ok() });
        result
    }

    fn trim(&self, target: u64) -> u64 {
        self.log.note(RecordedCall::Trimmed { target });
        self.inner.trim(target)
    }

    fn device(&self) -> Device {
        self.inner.device()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn usage(&self) -> Usage {
        self.inner.usage()
    }

    fn reset_peak(&self) {
        self.inner.reset_peak();
    }

    fn semantics(&self) -> Semantics {
        Semantics { stream_ordered: true, ..self.inner.semantics() }
    }

    fn find(&self, address: usize) -> Option<LookupResult> {
        self.inner.find(address)
    }

    fn has_tracked_sizes(&self) -> bool {
        self.inner.has_tracked_sizes()
    }

    fn has_raw_deleter(&self) -> bool {
        self.inner.has_raw_deleter()
    }

    fn has_opaque_handles(&self) -> bool {
        self.inner.has_opaque_handles()
    }

    fn set_safe_frontier(&self, stamp: u64) {
        self.inner.set_safe_frontier(stamp);
    }

    fn describe(&self, report: &mut OutOfMemory) {
        self.inner.describe(report);
    }

    fn watch_regions(&self, watch: &Arc<RegionWatch>) {
        self.inner.watch_regions(watch);
    }

    fn verify(&self) -> Result<()> {
        self.inner.verify()
    }
}
