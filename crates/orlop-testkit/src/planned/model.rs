//! The expected state of a planned engine: who is live where, and with which contents.

use super::engine::{LendRefusal, PlannedEngine};
use super::program::{BufferDeclaration, memory_of};
use crate::fault::{ConformanceFault, equal, rule};
use orlop_core::{DType, MemoryKind, SplitMix64};
use orlop_tensor::{Error, Tensor};
use std::ops::Range;

/// The expected contents and addresses of all buffers, compared with the engine in each step.
#[derive(Debug)]
pub(super) struct PlannedModel<'a> {
    buffers: &'a [BufferDeclaration],
    /// By buffer: the one that has the bytes, and the first byte in it.
    places: Vec<(usize, usize)>,
    /// By buffer that has bytes of its own. `None`: any.
    contents: Vec<Vec<Option<u8>>>,
    addresses: Vec<Option<usize>>,
    random: SplitMix64,
}

/// Calls a function that is generic over the element type of a tensor.
macro_rules! by_dtype {
    ($tensor:expr, $function:ident $(, $argument:expr)*) => {
        match $tensor.dtype() {
            DType::U8 => $function::<u8, 1>($tensor, u8::from_ne_bytes, u8::to_ne_bytes $(, $argument)*),
            DType::U16 => $function::<u16, 2>($tensor, u16::from_ne_bytes, u16::to_ne_bytes $(, $argument)*),
            DType::U32 => $function::<u32, 4>($tensor, u32::from_ne_bytes, u32::to_ne_bytes $(, $argument)*),
            _ => $function::<u64, 8>($tensor, u64::from_ne_bytes, u64::to_ne_bytes $(, $argument)*),
        }
    };
}

fn get<T: orlop_tensor::Plain + Copy, const N: usize>(
    tensor: &Tensor,
    _from: fn([u8; N]) -> T,
    to: fn(T) -> [u8; N],
) -> Result<(usize, Vec<u8>), Error> {
    let slice = tensor.as_slice::<T>()?;
    Ok((slice.as_ptr().addr(), slice.iter().flat_map(|&element| to(element)).collect()))
}

fn set<T: orlop_tensor::Plain, const N: usize>(
    tensor: &Tensor,
    from: fn([u8; N]) -> T,
    _to: fn(T) -> [u8; N],
    bytes: &[u8],
) -> Result<(), Error> {
    let mut slice = tensor.as_mut_slice::<T>()?;
    for (element, bytes) in slice.iter_mut().zip(bytes.as_chunks::<N>().0) {
        *element = from(*bytes);
    }
    Ok(())
}

impl<'a> PlannedModel<'a> {
    pub(super) fn new(buffers: &'a [BufferDeclaration], seed: u64) -> Self {
        let places = (0..buffers.len()).map(|buffer| memory_of(buffers, buffer)).collect();
        let contents = buffers.iter().map(|buffer| vec![None; buffer.bytes()]).collect();
        Self {
            buffers,
            places,
            contents,
            addresses: vec![None; buffers.len()],
            random: SplitMix64::new(seed),
        }
    }

    /// Returns a random number below `end`.
    pub(super) fn choose(&mut self, end: u64) -> u64 {
        self.random.next_u64() % end.max(1)
    }

    /// Returns the step after the last one that uses a temporary buffer.
    pub(super) fn steps(&self) -> u64 {
        let temporary = self.buffers.iter().filter(|buffer| !buffer.is_persistent());
        temporary.map(|buffer| buffer.steps.end).max().unwrap_or(1)
    }

    /// Begins a run: the contents of temporary buffers are arbitrary.
    pub(super) fn begin(&mut self) {
        for (buffer, contents) in self.buffers.iter().zip(&mut self.contents) {
            if !buffer.is_persistent() {
                contents.fill(None);
            }
        }
    }

    /// Returns `true` if no other buffer is in the same memory.
    pub(super) fn is_alone(&self, buffer: usize) -> bool {
        self.places.iter().filter(|place| place.0 == self.places[buffer].0).count() == 1
    }

    /// Returns `true` if the clones of a buffer lose their bytes when the engine goes on from step `now` to
    /// `step`: a buffer in the same memory ends, and none that is live in both goes on.
    pub(super) fn revokes(&self, buffer: usize, now: u64, step: u64) -> bool {
        let in_memory = |other: &usize| self.places[*other].0 == self.places[buffer].0;
        let all = || (0..self.buffers.len()).filter(in_memory).map(|other| &self.buffers[other].steps);
        let goes_on = all().any(|steps| steps.contains(&now) && steps.contains(&step));
        all().any(|steps| now < steps.end && steps.end <= step) && !goes_on
    }

    /// Returns the buffers that are live in a step.
    pub(super) fn live(&self, step: u64) -> impl Iterator<Item = usize> + use<> {
        let is_live = |buffer: &BufferDeclaration| buffer.steps.contains(&step);
        let live: Vec<_> = (0..self.buffers.len()).filter(|&buffer| is_live(&self.buffers[buffer])).collect();
        live.into_iter()
    }

    /// Returns the bytes of the memories of a kind that have a live buffer in a step.
    pub(super) fn live_bytes(&self, kind: MemoryKind, step: u64) -> u64 {
        let mut memories: Vec<usize> = self.live(step).map(|buffer| self.places[buffer].0).collect();
        memories.sort_unstable();
        memories.dedup();
        let of_kind = memories.into_iter().filter(|&memory| self.buffers[memory].kind == kind);
        of_kind.map(|memory| self.buffers[memory].bytes() as u64).sum()
    }

    /// Checks what the engine lends in a step, and writes to some of it.
    pub(super) fn check_step(
        &mut self,
        engine: &dyn PlannedEngine,
        step: u64,
    ) -> Result<(), ConformanceFault> {
        for (number, buffer) in self.buffers.iter().enumerate() {
            match engine.tensor(number) {
                Ok(_) => rule("buffers are lent in their steps only", buffer.steps.contains(&step))?,
                Err(LendRefusal::NotLive) => {
                    rule("buffers are lent in their steps", !buffer.steps.contains(&step))?;
                }
                Err(other) => return Err(other.into()),
            }
        }
        let mut spans = Vec::new();
        for buffer in self.live(step) {
            spans.extend(self.check_tensor(engine.tensor(buffer)?, buffer)?);
        }
        self.check_spans(spans)?;
        self.check_borrows(engine, step)?;
        for buffer in self.live(step) {
            let tensor = engine.tensor(buffer)?;
            self.check_contents(tensor, buffer)?;
            // What was never written is written now, and much else.
            if self.range(buffer).1.contains(&None) || self.choose(3) == 0 {
                self.write(tensor, buffer)?;
            }
        }
        // Nothing was written to the wrong one.
        self.live(step).try_for_each(|buffer| self.check_contents(engine.tensor(buffer)?, buffer))
    }

    /// Checks the description and the address of a tensor, and returns its bytes with the number of its
    /// memory.
    fn check_tensor(
        &mut self,
        tensor: &Tensor,
        number: usize,
    ) -> Result<Option<(Range<usize>, usize)>, ConformanceFault> {
        let buffer = &self.buffers[number];
        equal("the elements of a tensor", buffer.elements as u64, tensor.numel() as u64)?;
        rule("a tensor has its dtype", tensor.dtype() == buffer.dtype)?;
        rule("a tensor has its kind", tensor.memory_kind() == buffer.kind)?;
        if buffer.elements == 0 {
            return Ok(None);
        }
        let (start, _) = by_dtype!(tensor, get)?;
        let align = buffer.align.max(buffer.dtype.alignment());
        if !align.is_aligned(start) {
            return Err(ConformanceFault::Misaligned { address: start, align: align.bytes() });
        }
        let before = *self.addresses[number].get_or_insert(start);
        equal("the address of a buffer in a later step", before as u64, start as u64)?;
        let (memory, first) = self.places[number];
        if let Some(base) = self.addresses[memory] {
            equal("the address of a view", (base + first) as u64, start as u64)?;
        }
        Ok(Some((start..start + buffer.bytes(), memory)))
    }

    /// Checks that bytes in different memories do not overlap.
    fn check_spans(&self, mut spans: Vec<(Range<usize>, usize)>) -> Result<(), ConformanceFault> {
        spans.sort_unstable_by_key(|(bytes, _)| bytes.start);
        let mut furthest: Option<(Range<usize>, usize)> = None;
        for (bytes, memory) in spans {
            if let Some((other, other_memory)) = &furthest
                && other.end > bytes.start
                && *other_memory != memory
            {
                let (start, end) = (bytes.start, bytes.end);
                return Err(ConformanceFault::Overlap {
                    start,
                    end,
                    other_start: other.start,
                    other_end: other.end,
                });
            }
            if furthest.as_ref().is_none_or(|(other, _)| other.end < bytes.end) {
                furthest = Some((bytes, memory));
            }
        }
        Ok(())
    }

    /// Checks that different memories are accessed at once, and bytes that several buffers have are not.
    fn check_borrows(&self, engine: &dyn PlannedEngine, step: u64) -> Result<(), ConformanceFault> {
        let mut guards = Vec::new();
        let mut borrowed: Vec<usize> = Vec::new();
        for buffer in self.live(step).filter(|&buffer| self.buffers[buffer].elements > 0) {
            let tensor = engine.tensor(buffer)?;
            let (memory, _) = self.places[buffer];
            if borrowed.contains(&memory) {
                let refused = matches!(by_dtype!(tensor, get), Err(Error::Borrowed { .. }));
                rule("bytes that are being written are not read through another buffer", refused)?;
            } else {
                // All bytes of the memory.
                guards.push(tensor.storage()?.write()?);
                borrowed.push(memory);
            }
        }
        Ok(())
    }

    fn range(&self, buffer: usize) -> (Range<usize>, &[Option<u8>]) {
        let (memory, first) = self.places[buffer];
        let range = first..first + self.buffers[buffer].bytes();
        (range.clone(), &self.contents[memory][range])
    }

    /// Checks the bytes of a tensor, which may be a clone of the one that was lent.
    pub(super) fn check_contents(&self, tensor: &Tensor, buffer: usize) -> Result<(), ConformanceFault> {
        let (address, bytes) = by_dtype!(tensor, get)?;
        let expected = self.range(buffer).1;
        let differs = expected
            .iter()
            .zip(&bytes)
            .position(|(expected, found)| expected.is_some_and(|byte| byte != *found));
        match differs.and_then(|offset| Some((offset, expected[offset]?, bytes[offset]))) {
            None => Ok(()),
            Some((offset, expected, found)) => {
                Err(ConformanceFault::Changed { address, offset, expected, found })
            }
        }
    }

    /// Writes random bytes to a tensor.
    pub(super) fn write(&mut self, tensor: &Tensor, buffer: usize) -> Result<(), ConformanceFault> {
        let count = self.buffers[buffer].bytes();
        let words = std::iter::repeat_with(|| self.random.next_u64().to_ne_bytes());
        let bytes: Vec<u8> = words.take(count.div_ceil(8)).flatten().take(count).collect();
        by_dtype!(tensor, set, &bytes)?;
        let (memory, first) = self.places[buffer];
        for (place, byte) in self.contents[memory][first..].iter_mut().zip(bytes) {
            *place = Some(byte);
        }
        Ok(())
    }
}

/// Returns `true` if a clone of a tensor has lost its bytes.
pub(super) fn is_revoked(tensor: &Tensor) -> bool {
    matches!(by_dtype!(tensor, get), Err(Error::Unbound { .. }))
}
