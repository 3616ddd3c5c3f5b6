//! Random declarations of buffers, valid for every engine that supports views and outputs in place.

use orlop_core::{Alignment, DType, MemoryKind};
use proptest::prelude::*;
use proptest::sample::select;
use std::ops::Range;

/// The end of the steps of a buffer that keeps its contents from run to run.
pub const NEVER: u64 = u64::MAX;

/// The dtypes of the buffers: every pattern of bytes is a value of them.
const DTYPES: [DType; 4] = [DType::U8, DType::U16, DType::U32, DType::U64];

/// The kinds of the buffers.
pub(super) const KINDS: [MemoryKind; 3] =
    [MemoryKind::Workspace, MemoryKind::KvCache, MemoryKind::Persistent];

/// A buffer of a planned engine: a row of elements.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BufferDeclaration {
    /// The type of the elements.
    pub dtype: DType,
    /// The number of elements.
    pub elements: usize,
    /// The alignment of the address.
    pub align: Alignment,
    /// The memory kind. All buffers in one memory have the same.
    pub kind: MemoryKind,
    /// The steps in which it can be used, the end excluded; [`NEVER`] for one that can always be used.
    pub steps: Range<u64>,
    /// Whose bytes it has.
    pub place: BufferPlace,
}

/// Whose bytes a buffer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BufferPlace {
    /// Bytes of its own.
    Own,
    /// Those of another buffer, from this element on.
    View {
        /// The number of the other buffer.
        of: usize,
        /// The element.
        first: usize,
    },
    /// All those of another buffer, which is not used after the first step of this one.
    Over {
        /// The number of the other buffer.
        other: usize,
    },
}

impl BufferDeclaration {
    /// Returns the bytes of the elements.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.elements * self.dtype.size()
    }

    /// Returns `true` if it keeps its contents from run to run.
    #[must_use]
    pub fn is_persistent(&self) -> bool {
        self.steps.end == NEVER
    }
}

/// Returns the buffer that has its own bytes under a buffer, and the first byte in it.
#[must_use]
pub fn memory_of(buffers: &[BufferDeclaration], mut buffer: usize) -> (usize, usize) {
    let mut first_byte = 0;
    loop {
        match buffers[buffer].place {
            BufferPlace::Own => return (buffer, first_byte),
            BufferPlace::View { of, first } => {
                first_byte += first * buffers[buffer].dtype.size();
                buffer = of;
            }
            BufferPlace::Over { other } => buffer = memory_of(buffers, other).0,
        }
    }
}

/// Parameters of a buffer, valid for any buffers before it: so every program stays valid while it shrinks.
#[derive(Debug, Clone, Copy)]
struct BufferChoice {
    place: u8,
    other: u16,
    dtype: usize,
    elements: usize,
    align_log2: u32,
    kind: MemoryKind,
    start: u64,
    steps: u64,
    part: u16,
}

impl BufferChoice {
    /// Adds the buffer to those before it.
    fn declare(self, buffers: &mut Vec<BufferDeclaration>) {
        let own = BufferDeclaration {
            dtype: DTYPES[self.dtype],
            elements: self.elements,
            align: Alignment::new(1 << self.align_log2).unwrap_or(Alignment::ONE),
            kind: self.kind,
            steps: self.start..self.start + self.steps,
            place: BufferPlace::Own,
        };
        let other = usize::from(self.other) % buffers.len().max(1);
        let buffer = match (self.place, buffers.get(other)) {
            (0..=1, Some(base)) => {
                let first = usize::from(self.part) % (base.elements + 1);
                let elements = self.elements.min(base.elements - first);
                let place = BufferPlace::View { of: other, first };
                BufferDeclaration { elements, align: Alignment::ONE, place, ..base.clone() }
            }
            (2..=3, Some(_)) => {
                let (memory, first_byte) = memory_of(buffers, other);
                // A view must begin where its buffer does.
                let other = if first_byte == 0 { other } else { memory };
                let in_memory = (0..buffers.len()).filter(|&buffer| memory_of(buffers, buffer).0 == memory);
                let end = in_memory.map(|buffer| buffers[buffer].steps.end).max().unwrap_or(NEVER);
                if end == NEVER {
                    return;
                }
                let base = &buffers[memory];
                // In the last step of the others, or right after it.
                let start = end - u64::from(self.part % 2);
                let elements = own.elements.min(base.bytes() / own.dtype.size());
                let (place, align) = (BufferPlace::Over { other }, Alignment::ONE);
                let steps = start..start + self.steps;
                BufferDeclaration { elements, align, kind: base.kind, steps, place, ..own }
            }
            (4, _) => {
                let kind =
                    if self.kind == MemoryKind::Workspace { MemoryKind::Persistent } else { self.kind };
                BufferDeclaration { kind, steps: 0..NEVER, ..own }
            }
            _ => own,
        };
        buffers.push(buffer);
    }
}

/// Generates declarations of up to `count` buffers.
pub fn declarations(count: usize) -> impl Strategy<Value = Vec<BufferDeclaration>> {
    // Miri is a hundred times slower than the machine.
    let (few, most, starts): (usize, usize, u64) = if cfg!(miri) { (4, 8, 3) } else { (20, 3000, 8) };
    // Values of networks often have equal sizes.
    let equal = select(vec![few, 3 * few]);
    let elements = prop_oneof![1 => Just(0usize), 3 => 1..=few, 3 => equal, 2 => 1..=most];
    let aligns = prop_oneof![3 => Just(8u32), 1 => 0..=12u32];
    let choice = (
        (0..10u8, any::<u16>(), 0..DTYPES.len(), elements),
        (aligns, select(KINDS.to_vec()), 0..starts, 1..5u64, any::<u16>()),
    );
    let choice =
        choice.prop_map(|((place, other, dtype, elements), (align_log2, kind, start, steps, part))| {
            BufferChoice { place, other, dtype, elements, align_log2, kind, start, steps, part }
        });
    prop::collection::vec(choice, 1..=count.max(1)).prop_map(|choices| {
        let mut buffers = Vec::new();
        choices.into_iter().for_each(|choice| choice.declare(&mut buffers));
        buffers
    })
}
