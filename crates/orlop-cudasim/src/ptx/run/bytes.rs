//! The memory of a block and of a thread: [`SharedVariables`], [`SharedMemory`], [`LocalMemory`].
//!
//! Each has addresses of its own, which begin at a small number, and others in a window of generic addresses
//! (`cvta.shared`, `cvta.local`).

use crate::codes::{Failure, Outcome};
use std::ops::Range;

/// The first address in each memory: not zero, so that a null pointer is found.
const START: u64 = 1024;

/// Where the shared memory begins that a launch adds: behind a gap, so that an access beyond a variable is
/// found.
const DYNAMIC: u64 = 1 << 24;

/// Added to an address in shared memory, it is a generic one. No device has memory there.
pub(in crate::ptx) const SHARED_WINDOW: u64 = 1 << 56;

/// The same for local memory.
pub(in crate::ptx) const LOCAL_WINDOW: u64 = 1 << 57;

/// The most bytes of shared variables; more come with a launch.
const MAX_SHARED: usize = 48 << 10;

/// The most bytes of shared memory that a launch adds.
pub(crate) const MAX_DYNAMIC_SHARED: u32 = 227 << 10;

/// The most bytes of local memory of a thread.
pub(in crate::ptx) const MAX_LOCAL: usize = 512 << 10;

/// The shared variables that a kernel knows by name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::ptx) struct SharedVariables {
    bytes: usize,
}

impl SharedVariables {
    /// Adds a variable. Returns its address.
    pub(in crate::ptx) fn add(&mut self, bytes: usize, alignment: usize) -> Option<u64> {
        let start = self.bytes.checked_next_multiple_of(alignment)?;
        self.bytes = start.checked_add(bytes).filter(|&end| end <= MAX_SHARED)?;
        Some(START + start as u64)
    }

    /// Returns the address of the memory that a launch adds.
    pub(in crate::ptx) fn dynamic() -> u64 {
        DYNAMIC
    }

    /// Creates the memory of a block, with the bytes that a launch adds.
    pub(super) fn memory(&self, dynamic: u32) -> SharedMemory {
        let dynamic = KnownBytes(vec![None; dynamic as usize]);
        SharedMemory { fixed: KnownBytes(vec![None; self.bytes]), dynamic }
    }
}

/// Bytes: `None` while nothing that is known was stored there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnownBytes(pub(super) Vec<Option<u8>>);

impl KnownBytes {
    fn place(&self, start: u64, bytes: usize) -> Outcome<Range<usize>> {
        let start = usize::try_from(start).map_err(|_| Failure::ILLEGAL_ADDRESS)?;
        let end = start.checked_add(bytes).filter(|&end| end <= self.0.len());
        Ok(start..end.ok_or(Failure::ILLEGAL_ADDRESS)?)
    }

    pub(super) fn load(&self, start: u64, bytes: usize) -> Outcome<Option<u64>> {
        let stored = &self.0[self.place(start, bytes)?];
        Ok(stored.iter().rev().try_fold(0, |value, byte| Some(value << 8 | u64::from((*byte)?))))
    }

    pub(super) fn store(&mut self, start: u64, bytes: usize, value: Option<u64>) -> Outcome {
        let place = self.place(start, bytes)?;
        let bytes = value.map(u64::to_le_bytes);
        for (index, stored) in self.0[place].iter_mut().enumerate() {
            *stored = bytes.map(|bytes| bytes[index]);
        }
        Ok(())
    }
}

/// The shared memory of a block.
#[derive(Debug)]
pub(super) struct SharedMemory {
    fixed: KnownBytes,
    dynamic: KnownBytes,
}

impl SharedMemory {
    pub(super) fn load(&self, address: u64, bytes: usize) -> Outcome<Option<u64>> {
        match address.checked_sub(DYNAMIC) {
            Some(start) => self.dynamic.load(start, bytes),
            None => self.fixed.load(address.checked_sub(START).ok_or(Failure::ILLEGAL_ADDRESS)?, bytes),
        }
    }

    pub(super) fn store(&mut self, address: u64, bytes: usize, value: Option<u64>) -> Outcome {
        match address.checked_sub(DYNAMIC) {
            Some(start) => self.dynamic.store(start, bytes, value),
            None => {
                let start = address.checked_sub(START).ok_or(Failure::ILLEGAL_ADDRESS)?;
                self.fixed.store(start, bytes, value)
            }
        }
    }
}

/// The local memory of a thread: a stack of the variables of the functions that it is in.
#[derive(Debug)]
pub(super) struct LocalMemory(KnownBytes);

impl LocalMemory {
    pub(super) fn new() -> Self {
        Self(KnownBytes(Vec::new()))
    }

    /// Adds the variables of a function. Returns where they begin.
    pub(super) fn push(&mut self, bytes: usize) -> Outcome<u64> {
        let start = self.0.0.len().next_multiple_of(16);
        let end = start.checked_add(bytes).filter(|&end| end <= MAX_LOCAL);
        self.0.0.resize(end.ok_or(Failure::HARDWARE_STACK_ERROR)?, None);
        Ok(START + start as u64)
    }

    /// Removes the variables of a function, which begin here.
    pub(super) fn pop(&mut self, start: u64) {
        self.0.0.truncate(usize::try_from(start - START).unwrap_or(0));
    }

    pub(super) fn load(&self, address: u64, bytes: usize) -> Outcome<Option<u64>> {
        self.0.load(address.checked_sub(START).ok_or(Failure::ILLEGAL_ADDRESS)?, bytes)
    }

    pub(super) fn store(&mut self, address: u64, bytes: usize, value: Option<u64>) -> Outcome {
        self.0.store(address.checked_sub(START).ok_or(Failure::ILLEGAL_ADDRESS)?, bytes, value)
    }
}
