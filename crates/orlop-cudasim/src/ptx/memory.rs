//! The global memory of a launch: recorded when it is submitted, read and written when it runs.

use super::races::{ThreadAccess, Turn, race};
use crate::codes::{Failure, Outcome};
use crate::memory::MemoryAccess;
use orlop_race::AccessKind;
use std::ptr;

/// Global memory, as threads see it. Addresses are aligned to the number of bytes, which is at most 8.
pub(crate) trait GlobalMemory {
    /// The accesses from now on are those of a thread between two barriers.
    fn begin_turn(&mut self, turn: Turn) {
        let _ = turn;
    }

    /// Notes an access to shared memory.
    fn note_shared(&mut self, address: u64, bytes: usize, is_write: bool) {
        let _ = (address, bytes, is_write);
    }

    /// The accesses from now on are to the shared memory of another block.
    fn end_block(&mut self) {}

    /// Returns a value, or `None` while there is none to be known.
    fn load(&mut self, address: u64, bytes: usize) -> Outcome<Option<u64>>;

    fn store(&mut self, address: u64, bytes: usize, value: u64) -> Outcome;
}

/// Records accesses; there is no data.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    turn: Turn,
    reads: Vec<(usize, usize)>,
    writes: Vec<(usize, usize)>,
    /// All of them, by thread.
    by_thread: Vec<ThreadAccess>,
    /// Those to the shared memory of this block.
    shared: Vec<ThreadAccess>,
    race: Option<(MemoryAccess, MemoryAccess)>,
}

impl Recorder {
    /// Returns two accesses of threads that nothing orders, of which one is a write. Addresses of shared
    /// memory are small numbers.
    pub(crate) fn race(&mut self) -> Option<(MemoryAccess, MemoryAccess)> {
        self.end_block();
        self.race.or_else(|| race(std::mem::take(&mut self.by_thread)))
    }

    /// Returns the accesses, reads before writes, each in the order of addresses, as few ranges as there are.
    pub(crate) fn finish(self) -> Vec<MemoryAccess> {
        let of = |ranges, access: fn(usize, usize) -> MemoryAccess| {
            joined(ranges).into_iter().map(move |(start, end)| access(start, end - start))
        };
        of(self.reads, MemoryAccess::read).chain(of(self.writes, MemoryAccess::write)).collect()
    }
}

fn range(address: u64, bytes: usize) -> Outcome<(usize, usize)> {
    let start = usize::try_from(address).map_err(|_| Failure::ILLEGAL_ADDRESS)?;
    Ok((start, start.checked_add(bytes).ok_or(Failure::ILLEGAL_ADDRESS)?))
}

/// Adds a range, to the last one if it continues there.
fn add(ranges: &mut Vec<(usize, usize)>, (start, end): (usize, usize)) {
    match ranges.last_mut() {
        Some(last) if last.1 == start => last.1 = end,
        _ => ranges.push((start, end)),
    }
}

/// Sorts ranges, and joins those that touch or overlap.
fn joined(mut ranges: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    ranges.sort_unstable();
    let mut joined: Vec<(usize, usize)> = Vec::new();
    for (start, end) in ranges {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}

impl GlobalMemory for Recorder {
    fn begin_turn(&mut self, turn: Turn) {
        self.turn = turn;
    }

    fn note_shared(&mut self, address: u64, bytes: usize, is_write: bool) {
        if let Ok(range) = range(address, bytes) {
            self.shared.push(ThreadAccess::new(self.turn, range, is_write));
        }
    }

    fn end_block(&mut self) {
        let shared = std::mem::take(&mut self.shared);
        self.race = self.race.or_else(|| race(shared));
    }

    fn load(&mut self, address: u64, bytes: usize) -> Outcome<Option<u64>> {
        let range = range(address, bytes)?;
        self.by_thread.push(ThreadAccess::new(self.turn, range, false));
        add(&mut self.reads, range);
        Ok(None)
    }

    fn store(&mut self, address: u64, bytes: usize, _: u64) -> Outcome {
        let range = range(address, bytes)?;
        self.by_thread.push(ThreadAccess::new(self.turn, range, true));
        add(&mut self.writes, range);
        Ok(())
    }
}

/// The memory of a launch that runs: what it was found to access when it was submitted.
#[derive(Debug)]
pub(crate) struct AccessedMemory<'a> {
    reads: &'a [MemoryAccess],
    writes: &'a [MemoryAccess],
}

impl<'a> AccessedMemory<'a> {
    /// `accesses` is what [`Recorder::finish`] returned.
    pub(crate) fn new(accesses: &'a [MemoryAccess]) -> Self {
        let reads = accesses.partition_point(|access| access.kind == AccessKind::Read);
        let (reads, writes) = accesses.split_at(reads);
        Self { reads, writes }
    }
}

/// Returns the address if it is within the ranges.
fn within(ranges: &[MemoryAccess], address: u64, bytes: usize) -> Outcome<usize> {
    let address = usize::try_from(address).map_err(|_| Failure::ILLEGAL_ADDRESS)?;
    let place = ranges.partition_point(|range| range.address <= address);
    let range = place.checked_sub(1).map(|place| ranges[place]).ok_or(Failure::ILLEGAL_ADDRESS)?;
    let inside = (address - range.address).checked_add(bytes).is_some_and(|end| end <= range.bytes);
    if inside { Ok(address) } else { Err(Failure::ILLEGAL_ADDRESS) }
}

impl GlobalMemory for AccessedMemory<'_> {
    fn load(&mut self, address: u64, bytes: usize) -> Outcome<Option<u64>> {
        let from = ptr::with_exposed_provenance::<u8>(within(self.reads, address, bytes)?);
        let mut value = [0; 8];
        let to = value.get_mut(..bytes).ok_or(Failure::INVALID_VALUE)?;
        // SAFETY: `execute` has checked just before that all accesses of the launch are to memory that is
        // there, and it holds the lock; `to` has this many bytes of its own.
        unsafe { from.copy_to_nonoverlapping(to.as_mut_ptr(), bytes) };
        Ok(Some(u64::from_le_bytes(value)))
    }

    fn store(&mut self, address: u64, bytes: usize, value: u64) -> Outcome {
        let to = ptr::with_exposed_provenance_mut::<u8>(within(self.writes, address, bytes)?);
        let value = value.to_le_bytes();
        let from = value.get(..bytes).ok_or(Failure::INVALID_VALUE)?;
        // SAFETY: as above, and writable; `from` has this many bytes.
        unsafe { to.copy_from_nonoverlapping(from.as_ptr(), bytes) };
        Ok(())
    }
}
