//! A device that is addresses and nothing else.

use super::backing::{DeviceBacking, EventId};
use crate::Access;
use orlop_core::{Device, StreamId};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Addresses go up in steps of this.
const STEP: usize = 2 << 20;

/// A device without memory behind its addresses: what is gained takes the next address, rounded up to 2 MiB, and no
/// address comes twice. It has a size, and refuses what would pass it. Events are done, or not, as it is told.
///
/// Engines run over it at full speed: it is what replays and the golden files stand on.
#[derive(Debug)]
pub struct NullDevice {
    device: Device,
    memory: u64,
    state: Mutex<State>,
    /// Whether events that are asked about are done.
    done: AtomicBool,
    events: AtomicU64,
    queries: AtomicU64,
    waits: AtomicU64,
}

#[derive(Debug)]
struct State {
    next: usize,
    used: u64,
    peak: u64,
    remapped: u64,
    /// Where the next allocations of these sizes are.
    expected: VecDeque<(usize, usize)>,
}

impl NullDevice {
    /// Its first address.
    pub const FIRST_ADDRESS: usize = 1 << 32;

    /// Of so many bytes.
    #[must_use]
    pub fn new(device: Device, memory: u64) -> Self {
        Self {
            device,
            memory,
            state: Mutex::new(State {
                next: Self::FIRST_ADDRESS,
                used: 0,
                peak: 0,
                remapped: 0,
                expected: VecDeque::new(),
            }),
            done: AtomicBool::new(true),
            events: AtomicU64::new(0),
            queries: AtomicU64::new(0),
            waits: AtomicU64::new(0),
        }
    }

    /// From now on events are done when they are asked about, or not until they are waited for.
    pub fn set_events_done(&self, done: bool) {
        self.done.store(done, Ordering::Relaxed);
    }

    /// How many events were asked about.
    #[must_use]
    pub fn queries(&self) -> u64 {
        self.queries.load(Ordering::Relaxed)
    }

    /// How many times a stream was made to wait for another.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Bytes that are held of it.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.state().used
    }

    /// The most bytes that were held of it.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.state().peak
    }

    /// Bytes of pages that were moved.
    #[must_use]
    pub fn remapped(&self) -> u64 {
        self.state().remapped
    }

    /// Counts so many bytes as held, in a range that begins here; what is given out later lies behind it. False if there
    /// is no room.
    pub(super) fn hold(&self, address: usize, range: usize, bytes: usize) -> bool {
        let mut state = self.state();
        let end = address.checked_add(range).and_then(|end| end.checked_next_multiple_of(STEP));
        match end.filter(|&end| isize::try_from(end).is_ok()) {
            Some(end) if state.take(bytes, self.memory) => {
                state.next = state.next.max(end);
                true
            }
            _ => false,
        }
    }

    /// What is gained next in so many bytes is at this address, as it was when a trace was recorded.
    pub fn expect(&self, address: usize, bytes: usize) {
        self.state().expected.push_back((address, bytes));
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, bytes: usize, memory: u64) -> bool {
        match self.used.checked_add(bytes as u64) {
            Some(used) if used <= memory => {
                self.used = used;
                self.peak = self.peak.max(used);
                true
            }
            _ => false,
        }
    }

    fn addresses(&mut self, bytes: usize) -> Option<usize> {
        if let Some(place) = self.expected.iter().position(|&(_, expected)| expected == bytes) {
            return self.expected.remove(place).map(|(address, _)| address);
        }
        let start = self.next;
        let end = start.checked_add(bytes.checked_next_multiple_of(STEP)?)?;
        // As real address spaces, this one ends where differences of addresses would overflow.
        isize::try_from(end).ok()?;
        self.next = end;
        Some(start)
    }
}

// SAFETY: 1. addresses grow and are not used twice; nobody may touch what is there. 2. nothing ever runs in a stream.
unsafe impl DeviceBacking for NullDevice {
    fn allocate(&self, bytes: usize) -> Option<usize> {
        let mut state = self.state();
        if !state.take(bytes, self.memory) {
            return None;
        }
        let start = state.addresses(bytes);
        if start.is_none() {
            state.used -= bytes as u64;
        }
        start
    }

    unsafe fn release(&self, _: usize, bytes: usize) {
        let mut state = self.state();
        state.used = state.used.saturating_sub(bytes as u64);
    }

    fn has_pages(&self) -> bool {
        true
    }

    fn reserve_addresses(&self, bytes: usize) -> Option<usize> {
        self.state().addresses(bytes)
    }

    unsafe fn map(&self, _: usize, bytes: usize, _: usize) -> bool {
        self.state().take(bytes, self.memory)
    }

    unsafe fn unmap(&self, _: usize, bytes: usize, _: usize) {
        let mut state = self.state();
        state.used = state.used.saturating_sub(bytes as u64);
    }

    unsafe fn remap(&self, _: usize, _: usize, bytes: usize, _: usize) -> bool {
        self.state().remapped += bytes as u64;
        true
    }

    /// There is nothing to fill.
    unsafe fn zero(&self, _: usize, _: usize, _: StreamId) -> bool {
        true
    }

    fn record(&self, _: StreamId) -> EventId {
        EventId(self.events.fetch_add(1, Ordering::Relaxed))
    }

    fn is_done(&self, _: EventId) -> bool {
        self.queries.fetch_add(1, Ordering::Relaxed);
        self.done.load(Ordering::Relaxed)
    }

    fn synchronize(&self, _: EventId) {}

    fn wait(&self, _: StreamId, _: EventId) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    fn memory(&self) -> u64 {
        self.memory
    }

    fn free_memory(&self) -> Option<u64> {
        Some(self.memory.saturating_sub(self.used()))
    }

    fn device(&self) -> Device {
        self.device
    }

    fn access(&self) -> Access {
        Access::Nobody
    }

    fn name(&self) -> &str {
        "null"
    }
}
