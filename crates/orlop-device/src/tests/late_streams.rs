//! A device whose streams run late, and which checks what is done to memory that they may still use.
//!
//! Time in a stream is a count. What a stream, or the host, knows to be complete is a vector of such counts
//! (Fidge, Mattern 1988): an event carries what its stream knew, and a stream that waits for it knows that
//! too.

use crate::{DeviceBacking, EventId, HostPages};
use orlop_alloc::Access;
use orlop_core::{Device, StreamId};
use orlop_testkit::pattern;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

/// For each stream, the time up to which its work is complete.
#[derive(Debug, Clone, Default)]
struct Known(BTreeMap<StreamId, u64>);

impl Known {
    fn has(&self, (stream, time): Moment) -> bool {
        self.0.get(&stream).is_some_and(|&known| known >= time)
    }

    fn learn(&mut self, other: &Self) {
        for (&stream, &time) in &other.0 {
            let known = self.0.entry(stream).or_default();
            *known = time.max(*known);
        }
    }

    /// Advances the time of a stream.
    fn tick(&mut self, stream: StreamId) -> Moment {
        let time = self.0.entry(stream).or_default();
        *time += 1;
        (stream, *time)
    }
}

type Moment = (StreamId, u64);

/// A freed block that streams may still use.
#[derive(Debug)]
struct FreedBlock {
    address: usize,
    bytes: usize,
    seed: u64,
    /// The last use in the stream of its request.
    own: Moment,
    /// The last uses in other streams.
    others: Vec<Moment>,
}

impl FreedBlock {
    fn overlaps(&self, address: usize, bytes: usize) -> bool {
        self.address < address + bytes && address < self.address + self.bytes
    }
}

#[derive(Debug, Default)]
struct Work {
    streams: BTreeMap<StreamId, Known>,
    host: Known,
    events: Vec<(Moment, Known)>,
    freed: Vec<FreedBlock>,
}

impl Work {
    /// Notes that the host knows work to be complete. Until now streams could read the blocks that they used.
    fn finish(&mut self, known: &Known) {
        self.host.learn(known);
        let host = &self.host;
        self.freed.retain_mut(|block| {
            let pending = block.others.len();
            block.others.retain(|&moment| !host.has(moment));
            if block.others.is_empty() && pending > 0 {
                check(block.address, block.bytes, block.seed);
            }
            !block.others.is_empty() || !host.has(block.own)
        });
    }
}

/// [`HostPages`] with such streams.
#[derive(Debug)]
pub(super) struct LateStreams {
    pub(super) memory: HostPages,
    work: Mutex<Work>,
}

impl LateStreams {
    pub(super) fn new(memory: HostPages) -> Self {
        Self { memory, work: Mutex::default() }
    }

    /// Checks that a stream that gets a block knows earlier work on its memory to be complete.
    pub(super) fn handed_out(&self, address: usize, bytes: usize, stream: StreamId) {
        let mut work = self.work();
        let Work { streams, host, freed, .. } = &mut *work;
        let known = streams.entry(stream).or_default();
        for block in freed.iter().filter(|block| block.overlaps(address, bytes)) {
            assert!(block.others.is_empty(), "a block is handed out while another stream may use it");
            assert!(
                known.has(block.own) || host.has(block.own),
                "a stream did not wait for the one before it"
            );
        }
    }

    /// Notes that a block with the pattern of `seed` is about to be freed while these streams use it.
    pub(super) fn frees(&self, block: (usize, usize), seed: u64, own: StreamId, others: &[StreamId]) {
        let mut work = self.work();
        let mut now = |stream: StreamId| work.streams.entry(stream).or_default().tick(stream);
        let others = others.iter().filter(|&&other| other != own).map(|&other| now(other)).collect();
        let (own, (address, bytes)) = (now(own), block);
        work.freed.push(FreedBlock { address, bytes, seed, own, others });
    }

    /// Completes all work of a stream.
    pub(super) fn catch_up(&self, stream: StreamId) {
        let mut work = self.work();
        let known = work.streams.get(&stream).cloned().unwrap_or_default();
        work.finish(&known);
    }

    /// Checks the mappings, unless a test has failed and its engine is being dropped.
    fn prove(&self) {
        if !std::thread::panicking() {
            let _poisoned_by_a_panic = self.work();
            self.memory.prove();
        }
    }

    /// Panics if a check in a call of the engine panicked: the engine catches panics.
    pub(super) fn check_calls(&self) {
        drop(self.work());
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().expect("a check failed")
    }

    /// Checks that no stream may use pages that are released or moved.
    fn check_idle(&self, address: usize, bytes: usize) {
        if std::thread::panicking() {
            return;
        }
        let work = self.work();
        for block in work.freed.iter().filter(|block| block.overlaps(address, bytes)) {
            assert!(block.others.is_empty(), "pages are released while another stream may use them");
            assert!(work.host.has(block.own), "pages are released while their stream may use them");
        }
    }
}

// SAFETY: memory is that of `HostPages`; events are done when their stream has reached them.
unsafe impl DeviceBacking for LateStreams {
    fn allocate(&self, bytes: usize) -> Option<usize> {
        self.memory.allocate(bytes)
    }

    unsafe fn release(&self, address: usize, bytes: usize) {
        self.check_idle(address, bytes);
        // SAFETY: the caller's promise.
        unsafe { self.memory.release(address, bytes) };
    }

    fn has_pages(&self) -> bool {
        true
    }

    fn reserve_addresses(&self, bytes: usize) -> Option<usize> {
        self.memory.reserve_addresses(bytes)
    }

    unsafe fn release_addresses(&self, address: usize, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.memory.release_addresses(address, bytes) };
    }

    unsafe fn map(&self, address: usize, bytes: usize, page: usize) -> bool {
        // SAFETY: the caller's promise.
        let mapped = unsafe { self.memory.map(address, bytes, page) };
        self.prove();
        mapped
    }

    unsafe fn unmap(&self, address: usize, bytes: usize, page: usize) {
        self.check_idle(address, bytes);
        // SAFETY: the caller's promise.
        unsafe { self.memory.unmap(address, bytes, page) };
        self.prove();
    }

    unsafe fn remap(&self, from: usize, to: usize, bytes: usize, page: usize) -> bool {
        self.check_idle(from, bytes);
        // SAFETY: the caller's promise.
        let moved = unsafe { self.memory.remap(from, to, bytes, page) };
        self.prove();
        moved
    }

    unsafe fn zero(&self, address: usize, bytes: usize, stream: StreamId) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.memory.zero(address, bytes, stream) }
    }

    fn record(&self, stream: StreamId) -> EventId {
        let mut work = self.work();
        let known = work.streams.entry(stream).or_default();
        let mark = (known.tick(stream), known.clone());
        work.events.push(mark);
        EventId(work.events.len() as u64 - 1)
    }

    fn is_done(&self, event: EventId) -> bool {
        let work = self.work();
        work.host.has(mark(&work, event).0)
    }

    fn synchronize(&self, event: EventId) {
        let mut work = self.work();
        let known = mark(&work, event).1.clone();
        work.finish(&known);
    }

    fn wait(&self, stream: StreamId, event: EventId) {
        let mut work = self.work();
        let known = mark(&work, event).1.clone();
        work.streams.entry(stream).or_default().learn(&known);
    }

    fn memory(&self) -> u64 {
        self.memory.memory()
    }

    fn device(&self) -> Device {
        self.memory.device()
    }

    fn access(&self) -> Access {
        self.memory.access()
    }

    fn name(&self) -> &str {
        "late"
    }
}

fn mark(work: &Work, event: EventId) -> &(Moment, Known) {
    &work.events[usize::try_from(event.0).expect("an index")]
}

/// Returns the bytes of a block.
fn bytes<'a>(address: usize, bytes: usize) -> &'a mut [u8] {
    let start = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: blocks that are live, or that a stream still uses: mapped, initialised, and not used elsewhere.
    unsafe { std::slice::from_raw_parts_mut(start, bytes) }
}

/// Writes every byte of a block.
pub(super) fn fill(address: usize, len: usize, seed: u64) {
    bytes(address, len).chunks_mut(pattern::WHOLE).for_each(|part| pattern::fill(seed, part));
}

/// Checks every byte of a block.
pub(super) fn check(address: usize, len: usize, seed: u64) {
    let mut parts = bytes(address, len).chunks(pattern::WHOLE);
    let is_intact = parts.all(|part| pattern::difference(seed, part).is_none());
    assert!(is_intact, "block {seed} at {address:#x} was overwritten");
}
