//! Random programs over an allocator, as proptest strategies that shrink.

use orlop_alloc::{Request, Tag};
use orlop_core::{Alignment, MemoryKind, StreamId};
use proptest::prelude::*;
use proptest::sample::select;

/// The largest alignment that every allocator must serve: 2 MiB, as an exponent.
pub const MAX_ALIGN_LOG2: u32 = 21;

/// The alignment `1 << log2`.
#[must_use]
pub fn alignment(log2: u32) -> Alignment {
    1usize.checked_shl(log2).and_then(|bytes| Alignment::new(bytes).ok()).unwrap_or(Alignment::ONE)
}

/// A request of a test program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramRequest {
    /// Bytes.
    pub bytes: usize,
    /// The alignment's exponent.
    pub align_log2: u32,
    /// What for.
    pub kind: MemoryKind,
    /// Whether it must be zero.
    pub zeroed: bool,
    /// Whether the allocator may try hard.
    pub retry: bool,
    /// Which of the test's tags; 0 is none.
    pub tag: u8,
    /// Which stream; 0 is the default one.
    pub stream: u64,
}

impl ProgramRequest {
    /// `bytes` and nothing special.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let (kind, align_log2) = (MemoryKind::Default, Alignment::CPU.log2());
        Self { bytes, align_log2, kind, zeroed: false, retry: true, tag: 0, stream: 0 }
    }

    /// At this alignment.
    #[must_use]
    pub fn align_log2(mut self, log2: u32) -> Self {
        self.align_log2 = log2;
        self
    }

    /// Zeroed.
    #[must_use]
    pub fn zeroed(mut self) -> Self {
        self.zeroed = true;
        self
    }

    /// As the allocator is asked.
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
            .stream(StreamId::new(self.stream))
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

/// One step of a program. Numbers of live blocks are taken modulo how many there are, so that every program
/// means something whatever is left of it by shrinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProgramOp {
    /// Gets a block.
    Allocate(ProgramRequest),
    /// Returns a live block, by number in order of age.
    Free(u16),
    /// Returns the oldest live block.
    FreeOldest,
    /// Returns the newest live block.
    FreeNewest,
    /// Frees a live block by its bare address, where the allocator can.
    FreeRaw(u16),
    /// Gives cached memory back down to so many bytes.
    Trim(u64),
    /// A stream uses a live block.
    RecordStream {
        /// Which block.
        block: u16,
        /// Which stream.
        stream: u64,
    },
    /// Checks the contents of all live blocks.
    CheckContents,
    /// The backing refuses the next so many regions, where the test has a hand on it.
    InjectFailure(u8),
}

/// What programs are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix {
    /// The most steps.
    pub steps: usize,
    /// The largest alignment, as an exponent.
    pub max_align_log2: u32,
    /// The largest request, in bytes.
    pub max_bytes: usize,
    /// Whether the backing fails now and then.
    pub failures: bool,
}

impl Default for Mix {
    fn default() -> Self {
        Self { steps: 80, max_align_log2: MAX_ALIGN_LOG2, max_bytes: 2 << 20, failures: false }
    }
}

/// Sizes as programs have them: tiny ones, powers of two and their neighbours, products of dimensions, a few
/// that come again and again, and now and then a mebibyte.
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

/// What programs ask for.
pub fn asks(mix: Mix) -> impl Strategy<Value = ProgramRequest> + Clone {
    let most = mix.max_align_log2;
    let aligns = prop_oneof![
        6 => Just(Alignment::CPU.log2().min(most)),
        3 => 0..=most.min(12),
        1 => most.min(13)..=most,
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

/// One step.
pub fn op(mix: Mix) -> impl Strategy<Value = ProgramOp> + Clone {
    prop_oneof![
        20 => asks(mix).prop_map(ProgramOp::Allocate),
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

/// A program.
pub fn program(mix: Mix) -> impl Strategy<Value = Vec<ProgramOp>> {
    prop::collection::vec(op(mix), 1..=mix.steps.max(1))
}
