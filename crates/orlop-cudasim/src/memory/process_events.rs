//! Events that processes share: counters in the last part of each process's file.
//!
//! The process that created an event has its counters, and every process that opened it maps them. A record
//! has a number, whichever process makes it. A record that completes leaves its number in a ring, so that
//! those of several streams may complete in any order.

use super::arena::EVENTS;
use super::{ExportedMemory, Memory};
use crate::codes::{Failure, Outcome};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of an event: the number of records, the last that a process waits for, and the ring.
const WORDS: usize = 64;
const RECORDED: usize = 0;
const WANTED: usize = 1;
const RING: usize = 2;

const SLOT: usize = WORDS * size_of::<AtomicU64>();

/// The mapped counters of a process's events.
#[derive(Debug)]
struct MappedEvents {
    address: usize,
}

impl MappedEvents {
    fn new(file: &OwnedFd, offset: usize) -> Option<Self> {
        let offset = libc::off_t::try_from(offset).ok()?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping anywhere changes no other one.
        let mapped = unsafe {
            libc::mmap(ptr::null_mut(), EVENTS, access, libc::MAP_SHARED, file.as_raw_fd(), offset)
        };
        (mapped != libc::MAP_FAILED).then(|| Self { address: mapped.expose_provenance() })
    }

    fn words(&self, slot: usize) -> &[AtomicU64; WORDS] {
        debug_assert!(slot.is_multiple_of(SLOT) && slot < EVENTS);
        // SAFETY: the slot is within the mapping, which lives as long as this value and is aligned to pages;
        // all processes access it by atomic operations only.
        unsafe { &*ptr::with_exposed_provenance(self.address + slot) }
    }
}

impl Drop for MappedEvents {
    fn drop(&mut self) {
        // SAFETY: a mapping of this value, to which no reference is left.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(self.address), EVENTS) };
    }
}

/// The counters that this process's events take.
#[derive(Debug, Default)]
pub(super) struct EventSlots {
    mapped: Option<Arc<MappedEvents>>,
    /// The number of slots that were ever taken, and those that are free again.
    taken: usize,
    free: Vec<usize>,
}

/// An event that processes share.
#[derive(Debug, Clone)]
pub(crate) struct ProcessEvent {
    mapped: Arc<MappedEvents>,
    slot: usize,
    is_own: bool,
}

/// One record of an event. Its number is at least 1.
#[derive(Debug, Clone)]
pub(crate) struct ProcessRecord {
    event: ProcessEvent,
    generation: u64,
}

impl ProcessEvent {
    fn word(&self, index: usize) -> &AtomicU64 {
        &self.mapped.words(self.slot)[index]
    }

    /// Counts a record.
    pub(crate) fn record(&self) -> ProcessRecord {
        let generation = self.word(RECORDED).fetch_add(1, Ordering::AcqRel) + 1;
        ProcessRecord { event: self.clone(), generation }
    }

    /// Returns the last record of any process; 0 is none.
    pub(crate) fn latest(&self) -> ProcessRecord {
        ProcessRecord { event: self.clone(), generation: self.word(RECORDED).load(Ordering::Acquire) }
    }
}

impl ProcessRecord {
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    fn completed(&self) -> &AtomicU64 {
        let ring = (WORDS - RING) as u64;
        let index = usize::try_from(self.generation % ring).unwrap_or(0);
        self.event.word(RING + index)
    }

    /// Notes that the work before the record is done. Release: with the load of who waits.
    pub(crate) fn complete(&self) {
        self.completed().fetch_max(self.generation, Ordering::Release);
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.completed().load(Ordering::Acquire) >= self.generation
    }

    /// Makes the process that recorded it complete it, also if that one calls nothing meanwhile.
    pub(crate) fn want(&self) {
        self.event.word(WANTED).fetch_max(self.generation, Ordering::AcqRel);
    }

    /// Returns `true` if a process waits for this record, or a later one.
    pub(crate) fn is_wanted(&self) -> bool {
        self.event.word(WANTED).load(Ordering::Acquire) >= self.generation
    }
}

impl Memory {
    /// Creates an event that other processes can open.
    pub(crate) fn create_process_event(&mut self) -> Outcome<ProcessEvent> {
        let mapped = match &self.event_slots.mapped {
            Some(mapped) => mapped.clone(),
            None => {
                let (file, offset) = self.arena()?.events();
                Arc::new(MappedEvents::new(file, offset).ok_or(Failure::OPERATING_SYSTEM)?)
            }
        };
        let slots = &mut self.event_slots;
        slots.mapped = Some(mapped.clone());
        let slot = match slots.free.pop() {
            Some(free) => free,
            None if slots.taken < EVENTS / SLOT => {
                slots.taken += 1;
                (slots.taken - 1) * SLOT
            }
            None => return Err(Failure::OUT_OF_MEMORY),
        };
        // What had the slot before leaves its numbers: they are complete.
        let event = ProcessEvent { mapped, slot, is_own: true };
        event.latest().complete();
        Ok(event)
    }

    /// Gives the counters of an event of this process back.
    pub(crate) fn destroy_process_event(&mut self, event: &ProcessEvent) {
        if event.is_own {
            self.event_slots.free.push(event.slot);
        }
    }

    /// Describes an event of this process for others.
    pub(crate) fn export_event(&mut self, event: &ProcessEvent, device: usize) -> Outcome<ExportedMemory> {
        if !event.is_own {
            return Err(Failure::INVALID_HANDLE);
        }
        let (process, descriptor) = (std::process::id(), self.arena()?.descriptor());
        let (offset, bytes) = (self.arena()?.events().1 + event.slot, SLOT);
        Ok(ExportedMemory { process, descriptor, offset, bytes, device })
    }

    /// Opens an event of another process.
    pub(crate) fn import_event(&mut self, exported: ExportedMemory) -> Outcome<ProcessEvent> {
        let (_, start) = self.arena()?.events();
        let slot = exported.offset.checked_sub(start).ok_or(Failure::INVALID_VALUE)?;
        if slot >= EVENTS || !slot.is_multiple_of(SLOT) || exported.bytes != SLOT {
            return Err(Failure::INVALID_VALUE);
        }
        let mapped = MappedEvents::new(&exported.open()?, start).ok_or(Failure::MAP_FAILED)?;
        Ok(ProcessEvent { mapped: Arc::new(mapped), slot, is_own: false })
    }
}
