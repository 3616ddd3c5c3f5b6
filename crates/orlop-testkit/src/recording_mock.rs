//! [`RecordingMock`]: an adaptor that records its calls.

use orlop_alloc::{
    AllocationId, Allocator, Error, LookupResult, Request, Result, Semantics, engine_support::RawBlock,
};
use orlop_core::StreamId;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// A call to a [`RecordingMock`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordedCall {
    /// A block was allocated.
    Allocated {
        /// The request.
        request: Request,
        /// The id of the block.
        id: AllocationId,
        /// The address.
        address: usize,
        /// The granted bytes.
        granted: usize,
    },
    /// A request failed.
    Refused {
        /// The request.
        request: Request,
        /// Whether freeing memory may help.
        out_of_memory: bool,
    },
    /// A block was freed.
    Returned {
        /// The id of the block.
        id: AllocationId,
        /// The address.
        address: usize,
        /// The bytes of the request, according to the block.
        requested: usize,
        /// The other streams that used it, latest first.
        uses: Vec<StreamId>,
        /// Whether the inner allocator accepted it.
        accepted: bool,
    },
    /// A raw pointer was freed.
    ReturnedRaw {
        /// The address.
        address: usize,
        /// The size that the caller passed.
        requested: Option<usize>,
        /// Whether the inner allocator accepted it.
        accepted: bool,
    },
    /// Cached memory was trimmed.
    Trimmed {
        /// The target in bytes.
        target: u64,
    },
}

/// The calls to a [`RecordingMock`], in order.
#[derive(Debug, Default)]
pub struct CallLog {
    seen: Mutex<Vec<RecordedCall>>,
}

impl CallLog {
    fn note(&self, seen: RecordedCall) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    }

    /// Removes and returns the recorded calls.
    pub fn take(&self) -> Vec<RecordedCall> {
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Forwards all calls and records them. It reports that it honours stream uses, so that they can be recorded
/// on blocks.
#[derive(Debug)]
pub struct RecordingMock<A> {
    inner: A,
    log: Arc<CallLog>,
}

impl<A: Allocator> RecordingMock<A> {
    /// Wraps `inner`.
    pub fn new(inner: A) -> (Self, Arc<CallLog>) {
        let log = Arc::<CallLog>::default();
        (Self { inner, log: log.clone() }, log)
    }
}

// SAFETY: blocks are the inner allocator's, unchanged, and return to it.
unsafe impl<A: Allocator> Allocator for RecordingMock<A> {
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
        let uses = block.stream_uses().collect();
        // SAFETY: guaranteed by the caller; the inner allocator's own block.
        let result = unsafe { self.inner.deallocate(block) };
        self.log.note(RecordedCall::Returned { id, address, requested, uses, accepted: result.is_ok() });
        result
    }

    unsafe fn deallocate_raw(&self, ptr: NonNull<u8>, requested: Option<usize>) -> Result<LookupResult> {
        // SAFETY: guaranteed by the caller; the inner allocator's own block.
        let result = unsafe { self.inner.deallocate_raw(ptr, requested) };
        let address = ptr.as_ptr().addr();
        self.log.note(RecordedCall::ReturnedRaw { address, requested, accepted: result.is_ok() });
        result
    }

    fn trim(&self, target: u64) -> u64 {
        self.log.note(RecordedCall::Trimmed { target });
        self.inner.trim(target)
    }

    fn semantics(&self) -> Semantics {
        Semantics { stream_ordered: true, ..self.inner.semantics() }
    }

    orlop_alloc::forward!(inner; except deallocate, deallocate_raw, semantics, trim);
}
