//! The global memory of a launch: recorded when it is submitted, read and written when it runs.

use super::races::{Meetings, ThreadAccess, ThreadAccessKind, Turn};
use crate::codes::{Failure, Outcome};
use crate::memory::MemoryAccess;
use crate::ptx::instruction::Scope;
use orlop_race::AccessKind;
use std::ptr;

/// Global memory, as threads see it. Addresses are aligned to the number of bytes, which is at most 8.
pub(crate) trait GlobalMemory {
    /// The accesses from now on are those of a thread between two barriers.
    fn begin_turn(&mut self, turn: Turn) {
        let _ = turn;
    }

    /// Notes an access to shared memory.
    fn note_shared(&mut self, address: u64, bytes: usize, kind: ThreadAccessKind) {
        let _ = (address, bytes, kind);
    }

    /// Notes a barrier of lanes of a warp, each with the number of its last one. Returns its number.
    fn meet(&mut self, lanes: &[(usize, usize)]) -> usize {
        let _ = lanes;
        0
    }

    /// The accesses from now on are to the shared memory of another block.
    fn end_block(&mut self) {}

    /// Returns a value, or `None` while there is none to be known.
    fn load(&mut self, address: u64, bytes: usize) -> Outcome<Option<u64>>;

    fn store(&mut self, address: u64, bytes: usize, value: u64) -> Outcome;

    /// Changes a value atomically. Returns the old one, or `None` while there is none to be known.
    fn update(
        &mut self,
        address: u64,
        bytes: usize,
        scope: Scope,
        change: &dyn Fn(u64) -> u64,
    ) -> Outcome<Option<u64>>;
}

/// Records accesses; there is no data.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    turn: Turn,
    reads: Vec<(usize, usize)>,
    writes: Vec<(usize, usize)>,
    atomics: Vec<(usize, usize)>,
    /// All of them, by thread.
    by_thread: Vec<ThreadAccess>,
    /// Those to the shared memory of this block.
    shared: Vec<ThreadAccess>,
    meetings: Meetings,
    race: Option<(MemoryAccess, MemoryAccess)>,
}

impl Recorder {
    /// Returns two accesses of threads that nothing orders, of which one is a write. Addresses of shared
    /// memory are small numbers.
    pub(crate) fn race(&mut self) -> Option<(MemoryAccess, MemoryAccess)> {
        self.end_block();
        self.race.or_else(|| self.meetings.race(std::mem::take(&mut self.by_thread)))
    }

    /// Returns the accesses: reads, atomic operations and writes, each in the order of addresses, as few
    /// ranges as there are.
    pub(crate) fn finish(self) -> Vec<MemoryAccess> {
        let of = |ranges, access: fn(usize, usize) -> MemoryAccess| {
            joined(ranges).into_iter().map(move |(start, end)| access(start, end - start))
        };
        let reads = of(self.reads, MemoryAccess::read);
        let others = of(self.atomics, MemoryAccess::atomic).chain(of(self.writes, MemoryAccess::write));
        reads.chain(others).collect()
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

    fn note_shared(&mut self, address: u64, bytes: usize, kind: ThreadAccessKind) {
        if let Ok(range) = range(address, bytes) {
            self.shared.push(ThreadAccess::new(self.turn, range, kind));
        }
    }

    fn meet(&mut self, lanes: &[(usize, usize)]) -> usize {
        self.meetings.add(lanes)
    }

    fn end_block(&mut self) {
        let shared = std::mem::take(&mut self.shared);
        self.race = self.race.or_else(|| self.meetings.race(shared));
    }

    fn load(&mut self, address: u64, bytes: usize) -> Outcome<Option<u64>> {
        let range = range(address, bytes)?;
        self.by_thread.push(ThreadAccess::new(self.turn, range, ThreadAccessKind::Read));
        add(&mut self.reads, range);
        Ok(None)
    }

    fn store(&mut self, address: u64, bytes: usize, _: u64) -> Outcome {
        let range = range(address, bytes)?;
        self.by_thread.push(ThreadAccess::new(self.turn, range, ThreadAccessKind::Write));
        add(&mut self.writes, range);
        Ok(())
    }

    fn update(
        &mut self,
        address: u64,
        bytes: usize,
        scope: Scope,
        _: &dyn Fn(u64) -> u64,
    ) -> Outcome<Option<u64>> {
        let range = range(address, bytes)?;
        self.by_thread.push(ThreadAccess::new(self.turn, range, ThreadAccessKind::Atomic(scope)));
        // To other launches, those of a block are writes.
        add(if scope == Scope::Block { &mut self.writes } else { &mut self.atomics }, range);
        Ok(None)
    }
}

/// The memory of a launch that runs: what it was found to access when it was submitted.
#[derive(Debug)]
pub(crate) struct AccessedMemory<'a> {
    reads: &'a [MemoryAccess],
    atomics: &'a [MemoryAccess],
    writes: &'a [MemoryAccess],
}

impl<'a> AccessedMemory<'a> {
    /// `accesses` is what [`Recorder::finish`] returned.
    pub(crate) fn new(accesses: &'a [MemoryAccess]) -> Self {
        let reads = accesses.partition_point(|access| access.kind == AccessKind::Read);
        let (reads, others) = accesses.split_at(reads);
        let atomics = others.partition_point(|access| access.kind == AccessKind::Atomic);
        let (atomics, writes) = others.split_at(atomics);
        Self { reads, atomics, writes }
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

/// Reads a value at an address that was checked.
fn read(address: usize, bytes: usize) -> Outcome<u64> {
    let mut value = [0; 8];
    let to = value.get_mut(..bytes).ok_or(Failure::INVALID_VALUE)?;
    let from = ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: `execute` has checked just before that all accesses of the launch are to memory that is there,
    // and it holds the lock; `to` has this many bytes of its own.
    unsafe { from.copy_to_nonoverlapping(to.as_mut_ptr(), bytes) };
    Ok(u64::from_le_bytes(value))
}

/// Writes a value at an address that was checked for writes.
fn write(address: usize, bytes: usize, value: u64) -> Outcome {
    let value = value.to_le_bytes();
    let from = value.get(..bytes).ok_or(Failure::INVALID_VALUE)?;
    let to = ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: as in `read`, and writable; `from` has this many bytes.
    unsafe { to.copy_from_nonoverlapping(from.as_ptr(), bytes) };
    Ok(())
}

impl GlobalMemory for AccessedMemory<'_> {
    fn load(&mut self, address: u64, bytes: usize) -> Outcome<Option<u64>> {
        read(within(self.reads, address, bytes)?, bytes).map(Some)
    }

    fn store(&mut self, address: u64, bytes: usize, value: u64) -> Outcome {
        write(within(self.writes, address, bytes)?, bytes, value)
    }

    fn update(
        &mut self,
        address: u64,
        bytes: usize,
        scope: Scope,
        change: &dyn Fn(u64) -> u64,
    ) -> Outcome<Option<u64>> {
        let ranges = if scope == Scope::Block { self.writes } else { self.atomics };
        let address = within(ranges, address, bytes)?;
        let old = read(address, bytes)?;
        write(address, bytes, change(old))?;
        Ok(Some(old))
    }
}
