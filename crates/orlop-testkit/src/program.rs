//! Random programs for allocators, as proptest strategies that shrink.

use orlop_alloc::{Request, Tag};
use orlop_core::{Alignment, MemoryKind, StreamId};
use proptest::prelude::*;
use proptest::sample::select;

/// The largest alignment that every allocator must serve: 2 MiB, as an exponent.
pub const MAX_ALIGN_LOG2: u32 = 21;

/// Returns the alignment `1 << log2`.
#[must_use]
pub fn alignment(log2: u32) -> Alignment {
    1usize.checked_shl(log2).and_then(|bytes| Alignment::new(bytes).ok()).unwrap_or(Alignment::ONE)
}

/// A request of a test program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramRequest {
    /// The requested bytes.
    pub bytes: usize,
    /// The exponent of the alignment.
    pub align_log2: u32,
    /// The memory kind.
    pub kind: MemoryKind,
    /// Whether the memory must be zero.
    pub zeroed: bool,
    /// Whether the allocator may retry.
    pub retry: bool,
    /// The number of a test tag; 0 for none.
    pub tag: u8,
    /// The number of a stream; 0 is the default one.
    pub stream: u64,
}

impl ProgramRequest {
    /// Creates a request for `bytes` bytes with the defaults.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let (kind, align_log2) = (MemoryKind::Default, Alignment::CPU.log2());
        Self { bytes, align_log2, kind, zeroed: false, retry: true, tag: 0, stream: 0 }
    }

    /// Sets the alignment.
    #[must_use]
    pub fn align_log2(mut self, log2: u32) -> Self {
        self.align_log2 = log2;
        self
    }

    /// Requests zeroed memory.
    #[must_use]
    pub fn zeroed(mut self) -> Self {
        self.zeroed = true;
        self
    }

    /// Converts to a request.
    #[must_use]
    pub fn request(&self) -> Request {
        let tag = if self.tag == 0 {
            Tag::NONE
        } else {
            Tag::new(["weights", "kv", "act"][usize::from(self.tag) % 3])
        };
        let mut request = Request::new(self.bytes)
            .align(alignment(self.align_log2))
            .kind(self.kind)
            .stream(StreamId::from_raw(self.stream))
            .tag(tag);
        if self.zeroed {
            request = request.zeroed();
        }
        if !self.retry {
            request = request.no_retry();
        }
        request
    }
}

/// A step of a program. Indices of live blocks are taken modulo their number, so that every program stays
/// valid while it shrinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgramOp {
    /// Allocates a block.
    Allocate(ProgramRequest),
    /// Frees a live block, by index in order of age.
    Free(u16),
    /// Frees the oldest live block.
    FreeOldest,
    /// Frees the newest live block.
    FreeNewest,
    /// Frees a live block by its raw address, if the allocator supports it.
    FreeRaw(u16),
    /// Trims cached memory to this number of bytes.
    Trim(u64),
    /// Records a stream use of a live block.
    RecordStream {
        /// The index of the block.
        block: u16,
        /// The number of the stream.
        stream: u64,
    },
    /// Checks the contents of all live blocks.
    CheckContents,
    /// Fails this number of requests to the backing, if the test controls it.
    InjectFailure(u8),
}

/// The parameters of random programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramMix {
    /// The largest number of steps.
    pub steps: usize,
    /// The exponent of the largest alignment.
    pub max_align_log2: u32,
    /// The largest request, in bytes.
    pub max_bytes: usize,
    /// Whether the backing fails at times.
    pub failures: bool,
}

impl Default for ProgramMix {
    fn default() -> Self {
        Self { steps: 80, max_align_log2: MAX_ALIGN_LOG2, max_bytes: 2 << 20, failures: false }
    }
}

/// Generates typical sizes: tiny ones, powers of two and their neighbours, products of dimensions, a few
/// repeated ones, and rarely a mebibyte.
pub fn sizes(max_bytes: usize) -> impl Strategy<Value = usize> + Clone {
    let near_power = (0u32..=17, 0usize..3).prop_map(|(log2, off)| (1usize << log2) + off - 1);
    let tensor =
        (1usize..=64, 1usize..=96, select(vec![1usize, 2, 4, 8])).prop_map(|(a, b, item)| a * b * item);
    prop_oneof![
        4 => 0usize..=300,
        4 => near_power,
        4 => tensor,
        3 => select(vec![8usize, 1000, 4096, 65_536, 100_000]),
        1 => (256usize << 10)..=(2 << 20),
    ]
    .prop_map(move |bytes| bytes.min(max_bytes))
}

/// Generates requests.
pub fn requests(mix: ProgramMix) -> impl Strategy<Value = ProgramRequest> + Clone {
    let max = mix.max_align_log2;
    let aligns = prop_oneof![
        6 => Just(Alignment::CPU.log2().min(max)),
        3 => 0..=max.min(12),
        1 => max.min(13)..=max,
    ];
    let kinds = prop_oneof![4 => Just(MemoryKind::Default), 2 => select(MemoryKind::ALL.to_vec())];
    let rare = prop::bool::weighted(0.15);
    let streams = prop_oneof![4 => Just(0u64), 1 => 1u64..4];
    (sizes(mix.max_bytes), aligns, kinds, prop::bool::weighted(0.25), rare, 0u8..4, streams).prop_map(
        |(bytes, align_log2, kind, zeroed, no_retry, tag, stream)| ProgramRequest {
            bytes,
            align_log2,
            kind,
            zeroed,
            retry: !no_retry,
            tag,
            stream,
        },
    )
}

/// Generates a step.
pub fn op(mix: ProgramMix) -> impl Strategy<Value = ProgramOp> + Clone {
    prop_oneof![
        20 => requests(mix).prop_map(ProgramOp::Allocate),
        10 => any::<u16>().prop_map(ProgramOp::Free),
        3 => Just(ProgramOp::FreeOldest),
        3 => Just(ProgramOp::FreeNewest),
        2 => any::<u16>().prop_map(ProgramOp::FreeRaw),
        1 => prop_oneof![Just(0u64), 0u64..4 << 20].prop_map(ProgramOp::Trim),
        2 => (any::<u16>(), 1u64..5).prop_map(|(block, stream)| ProgramOp::RecordStream { block, stream }),
        1 => Just(ProgramOp::CheckContents),
        u32::from(mix.failures) * 2 => (1u8..4).prop_map(ProgramOp::InjectFailure),
    ]
}

/// Generates a program.
pub fn program(mix: ProgramMix) -> impl Strategy<Value = Vec<ProgramOp>> {
    prop::collection::vec(op(mix), 1..=mix.steps.max(1))
}
