//! The search for stray writes.
//!
//! Safe code cannot make them, but kernels with addresses can: one that writes through an address it has
//! kept, or beyond the end of its buffer. So a copy of the memory is kept, and compared when the clock moves,
//! and when a step first lends a part. Bytes may have changed only if their part was lent, and written: the
//! storage counts its writes, an address for writing among them. When a part ends, its bytes are overwritten
//! with a pattern, so that a kernel that still reads them gives wrong results.
//!
//! So a write through an old address into bytes that have another owner is found: before the step lends that
//! part, in a step that only reads it, and in one that does not use it. It is not found in the time between,
//! if the step writes the part itself, because then the part may change. Nor is it while the part is held: by
//! a clone, a view, an export, or, if it never ends, an address that was handed out.

use super::{NEVER, Part, PlannedError, PlannedMemory, Unsanitizable, is_live};
use crate::host;
use std::ops::Range;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// What the bytes of a part are overwritten with when it ends: as `f32` or `f64`, a large negative number.
const ENDED: u8 = 0xDB;

/// Bytes that are compared at once.
const PIECE: usize = 4096;

/// No byte.
const NONE: usize = usize::MAX;

/// The copy of the memory. Nothing is compared after a device may use the memory for an unknown time:
/// see [`Record::record_unfinished`](orlop_alloc::engine_support::Record::record_unfinished).
#[derive(Debug)]
pub(super) struct Sanitizer {
    copy: Vec<u8>,
    uses: Box<[PartUse]>,
    /// Held while a part is compared before it is lent.
    lending: Mutex<()>,
    /// The first byte that had changed before its part was lent, or [`NONE`].
    changed: AtomicUsize,
}

/// The use of a part since the clock moved last.
#[derive(Debug)]
struct PartUse {
    /// Whether it was lent, or is still held.
    is_lent: AtomicBool,
    /// The number of its writes when the clock moved. `None` if it was held then, or is another storage: it
    /// may be written without an increment.
    writes: Option<u64>,
}

impl Sanitizer {
    /// Copies the memory.
    pub(super) fn new(memory: &PlannedMemory) -> Result<Self, Unsanitizable> {
        let device = memory.root.device;
        if !memory.root.is_host_accessible() {
            return Err(Unsanitizable::NotHostAccessible { device });
        }
        if memory.is_streamed {
            // Streams may use a part that has ended.
            return Err(Unsanitizable::Streams { device });
        }
        let no_memory = |error| Unsanitizable::NoMemory(Box::new(error));
        let mut copy = host::zeros(memory.root.requested).map_err(no_memory)?;
        // Live parts may be held: they are copied when they are not.
        let live = |part: &Part| is_live(&part.lifetime, memory.now);
        let uses = memory.parts.iter();
        let uses = uses.map(|part| PartUse { is_lent: AtomicBool::new(live(part)), writes: None }).collect();
        let mut excused: Vec<_> =
            memory.parts.iter().filter(|part| live(part)).map(|part| part.bytes.clone()).collect();
        excused.sort_unstable_by_key(|bytes| bytes.start);
        for gap in gaps(excused.into_iter(), copy.len()) {
            copy[gap.clone()].copy_from_slice(bytes(memory, gap));
        }
        Ok(Self { copy, uses, lending: Mutex::new(()), changed: AtomicUsize::new(NONE) })
    }

    /// Notes that a part is lent. The first time in a step, it must be as it was.
    #[inline]
    pub(super) fn note(&self, memory: &PlannedMemory, part: usize) {
        // Acquire: the comparison comes before the uses of the thread that is lent the part.
        if !self.uses[part].is_lent.load(Ordering::Acquire) {
            self.lend(memory, part);
        }
    }

    #[cold]
    fn lend(&self, memory: &PlannedMemory, part: usize) {
        let _lending = self.lending.lock().unwrap_or_else(PoisonError::into_inner);
        if self.uses[part].is_lent.load(Ordering::Relaxed) {
            return;
        }
        // The part is not in use: no guard has it, and threads that request it wait for the lock.
        if let Some(byte) = self.difference(memory, memory.parts[part].bytes.clone()) {
            // Relaxed: read after the clock's `&mut`, which is ordered after all uses.
            self.changed.fetch_min(byte, Ordering::Relaxed);
        }
        self.uses[part].is_lent.store(true, Ordering::Release);
    }

    /// Notes that a part has another storage.
    pub(super) fn renew(&mut self, part: usize) {
        self.uses[part].writes = None;
    }

    /// Compares the bytes of all parts that were not written, and of none, with the copy, and updates it.
    pub(super) fn check(&mut self, memory: &mut PlannedMemory) -> Result<(), PlannedError> {
        if !memory.root.is_host_accessible() {
            return Ok(());
        }
        let now = memory.now;
        let mut excused: Vec<(Range<usize>, usize, bool)> = Vec::new();
        for part in 0..memory.parts.len() {
            if is_live(&memory.parts[part].lifetime, now) && *self.uses[part].is_lent.get_mut() {
                let is_held = !memory.is_part_unheld(part);
                let writes = memory.version_of(part);
                let is_read_only = !is_held && writes.is_some() && self.uses[part].writes == writes;
                self.uses[part].writes = writes.filter(|_| !is_held);
                // Other threads may write to what is still held: it is copied when it is not any more.
                *self.uses[part].is_lent.get_mut() = is_held;
                if !is_read_only {
                    excused.push((memory.parts[part].bytes.clone(), part, is_held));
                }
            }
        }
        // Live parts do not overlap.
        excused.sort_unstable_by_key(|(bytes, ..)| bytes.start);
        let changed = std::mem::replace(self.changed.get_mut(), NONE);
        let (mut start, mut found) = (0, (changed != NONE).then_some(changed));
        for (range, _, is_held) in &excused {
            found = found.or_else(|| self.difference(memory, start..range.start.max(start)));
            start = range.end.max(start);
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
        if !memory.root.is_host_accessible() {
            return None;
        }
        let (start, copy) = (range.start, &self.copy[range.clone()]);
        let pieces = bytes(memory, range).chunks(PIECE).zip(copy.chunks(PIECE));
        let (index, (is, was)) = pieces.enumerate().find(|(_, (is, was))| is != was)?;
        let within = is.iter().zip(was).position(|(is, was)| is != was)?;
        Some(start + index * PIECE + within)
    }

    /// Overwrites the bytes of a part that has ended.
    pub(super) fn end(&mut self, memory: &PlannedMemory, part: usize) {
        if !memory.root.is_host_accessible() {
            return;
        }
        let range = memory.parts[part].bytes.clone();
        let count = range.len();
        // SAFETY: inside the block (`check` of the parts).
        let first = unsafe { memory.root.ptr.add(range.start) };
        // SAFETY: as above. The part has ended, so no handle to it works, and no live part has its bytes.
        unsafe { first.write_bytes(ENDED, count) };
        self.copy[range].fill(ENDED);
        *self.uses[part].is_lent.get_mut() = false;
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
    // Of the tensors in a part the one that is live; else the last before, or the first after.
    let tensor = |part: usize| {
        let slots = memory.parts[part].slots.clone();
        let distance = |slot: &usize| match &memory.slots[*slot].lifetime {
            lifetime if is_live(lifetime, now) => 0,
            lifetime if lifetime.end <= now => now - lifetime.end + 1,
            lifetime => lifetime.start - now,
        };
        slots.clone().min_by_key(distance).unwrap_or(slots.start)
    };
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
