//! The search for writes outside of lifetimes.
//!
//! Safe code cannot make them, but kernels with addresses can: one that writes through an address it has
//! kept, or beyond the end of its buffer. So a copy of the memory is kept, and compared whenever the clock
//! moves: bytes that were not lent in the step must not have changed. When a part ends, its bytes are
//! overwritten with a pattern, so that a kernel that still reads them gives wrong results.
//!
//! A write through an old address into a part that is lent in the same step is not found: that part may
//! change.

use super::{NEVER, Part, PlannedError, PlannedMemory, is_live};
use crate::host;
use std::ops::Range;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the bytes of a part are overwritten with when it ends: as `f32` or `f64`, a large negative number.
const ENDED: u8 = 0xDB;

/// Bytes that are compared at once.
const PIECE: usize = 4096;

/// The copy of the memory.
#[derive(Debug)]
pub(super) struct Sanitizer {
    copy: Vec<u8>,
    /// By part: whether it was lent since the clock moved last, or is still held.
    lent: Box<[AtomicBool]>,
}

impl Sanitizer {
    /// Returns `None` if there is no memory for the copy.
    pub(super) fn new(memory: &PlannedMemory) -> Option<Self> {
        let mut copy = host::zeros(memory.root.requested).ok()?;
        // Live parts may be held: they are copied when they are not.
        let live = |part: &Part| is_live(&part.lifetime, memory.now);
        let lent = memory.parts.iter().map(|part| AtomicBool::new(live(part))).collect();
        let mut excused: Vec<_> =
            memory.parts.iter().filter(|part| live(part)).map(|part| part.bytes.clone()).collect();
        excused.sort_unstable_by_key(|bytes| bytes.start);
        for gap in gaps(excused.into_iter(), copy.len()) {
            copy[gap.clone()].copy_from_slice(bytes(memory, gap));
        }
        Some(Self { copy, lent })
    }

    /// Notes that a part is lent.
    #[inline]
    pub(super) fn note(&self, part: usize) {
        // Relaxed: read after the clock's `&mut`, which is ordered after all uses.
        self.lent[part].store(true, Ordering::Relaxed);
    }

    /// Compares the bytes of all parts that were not lent, and of none, with the copy, and updates it.
    pub(super) fn check(&mut self, memory: &mut PlannedMemory) -> Result<(), PlannedError> {
        let now = memory.now;
        let mut excused: Vec<(Range<usize>, usize, bool)> = Vec::new();
        for part in 0..memory.parts.len() {
            if is_live(&memory.parts[part].lifetime, now) && *self.lent[part].get_mut() {
                let is_held = !memory.is_part_settled(part);
                excused.push((memory.parts[part].bytes.clone(), part, is_held));
            }
        }
        // Live parts do not overlap.
        excused.sort_unstable_by_key(|(bytes, ..)| bytes.start);
        let (mut start, mut found) = (0, None);
        for (range, part, is_held) in &excused {
            found = found.or_else(|| self.difference(memory, start..range.start.max(start)));
            start = range.end.max(start);
            // Other threads may write to what is still held: it is copied when it is not any more.
            *self.lent[*part].get_mut() = *is_held;
            if !is_held {
                self.copy[range.clone()].copy_from_slice(bytes(memory, range.clone()));
            }
        }
        found = found.or_else(|| self.difference(memory, start..self.copy.len()));
        let Some(byte) = found else { return Ok(()) };
        // Each write is reported once.
        for gap in gaps(excused.iter().map(|(range, ..)| range.clone()), self.copy.len()) {
            self.copy[gap.clone()].copy_from_slice(bytes(memory, gap));
        }
        Err(stray(memory, &excused, byte))
    }

    /// Returns the first byte in the range that differs from the copy.
    fn difference(&self, memory: &PlannedMemory, range: Range<usize>) -> Option<usize> {
        let (start, copy) = (range.start, &self.copy[range.clone()]);
        let pieces = bytes(memory, range).chunks(PIECE).zip(copy.chunks(PIECE));
        let (index, (is, was)) = pieces.enumerate().find(|(_, (is, was))| is != was)?;
        let within = is.iter().zip(was).position(|(is, was)| is != was)?;
        Some(start + index * PIECE + within)
    }

    /// Overwrites the bytes of a part that has ended.
    pub(super) fn end(&mut self, memory: &PlannedMemory, part: usize) {
        let range = memory.parts[part].bytes.clone();
        let count = range.len();
        // SAFETY: inside the block (`check` of the parts).
        let first = unsafe { memory.root.ptr.add(range.start) };
        // SAFETY: as above. The part has ended, so no handle to it works, and no live part has its bytes.
        unsafe { first.write_bytes(ENDED, count) };
        self.copy[range].fill(ENDED);
        *self.lent[part].get_mut() = false;
    }
}

/// Returns the ranges between the excused ones.
fn gaps(
    excused: impl Iterator<Item = Range<usize>> + Clone,
    end: usize,
) -> impl Iterator<Item = Range<usize>> {
    let starts = std::iter::once(0).chain(excused.clone().map(|range| range.end));
    let ends = excused.map(|range| range.start).chain(std::iter::once(end));
    starts.zip(ends).map(|(start, end)| start..end.max(start))
}

/// Returns bytes that no other thread writes: of parts that are not held, and of no live part.
fn bytes(memory: &PlannedMemory, range: Range<usize>) -> &[u8] {
    // SAFETY: inside the block.
    let first = unsafe { memory.root.ptr.add(range.start) };
    // SAFETY: initialised, because the host can access them (`sanitize`). Nothing writes meanwhile: there is
    // no handle to these bytes but the prepared ones, which the caller borrows exclusively.
    unsafe { slice::from_raw_parts(first.as_ptr(), range.len()) }
}

/// Names the parts around a byte that was changed.
fn stray(memory: &PlannedMemory, excused: &[(Range<usize>, usize, bool)], byte: usize) -> PlannedError {
    let now = memory.now;
    let tensor = |part: usize| memory.parts[part].slots.start;
    let with_byte = || (0..memory.parts.len()).filter(|&part| memory.parts[part].bytes.contains(&byte));
    let start = |&part: &usize| memory.parts[part].lifetime.start;
    let end = |&part: &usize| memory.parts[part].lifetime.end;
    let live = with_byte().find(|&part| is_live(&memory.parts[part].lifetime, now));
    let before = with_byte().filter(|part| end(part) <= now && end(part) != NEVER).max_by_key(end);
    let after = with_byte().filter(|part| start(part) > now).min_by_key(start);
    // The lent part that ends closest below may have been written beyond its end.
    let below = excused.iter().rfind(|(range, ..)| range.end <= byte).map(|&(_, part, _)| part);
    let (written, other) = match live {
        Some(live) => (Some(live), before.or(below)),
        None => (before, after.or(below)),
    };
    let is_live = live.is_some();
    PlannedError::StrayWrite {
        byte,
        step: now,
        written: written.map(tensor),
        is_live,
        other: other.map(tensor),
    }
}
