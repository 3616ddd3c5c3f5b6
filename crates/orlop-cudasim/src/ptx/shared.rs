//! [`SharedVariables`] and [`SharedMemory`]: the memory of a block.
//!
//! It has addresses of its own, which begin at a small number, and others in the window of generic addresses
//! (`cvta.shared`).

use crate::codes::{Failure, Outcome};
use std::ops::Range;

/// The first address in shared memory: not zero, so that a null pointer is found.
const START: u64 = 1024;

/// Added to an address in shared memory, it is a generic one. No device has memory there.
pub(super) const WINDOW: u64 = 1 << 56;

/// The shared variables that a kernel knows by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SharedVariables {
    bytes: usize,
}

impl SharedVariables {
    /// Adds a variable. Returns its address.
    pub(super) fn add(&mut self, bytes: usize, alignment: usize) -> Option<u64> {
        let start = self.bytes.checked_next_multiple_of(alignment)?;
        self.bytes = start.checked_add(bytes)?;
        Some(START + start as u64)
    }

    /// Returns the address of the memory that a launch adds, behind all variables.
    pub(super) fn dynamic(&self, alignment: usize) -> Option<u64> {
        Some(START + self.bytes.checked_next_multiple_of(alignment)? as u64)
    }

    /// Creates the memory of a block, with the bytes that a launch adds.
    pub(super) fn memory(&self, dynamic: u32) -> SharedMemory {
        // The added memory begins at a multiple of 16 at most.
        SharedMemory(vec![None; self.bytes.next_multiple_of(16) + dynamic as usize])
    }
}

/// The shared memory of a block, by bytes: `None` while nothing that is known was stored there.
#[derive(Debug)]
pub(super) struct SharedMemory(Vec<Option<u8>>);

impl SharedMemory {
    fn place(&self, address: u64, bytes: usize) -> Outcome<Range<usize>> {
        let start = address.checked_sub(START).and_then(|start| usize::try_from(start).ok());
        let start = start.ok_or(Failure::ILLEGAL_ADDRESS)?;
        let end = start.checked_add(bytes).filter(|&end| end <= self.0.len());
        Ok(start..end.ok_or(Failure::ILLEGAL_ADDRESS)?)
    }

    pub(super) fn load(&self, address: u64, bytes: usize) -> Outcome<Option<u64>> {
        let stored = &self.0[self.place(address, bytes)?];
        Ok(stored.iter().rev().try_fold(0, |value, byte| Some(value << 8 | u64::from((*byte)?))))
    }

    pub(super) fn store(&mut self, address: u64, bytes: usize, value: Option<u64>) -> Outcome {
        let place = self.place(address, bytes)?;
        let bytes = value.map(u64::to_le_bytes);
        for (index, stored) in self.0[place].iter_mut().enumerate() {
            *stored = bytes.map(|bytes| bytes[index]);
        }
        Ok(())
    }
}
