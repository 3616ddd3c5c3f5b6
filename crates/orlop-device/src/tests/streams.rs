//! A device whose streams run late, and which looks at what is done to memory that they may still use.
//!
//! Time in a stream is a count. What a stream, or the host, knows to be over is a vector of such counts
//! (Fidge, Mattern 1988): an event carries what its stream knew, and whoever waits for it knows that too.

use crate::{DeviceBacking, EventId, HostPages};
use orlop_alloc::Access;
use orlop_core::{Device, StreamId};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

/// By stream the time up to which all is over.
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

    /// The stream itself goes on.
    fn tick(&mut self, stream: StreamId) -> Moment {
        let time = self.0.entry(stream).or_default();
        *time += 1;
        (stream, *time)
    }
}

type Moment = (StreamId, u64);

/// A block that came back.
#[derive(Debug)]
struct Returned {
    address: usize,
    bytes: usize,
    seed: u64,
    /// The last use in the stream that it was made for.
    own: Moment,
    /// And in others.
    others: Vec<Moment>,
}

impl Returned {
    fn is_among(&self, address: usize, bytes: usize) -> bool {
        self.address < address + bytes && address < self.address + self.bytes
    }
}

#[derive(Debug, Default)]
struct Work {
    streams: BTreeMap<StreamId, Known>,
    host: Known,
    events: Vec<(Moment, Known)>,
    returned: Vec<Returned>,
}

impl Work {
    /// The host learns that work is over. Until now streams could read what they used.
    fn finish(&mut self, known: &Known) {
        self.host.learn(known);
        let host = &self.host;
        self.returned.retain_mut(|block| {
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

    /// A block goes to a stream, which must know that what others did there is over.
    pub(super) fn handed_out(&self, address: usize, bytes: usize, stream: StreamId) {
        let mut work = self.work();
        let Work { streams, host, returned, .. } = &mut *work;
        let known = streams.entry(stream).or_default();
        for block in returned.iter().filter(|block| block.is_among(address, bytes)) {
            assert!(block.others.is_empty(), "a block is handed out while another stream may use it");
            assert!(
                known.has(block.own) || host.has(block.own),
                "a stream did not wait for the one before it"
            );
        }
    }

    /// A block is about to come back, full of the pattern of `seed`; these streams use it for a while.
    pub(super) fn returns(&self, block: (usize, usize), seed: u64, own: StreamId, others: &[StreamId]) {
        let mut work = self.work();
        let mut now = |stream: StreamId| work.streams.entry(stream).or_default().tick(stream);
        let others = others.iter().filter(|&&other| other != own).map(|&other| now(other)).collect();
        let (own, (address, bytes)) = (now(own), block);
        work.returned.push(Returned { address, bytes, seed, own, others });
    }

    /// A stream has done all that it was given.
    pub(super) fn catch_up(&self, stream: StreamId) {
        let mut work = self.work();
        let known = work.streams.get(&stream).cloned().unwrap_or_default();
        work.finish(&known);
    }

    /// Unless a test failed, and its engine goes.
    fn prove(&self) {
        if !std::thread::panicking() {
            let _poisoned_by_a_panic = self.work();
            self.memory.prove();
        }
    }

    /// Panics if a call of the engine did: that ended at the call.
    pub(super) fn check_calls(&self) {
        drop(self.work());
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().expect("no test goes on after a panic")
    }

    /// Pages go: no stream may use them.
    fn leaves(&self, address: usize, bytes: usize) {
        if std::thread::panicking() {
            return;
        }
        let work = self.work();
        for block in work.returned.iter().filter(|block| block.is_among(address, bytes)) {
            assert!(block.others.is_empty(), "pages go while another stream may use them");
            assert!(work.host.has(block.own), "pages go while their stream may use them");
        }
    }
}

// SAFETY: the memory's own; events are done when the stream came so far.
unsafe impl DeviceBacking for LateStreams {
    fn allocate(&self, bytes: usize) -> Option<usize> {
        self.memory.allocate(bytes)
    }

    unsafe fn release(&self, address: usize, bytes: usize) {
        self.leaves(address, bytes);
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
        self.leaves(address, bytes);
        // SAFETY: the caller's promise.
        unsafe { self.memory.unmap(address, bytes, page) };
        self.prove();
    }

    unsafe fn remap(&self, from: usize, to: usize, bytes: usize, page: usize) -> bool {
        self.leaves(from, bytes);
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

const PAGE: usize = 4096;

fn page(seed: u64) -> [u8; PAGE] {
    let mut page = [0; PAGE];
    for (word, number) in page.chunks_exact_mut(8).zip(0_u64..) {
        word.copy_from_slice(&seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number).to_le_bytes());
    }
    page
}

/// The bytes of a block.
fn bytes<'a>(address: usize, bytes: usize) -> &'a mut [u8] {
    let start = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: the tests ask for blocks that are live, or that a stream still uses: mapped, initialised, and
    // nobody else's.
    unsafe { std::slice::from_raw_parts_mut(start, bytes) }
}

/// Writes every byte of a block.
pub(super) fn fill(address: usize, len: usize, seed: u64) {
    let page = page(seed);
    bytes(address, len).chunks_mut(PAGE).for_each(|part| part.copy_from_slice(&page[..part.len()]));
}

/// Every byte of a block is as it was written.
pub(super) fn check(address: usize, len: usize, seed: u64) {
    let page = page(seed);
    let whole = bytes(address, len).chunks(PAGE).all(|part| part == &page[..part.len()]);
    assert!(whole, "block {seed} at {address:#x} was overwritten");
}
