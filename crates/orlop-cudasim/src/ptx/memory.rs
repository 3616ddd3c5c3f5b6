//! The global memory of a launch: recorded when it is submitted, read and written when it runs.

use crate::codes::{Failure, Outcome};
use crate::memory::MemoryAccess;
use orlop_race::AccessKind;
use std::ptr;

/// Global memory, as threads see it. Addresses are aligned to the number of bytes, which is at most 8.
pub(crate) trait GlobalMemory {
    /// The accesses from now on are those of the next thread.
    fn begin_thread(&mut self) {}

    /// Returns a value, or `None` while there is none to be known.
    fn load(&mut self, address: u64, bytes: usize) -> Outcome<Option<u64>>;

    fn store(&mut self, address: u64, bytes: usize, value: u64) -> Outcome;
}

/// Records accesses; there is no data.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    reads: Vec<(usize, usize)>,
    writes: Vec<(usize, usize)>,
    /// What the current thread wrote so far.
    own: Vec<(usize, usize)>,
}

impl Recorder {
    /// Returns bytes that two threads write. Threads of a launch are not ordered.
    pub(crate) fn written_twice(&self) -> Option<MemoryAccess> {
        let mut writes = self.writes.clone();
        writes.sort_unstable();
        let mut end = 0;
        writes.into_iter().find_map(|(start, next_end)| {
            let overlap = end.min(next_end).saturating_sub(start);
            end = end.max(next_end);
            (overlap > 0).then(|| MemoryAccess::write(start, overlap))
        })
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
    fn begin_thread(&mut self) {
        self.own.clear();
    }

    fn load(&mut self, address: u64, bytes: usize) -> Outcome<Option<u64>> {
        add(&mut self.reads, range(address, bytes)?);
        Ok(None)
    }

    fn store(&mut self, address: u64, bytes: usize, _: u64) -> Outcome {
        let (start, end) = range(address, bytes)?;
        // What the thread has written before is not new.
        let is_known = |byte: &usize| self.own.iter().any(|own| (own.0..own.1).contains(byte));
        let new: Vec<usize> = (start..end).filter(|byte| !is_known(byte)).collect();
        new.into_iter().for_each(|byte| add(&mut self.writes, (byte, byte + 1)));
        self.own.push((start, end));
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
